"""The producer: batches, partitioning, sending."""
