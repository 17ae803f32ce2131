"""Metrics of a node: what is gathered when somebody scrapes, and the HTTP that serves it."""
