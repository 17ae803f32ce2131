"""Ports for servers that are started again on the port that they had."""

from __future__ import annotations

from dohle.cli.free_ports import free_ports

__all__ = ["free_port", "free_ports"]


def free_port() -> int:
    """Return a port that is free and that nobody else will be given."""
    return free_ports(1)[0]
