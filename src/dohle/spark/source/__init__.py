"""Reading topics with Spark."""
