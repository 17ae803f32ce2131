"""Checking a cluster of real processes: clients, faults, and a verdict with a page to read.

``python -m dohle.testing.check --help`` tells how. What must hold is told by
:mod:`dohle.testing.checking`, which the simulator uses too.
"""
