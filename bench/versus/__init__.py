"""dohle and Apache Kafka side by side: ``python -m bench.versus``."""
