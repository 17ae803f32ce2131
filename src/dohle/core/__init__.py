"""What every package may use: ids, error codes, and the seams for time and randomness."""
