"""The offsets that groups have committed, and those pending until the end of a transaction.

The contents follow from the records alone. Each offset has its position in the order of the log:
when a transaction is committed, its offset takes effect only if nothing was committed for the
partition after it. Deleting an offset also deletes what transactions have pending for it.

No dictionary in it is ever empty, so that equal contents are equal stores.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from dohle.core.ids import Uuid
from dohle.core.uuid import ZERO_UUID

NO_EXPIRE_TIMESTAMP = -1


class CommittedOffset(NamedTuple):
    """A committed offset and its details."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    #: The position of its record among the records of offsets.
    position: int
    #: When it expires, if its client set that (OffsetCommit v2-4).
    expire_timestamp_ms: int = NO_EXPIRE_TIMESTAMP
    #: The topic's id, if it was committed by id (OffsetCommit v10+).
    topic_id: Uuid = ZERO_UUID


#: By topic and partition.
GroupOffsets = dict[str, dict[int, CommittedOffset]]


class _Key(NamedTuple):
    group_id: str
    topic: str
    partition: int


@dataclass(slots=True)
class OffsetStore:
    """The offsets of all groups of a shard."""

    _committed: dict[str, GroupOffsets] = field(default_factory=dict)
    #: By producer id.
    _pending: dict[int, dict[_Key, CommittedOffset]] = field(default_factory=dict)
    #: The producers with pending offsets, by group and by topic and partition.
    _open: dict[str, dict[tuple[str, int], set[int]]] = field(default_factory=dict)

    def of_group(self, group_id: str) -> GroupOffsets | None:
        """Return a group's committed offsets, read-only; None if it has none."""
        return self._committed.get(group_id)

    def pending_of_group(self, group_id: str) -> dict[tuple[str, int], set[int]] | None:
        """Return partitions with pending offsets and their producers; None if there are none."""
        return self._open.get(group_id)

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        """Tell whether there is an offset, even if only a pending one."""
        offsets = self._committed.get(group_id)
        if offsets is not None and partition in offsets.get(topic, ()):
            return True
        return (topic, partition) in self._open.get(group_id, ())

    def partitions_of_group(self, group_id: str) -> list[tuple[str, int]]:
        """Return the partitions for which a group has offsets, including pending ones."""
        found = {
            (topic, partition): None
            for topic, offsets in self._committed.get(group_id, {}).items()
            for partition in offsets
        }
        found.update(dict.fromkeys(self._open.get(group_id, ())))
        return list(found)

    def of_topics(self, names: Set[str]) -> Iterator[tuple[str, str, int]]:
        """Yield all offsets of topics, including pending ones: group, topic and partition."""
        for group_id, offsets in self._committed.items():
            if not names.isdisjoint(offsets):
                for topic in sorted(names & offsets.keys()):
                    for partition in offsets[topic]:
                        yield group_id, topic, partition
        for group_id, open_ in self._open.items():
            committed = self._committed.get(group_id, {})
            for topic, partition in open_:
                if topic in names and partition not in committed.get(topic, ()):
                    yield group_id, topic, partition

    def put(self, group_id: str, topic: str, partition: int, offset: CommittedOffset) -> None:
        """Store an offset."""
        offsets = self._committed.get(group_id)
        if offsets is None:
            offsets = self._committed[group_id] = {}
        partitions = offsets.get(topic)
        if partitions is None:
            offsets[topic] = {partition: offset}
        else:
            partitions[partition] = offset

    def put_all(
        self, group_id: str, topic: str, offsets: Iterable[tuple[int, CommittedOffset]]
    ) -> None:
        """Store offsets of a topic, at least one, with their partitions."""
        self._committed.setdefault(group_id, {}).setdefault(topic, {}).update(offsets)

    def put_pending(
        self, producer_id: int, group_id: str, topic: str, partition: int, offset: CommittedOffset
    ) -> None:
        """Store an offset that takes effect once the producer's transaction is committed."""
        key = _Key(group_id, topic, partition)
        self._pending.setdefault(producer_id, {})[key] = offset
        open_ = self._open.setdefault(group_id, {})
        open_.setdefault((topic, partition), set()).add(producer_id)

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """Remove an offset and what is pending for it."""
        offsets = self._committed.get(group_id)
        if offsets is not None and topic in offsets:
            partitions = offsets[topic]
            partitions.pop(partition, None)
            if not partitions:
                del offsets[topic]
                if not offsets:
                    del self._committed[group_id]
        key = _Key(group_id, topic, partition)
        for producer_id in list(self._open.get(group_id, {}).get((topic, partition), ())):
            pending = self._pending[producer_id]
            del pending[key]
            if not pending:
                del self._pending[producer_id]
            self._close(key, producer_id)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Commit or drop a producer's pending offsets."""
        for key, offset in self._pending.pop(producer_id, {}).items():
            self._close(key, producer_id)
            if not is_commit:
                continue
            partitions = self._committed.get(key.group_id, {}).get(key.topic, {})
            known = partitions.get(key.partition)
            if known is None or known.position < offset.position:
                self.put(*key, offset)

    def _close(self, key: _Key, producer_id: int) -> None:
        open_ = self._open[key.group_id]
        producers = open_[key.topic, key.partition]
        producers.discard(producer_id)
        if not producers:
            del open_[key.topic, key.partition]
            if not open_:
                del self._open[key.group_id]
