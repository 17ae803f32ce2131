"""The metadata log and its controller."""
