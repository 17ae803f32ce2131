"""Where to read from, as users write it: positions, offsets, or nothing but partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dohle.client.consumer.starts import At, Beginning, End, Since, Start, Tail
from dohle.core.ids import TopicName, TopicPartition

#: Partitions with positions, or partitions that begin where the group or the settings say.
GivenStarts = Mapping[TopicPartition, Start | int] | Iterable[TopicPartition]

_POSITIONS = (Beginning, End, At, Since, Tail)


def starts_of(given: Any) -> dict[TopicPartition, Start | None]:
    """Return the position of each partition of a ``GivenStarts``; None if it was not said."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise TypeError(
            f"{given!r} is no assignment: pass a list of TopicPartition(topic, partition), or a "
            "dict from them to positions"
        )
    if isinstance(given, Mapping):
        return {partition_of(one): start_of(start) for one, start in given.items()}
    return {partition_of(one): None for one in given}


def start_of(given: Any) -> Start:
    """Return a position; a number is an offset."""
    if isinstance(given, _POSITIONS):
        return given
    if isinstance(given, int) and not isinstance(given, bool):
        return At(given)
    raise TypeError(
        f"{given!r} is no position: pass an offset, Beginning(), End(), At(offset), "
        "Since(timestamp_ms) or Tail(n)"
    )


def partition_of(given: Any) -> TopicPartition:
    """Return a partition, also of a pair of its topic and number."""
    match given:
        case (str(topic), int(number)):
            return TopicPartition(TopicName(topic), number)
    raise TypeError(f"{given!r} is no partition: pass TopicPartition(topic, partition)")
