"""One segment of a log: its batches, its indexes, and the list of all segments."""
