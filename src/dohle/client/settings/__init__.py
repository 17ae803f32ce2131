"""Settings as users write them: words for values, and Kafka's names."""
