"""What every room may use: ids, error codes, and the seams for time and chance."""
