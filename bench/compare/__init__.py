"""Before and after: the same benchmark in two work trees, in turns. ``python -m bench.compare``."""
