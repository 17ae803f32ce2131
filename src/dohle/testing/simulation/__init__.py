"""Simulated machines: disks that lose power, a network that breaks, time that does not pass."""
