"""The headers of a dead letter, under Kafka Connect's names."""

from __future__ import annotations

_PREFIX = "__connect.errors."

TOPIC = f"{_PREFIX}topic"
PARTITION = f"{_PREFIX}partition"
OFFSET = f"{_PREFIX}offset"
ERROR = f"{_PREFIX}exception.message"
PIPELINE = f"{_PREFIX}connector.name"

#: How often a record was sent again.
REPLAYS = "dohle.replays"


def is_of_letter(name: str) -> bool:
    """Tell whether a header was added when the record became a dead letter."""
    return name.startswith(_PREFIX)
