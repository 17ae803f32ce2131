"""Three nodes of dohle beside three of Apache Kafka. ``python -m bench.cluster``."""
