"""Declarative pipelines: projects of flows in SQL and Python that Spark runs until caught up.

``dohle pipeline`` is the entry point. A run is a separate program (:mod:`.runner`) that reports in
JSON lines (:mod:`.events`), so that Spark's own output stays out of the terminal.
"""
