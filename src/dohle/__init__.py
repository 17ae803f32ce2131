"""dohle: Kafka in Python. See ARCHITECTURE.md for the reading order."""

__version__ = "0.1.0"
