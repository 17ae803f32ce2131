"""Writing topics with Spark, exactly once (ADR 8)."""
