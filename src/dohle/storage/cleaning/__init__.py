"""Log compaction: of each key the last value stays. What goes is decided here, for one log."""
