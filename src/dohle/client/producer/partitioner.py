"""Chooses the partition of a record that comes without one.

A key always goes to the same partition, the one that Java clients choose: murmur2 of its bytes.
Records without a key go to one partition until its batch is full or sent, then to another random
one (KIP-480): that makes fewer and larger batches than taking turns.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import count

from dohle.core.ids import TopicName
from dohle.core.seams import Rng

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the 32-bit hash, signed as in Java."""
    length = len(data)
    whole = length & ~3
    h = _SEED ^ length
    for (k,) in struct.iter_unpack("<I", data[:whole]):
        k = k * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if whole != length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h & 0x80000000 else h


def partition_of_key(key: bytes, partitions: int) -> int:
    """Return the partition of a key in a topic with this many partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class StickyPartitioner:
    """The current partitions for records without a key, by topic."""

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self._current: dict[TopicName, int] = {}

    def current(self, topic: TopicName, available: Sequence[int]) -> int:
        """Return the topic's partition, choosing one if there is none or it is gone."""
        partition = self._current.get(topic)
        if partition is None or partition not in available:
            partition = self._current[topic] = self._rng.choice(available)
        return partition

    def move(self, topic: TopicName, available: Sequence[int]) -> int:
        """Choose another partition than the current one, if there is another."""
        others = [each for each in available if each != self._current.get(topic)]
        partition = self._current[topic] = self._rng.choice(others or available)
        return partition


#: A function from topic, key, value and the number of partitions to one of them; None leaves the
#: choice to the usual way.
Partitioner = Callable[[str, bytes | None, bytes | None, int], int | None]


def partitioner_of(given: str | Partitioner | None) -> Partitioner | None:
    """Return the function for what a user has given; None for the usual way."""
    if given is None or given == "murmur2":
        return None
    if given == "round_robin":
        return _round_robin()
    if isinstance(given, str):
        raise ValueError(f"partitioner is {given!r}: choose murmur2, round_robin, or a function")
    if not callable(given):
        raise TypeError(f"partitioner is {given!r}: it must be a function, murmur2 or round_robin")
    return given


def _round_robin() -> Partitioner:
    """Take turns by topic, whatever the key."""
    turns: dict[str, count[int]] = {}

    def choose(topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
        return next(turns.setdefault(topic, count())) % partitions

    return choose
