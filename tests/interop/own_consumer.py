"""This project's own consumer, in the role of the other libraries' group consumers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dohle.client import (
    At,
    ErrorCode,
    KafkaError,
    OffsetAndMetadata,
    RebalanceListener,
    TopicPartition,
)
from dohle.client.sync import Consumer
from dohle.core.ids import TopicName

if TYPE_CHECKING:
    from tests.interop.group_consumers import Joining, Place, Seen, Watcher

POLL_MS = 50
#: It commits by itself before it gives partitions back, and otherwise only when it is told to.
NEVER_MS = 1_000_000


class OwnConsumer:
    """The blocking face of the client."""

    def __init__(self, joining: Joining, watcher: Watcher) -> None:
        from tests.interop.group_consumers import Place, Seen  # which knows this class

        self._place, self._seen = Place, Seen
        self._commits_by_itself = joining.auto_commit_ms is not None or joining.commits_when_revoked
        settings: dict[str, Any] = {
            "bootstrap.servers": joining.bootstrap,
            "group.id": joining.group,
            "group.protocol": joining.protocol,
            "group.instance.id": joining.instance_id,
            "auto.offset.reset": joining.reset,
            "enable.auto.commit": self._commits_by_itself,
            "auto.commit.interval.ms": joining.auto_commit_ms or NEVER_MS,
            "isolation.level": "read_committed" if joining.committed_only else "read_uncommitted",
            "fetch.max.wait.ms": 50,
            "retry.backoff.ms": 20,
            "metadata.max.age.ms": 500,
        }
        if joining.protocol == "classic":
            settings["partition.assignment.strategy"] = joining.strategy
            settings["session.timeout.ms"] = joining.session_timeout_ms
            settings["heartbeat.interval.ms"] = 100
        elif joining.remote_assignor is not None:
            settings["group.remote.assignor"] = joining.remote_assignor
        self.consumer = Consumer(settings)
        topics: Any = joining.topics
        if topics[0].startswith("^"):
            topics = re.compile(topics[0])
        self.consumer.subscribe(topics, _Listener(watcher, Place))

    def poll(self) -> list[Seen]:
        return [
            self._seen(
                self._place(record.topic, record.partition), record.offset, record.value or b""
            )
            for record in self.consumer.poll(timeout_ms=POLL_MS)
        ]

    def assignment(self) -> set[Place]:
        return {self._place(*each) for each in self.consumer.assignment}

    def commit(self, offsets: Mapping[Place, int] | None = None) -> None:
        if offsets is not None:
            self.consumer.commit(
                {_partition(each): OffsetAndMetadata(offset) for each, offset in offsets.items()}
            )
            return
        try:
            self.consumer.commit()
        except KafkaError as error:
            # What it commits by itself, it commits before it gives partitions back or leaves.
            if error.code is not ErrorCode.REBALANCE_IN_PROGRESS or not self._commits_by_itself:
                raise

    def commit_async(self, report: Callable[[object], None]) -> None:
        self.commit()
        report(None)

    def committed(self, place: Place) -> int | None:
        partition = _partition(place)
        found = self.consumer.committed([partition])
        return found[partition].offset if partition in found else None

    def position(self, place: Place) -> int:
        return self.consumer.position(_partition(place))

    def seek(self, place: Place, offset: int) -> None:
        self.consumer.seek(_partition(place), At(offset))

    def pause(self, places: Iterable[Place]) -> None:
        self.consumer.pause([_partition(each) for each in places])

    def resume(self, places: Iterable[Place]) -> None:
        self.consumer.resume([_partition(each) for each in places])

    def close(self) -> None:
        self.consumer.close()


class _Listener(RebalanceListener):
    def __init__(self, watcher: Watcher, place: type[Place]) -> None:
        self._watcher = watcher
        self._place = place

    def _places(self, partitions: Sequence[TopicPartition]) -> set[Place]:
        return {self._place(*each) for each in partitions}

    async def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._watcher.on_assigned(self._places(partitions))

    async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._watcher.on_revoked(self._places(partitions))

    async def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._watcher.on_lost(self._places(partitions))


def _partition(place: Place) -> TopicPartition:
    return TopicPartition(TopicName(place.topic), place.partition)
