"""One number for all that a group's assignment depends on: the topics it subscribes to.

A group epoch is written with the hash of the topics' ids, names, partition counts and racks. When a
heartbeat finds another hash, the topics have changed and the group gets a new epoch. The hashed
bytes are Kafka's, so that a group can move between dohle and Kafka without a rebalance.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable

from dohle.core.ids import Uuid
from dohle.groups.consumer.xxh3 import xxh3_64
from dohle.groups.context import Topics, without_unknown

_INT = struct.Struct("<i")
_LONG = struct.Struct("<Q")
_UUID_HALVES = struct.Struct(">QQ")
_UUID_HALVES_SWAPPED = struct.Struct("<QQ")
_MAGIC = b"\x00"


class TopicHashes:
    """The hashes of single topics, kept until a topic changes."""

    __slots__ = ("_hashes", "_topics")

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._hashes: dict[str, int] = {}

    def forget(self, names: Iterable[str]) -> None:
        """Drop topics that have changed, or that nobody asks for any more."""
        for name in names:
            self._hashes.pop(name, None)

    def of_group(self, subscribed_topic_names: Collection[str]) -> int:
        """Return the hash of those of these topics that exist; 0 if there are none."""
        hashes = [
            _LONG.pack(self._of_topic(name, topic_id))
            for name in sorted(without_unknown(subscribed_topic_names, self._topics))
            if (topic_id := self._topics.id_of(name)) is not None
        ]
        if not hashes:
            return 0
        value = xxh3_64(b"".join(hashes))
        return value - (1 << 64) if value >> 63 else value

    def _of_topic(self, name: str, topic_id: Uuid) -> int:
        value = self._hashes.get(name)
        if value is None:
            value = self._hashes[name] = xxh3_64(_topic_bytes(self._topics, name, topic_id))
        return value


def _topic_bytes(topics: Topics, name: str, topic_id: Uuid) -> bytes:
    count = topics.partition_count(name)
    halves = _UUID_HALVES_SWAPPED.pack(*_UUID_HALVES.unpack(topic_id))
    parts = [_MAGIC, halves, _text(name), _INT.pack(count)]
    for partition in range(count):
        parts.append(_INT.pack(partition))
        for rack in sorted(topics.racks(name, partition)):
            parts += (_INT.pack(_length(rack)), _text(rack))
    return b"".join(parts)


def _text(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass") + _INT.pack(_length(text))


def _length(text: str) -> int:
    """Return a text's length as Java counts it: in UTF-16 code units."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
