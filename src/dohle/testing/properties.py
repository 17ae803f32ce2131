"""Values of configs as in Python, for files of properties."""

from __future__ import annotations


def as_property(value: object) -> str:
    """Return a value as it is written in a file of properties."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(map(as_property, value))
    return str(value)
