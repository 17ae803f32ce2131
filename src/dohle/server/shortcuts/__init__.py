"""The fast paths for requests that repeat the last one of their connection."""
