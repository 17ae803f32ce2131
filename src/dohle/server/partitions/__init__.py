"""The partitions of this broker: look-up, reads, delayed fetches, moves between directories."""
