"""The offsets that groups have committed, and those pending until the end of a transaction.

The contents follow from the records alone. Of the offsets for a partition, the one written last
counts: when a transaction is committed, its offset takes effect only if nothing that was written
for the partition after it was committed before. Such an offset is superseded, but its partition
stays unstable until the transaction ends. Deleting an offset also deletes what transactions have
pending for it.

A request may be about very many offsets of a group, so they are stored and removed together.

No dictionary in it is ever empty, so that equal contents are equal stores.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
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
    #: When it expires, if its client set that (OffsetCommit v2-4).
    expire_timestamp_ms: int = NO_EXPIRE_TIMESTAMP
    #: The topic's id, if it was committed by id (OffsetCommit v10+).
    topic_id: Uuid = ZERO_UUID


#: By topic and partition.
GroupOffsets = dict[str, dict[int, CommittedOffset]]
#: The same of a transaction; None stands for one that is superseded.
PendingOffsets = dict[str, dict[int, CommittedOffset | None]]
#: The producers with pending offsets, by topic and partition, in the order of their offsets.
OpenPartitions = dict[str, dict[int, dict[int, None]]]


@dataclass(slots=True)
class OffsetStore:
    """The offsets of all groups of a shard."""

    _committed: dict[str, GroupOffsets] = field(default_factory=dict)
    #: By producer id and group.
    _pending: dict[int, dict[str, PendingOffsets]] = field(default_factory=dict)
    #: By group.
    _open: dict[str, OpenPartitions] = field(default_factory=dict)

    def of_group(self, group_id: str) -> GroupOffsets | None:
        """Return a group's committed offsets, read-only; None if it has none."""
        return self._committed.get(group_id)

    def pending_of_group(self, group_id: str) -> Mapping[str, Collection[int]]:
        """Return the partitions with pending offsets, by topic."""
        return self._open.get(group_id, {})

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        """Tell whether there is an offset, even if only a pending one."""
        offsets = self._committed.get(group_id)
        if offsets is not None and partition in offsets.get(topic, ()):
            return True
        return partition in self._open.get(group_id, {}).get(topic, ())

    def of_topics(self, names: Set[str]) -> Iterator[tuple[str, str, dict[int, CommittedOffset]]]:
        """Yield the committed offsets of topics, read-only, by group and topic."""
        for group_id, offsets in self._committed.items():
            if not names.isdisjoint(offsets):
                for topic in sorted(names & offsets.keys()):
                    yield group_id, topic, offsets[topic]

    def pending_of_topics(self, names: Set[str]) -> Iterator[tuple[str, str, int]]:
        """Yield the partitions of topics with pending offsets, by group and topic."""
        for group_id, open_ in self._open.items():
            for topic in sorted(names & open_.keys()):
                for partition in open_[topic]:
                    yield group_id, topic, partition

    def put(self, group_id: str, topic: str, partition: int, offset: CommittedOffset) -> None:
        """Store an offset."""
        self.put_all(group_id, {topic: {partition: offset}})

    def put_all(self, group_id: str, offsets: GroupOffsets) -> None:
        """Store offsets of a group, at least one. They are the store's own from then on."""
        known = self._committed.setdefault(group_id, {})
        for topic, partitions in offsets.items():
            before = known.get(topic)
            if before is None:
                known[topic] = partitions
            else:
                before.update(partitions)
        if group_id in self._open:
            for topic, partitions in offsets.items():
                for partition in partitions:
                    self._supersede(group_id, topic, partition, None)

    def put_pending(
        self, producer_id: int, group_id: str, topic: str, partition: int, offset: CommittedOffset
    ) -> None:
        """Store an offset that takes effect once the producer's transaction is committed."""
        self.put_all_pending(producer_id, group_id, {topic: {partition: offset}})

    def put_all_pending(self, producer_id: int, group_id: str, offsets: GroupOffsets) -> None:
        """Store such offsets of a group, at least one."""
        pending = self._pending.setdefault(producer_id, {}).setdefault(group_id, {})
        open_ = self._open.setdefault(group_id, {})
        for topic, partitions in offsets.items():
            pending.setdefault(topic, {}).update(partitions)
            producers_of = open_.setdefault(topic, {})
            for partition in partitions:
                producers = producers_of.setdefault(partition, {})
                producers.pop(producer_id, None)
                producers[producer_id] = None

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """Remove an offset and what is pending for it."""
        self.remove_all(group_id, {topic: (partition,)})

    def remove_all(self, group_id: str, removed: Mapping[str, Iterable[int]]) -> None:
        """Remove offsets of a group, by topic and partition, and what is pending for them."""
        offsets = self._committed.get(group_id, {})
        open_ = self._open.get(group_id, {})
        for topic, indexes in removed.items():
            partitions = offsets.get(topic)
            if partitions is not None:
                for partition in indexes:
                    partitions.pop(partition, None)
                if not partitions:
                    del offsets[topic]
            if topic in open_:
                for partition in indexes:
                    for producer_id in tuple(open_.get(topic, {}).get(partition, ())):
                        self._forget_pending(producer_id, group_id, topic, partition)
                        self._close(group_id, topic, partition, producer_id)
        if not offsets:
            self._committed.pop(group_id, None)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Commit or drop a producer's pending offsets.

        There may be 100,000 of them: where no other transaction has any, whole topics are taken.
        """
        for group_id, offsets in self._pending.pop(producer_id, {}).items():
            open_ = self._open[group_id]
            for topic, partitions in offsets.items():
                if self._is_alone(open_[topic], partitions):
                    del open_[topic]
                else:
                    for partition, offset in partitions.items():
                        if is_commit and offset is not None:
                            self._supersede(group_id, topic, partition, producer_id)
                        self._close(group_id, topic, partition, producer_id)
                valid = {each: offset for each, offset in partitions.items() if offset is not None}
                if is_commit and valid:
                    known = self._committed.setdefault(group_id, {})
                    known.setdefault(topic, {}).update(valid)
            if not open_:
                self._open.pop(group_id, None)

    @staticmethod
    def _is_alone(
        producers_of: dict[int, dict[int, None]], partitions: Mapping[int, object]
    ) -> bool:
        """Tell whether the producer of these partitions is the only one of its topic."""
        return len(producers_of) == len(partitions) and max(map(len, producers_of.values())) == 1

    def _supersede(self, group_id: str, topic: str, partition: int, before: int | None) -> None:
        """Let what is pending have no effect: all of it, or what came before a producer's."""
        for producer_id in self._open[group_id].get(topic, {}).get(partition, ()):
            if producer_id == before:
                return
            self._pending[producer_id][group_id][topic][partition] = None

    def _forget_pending(self, producer_id: int, group_id: str, topic: str, partition: int) -> None:
        groups = self._pending[producer_id]
        topics = groups[group_id]
        partitions = topics[topic]
        del partitions[partition]
        if not partitions:
            del topics[topic]
            if not topics:
                del groups[group_id]
                if not groups:
                    del self._pending[producer_id]

    def _close(self, group_id: str, topic: str, partition: int, producer_id: int) -> None:
        open_ = self._open[group_id]
        producers_of = open_[topic]
        producers = producers_of[partition]
        del producers[producer_id]
        if not producers:
            del producers_of[partition]
            if not producers_of:
                del open_[topic]
                if not open_:
                    del self._open[group_id]
