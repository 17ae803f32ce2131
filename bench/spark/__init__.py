"""dohle's source and sink for Spark beside Spark's own connector: ``python -m bench.spark``."""
