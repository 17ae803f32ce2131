"""Figures, measured beside their peers in one run. ``make bench``."""
