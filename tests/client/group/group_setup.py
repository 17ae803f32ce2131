"""What the tests of groups and transactions share: topics, records, and polling until it is so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from dohle.client import (
    Admin,
    Cluster,
    ConsumedRecord,
    Consumer,
    ConsumerConfig,
    NewTopic,
    OffsetReset,
    Producer,
    RebalanceListener,
)
from dohle.core.ids import TopicName, TopicPartition

#: Quick to notice a rebalance, slow to commit by itself.
GROUP = ConsumerConfig(
    group_id="set by the test",
    auto_offset_reset=OffsetReset.EARLIEST,
    heartbeat_interval_ms=20,
    fetch_max_wait_ms=20,
    auto_commit_interval_ms=3_600_000,
)
POLL_MS = 50


async def make_topic(cluster: Cluster, topic: str, partitions: int) -> tuple[TopicPartition, ...]:
    (await Admin(cluster).create_topics([NewTopic(topic, partitions=partitions)])).ok()
    return tuple(TopicPartition(TopicName(topic), number) for number in range(partitions))


async def write(cluster: Cluster, partitions: Sequence[TopicPartition], values: range) -> None:
    """Write numbers, in turn to each of the partitions."""
    async with Producer(cluster) as producer:
        for number in values:
            topic, partition = partitions[number % len(partitions)]
            await producer.send_soon(topic, b"%d" % number, partition=partition)


def numbers(items: Sequence[ConsumedRecord]) -> list[int]:
    return [int(item.record.value or b"") for item in items]


async def poll_until(
    is_so: Callable[[list[ConsumedRecord]], bool], *consumers: Consumer, seconds: float = 20
) -> list[ConsumedRecord]:
    """Poll all consumers until it is so; return what they read, in the order they read it."""
    items: list[ConsumedRecord] = []
    async with asyncio.timeout(seconds):
        while not is_so(items):
            for some in await asyncio.gather(
                *(each.poll(timeout_ms=POLL_MS) for each in consumers)
            ):
                items += some
    return items


class Notes(RebalanceListener):
    """Notes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, tuple[int, ...]]] = []

    async def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.told.append(("assigned", tuple(each.partition for each in partitions)))

    async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.told.append(("revoked", tuple(each.partition for each in partitions)))

    async def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.told.append(("lost", tuple(each.partition for each in partitions)))
