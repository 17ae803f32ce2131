"""The transactions of a producer."""
