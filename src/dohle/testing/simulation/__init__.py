"""Simulated disks that crash, lose power, fill up and flip bits."""
