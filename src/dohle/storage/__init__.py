"""The log on disk, in Kafka's own files. Reading order in ARCHITECTURE.md."""
