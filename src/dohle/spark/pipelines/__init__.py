"""Declarative pipelines: projects of flows in SQL and Python that Spark runs until caught up.

``dohle pipeline`` is the way in. A run is a program of its own (:mod:`.runner`) that tells what it
does in JSON lines (:mod:`.events`), so that Spark's own words stay out of the terminal.
"""
