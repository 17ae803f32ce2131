"""What the clients of the demo do: write as fast as they may, read in a group, look around."""

import asyncio
from contextlib import suppress

from world import GROUP, PARTITIONS, TOPIC, World

from dohle.client import (
    Admin,
    ClientConfig,
    Cluster,
    Consumer,
    ConsumerConfig,
    End,
    NewTopic,
    OffsetReset,
    Producer,
    ProducerConfig,
)
from dohle.core.errors import KafkaError
from dohle.core.ids import TopicName, TopicPartition

__all__ = ["PARTITIONS", "Work"]

BURST, REST_S = 10, 0.02
OUTSTANDING_MAX = 2_000
LOOK_S = 0.4
CLOSE_S_MAX = 5.0
#: Impatient, so that what is asked of a node that is gone is asked of another one soon.
CLIENT = ClientConfig(request_timeout_ms=2_000, api_timeout_ms=4_000, metadata_max_age_ms=2_000)


class Work:
    """Tasks that go on until they are stopped."""

    def __init__(self, bootstrap: str, world: World) -> None:
        self._bootstrap = bootstrap
        self._world = world
        self._tasks: list[asyncio.Task[None]] = []
        self._outstanding: set[asyncio.Future] = set()

    async def start(self) -> None:
        """Make the topic, and begin."""
        async with Cluster(self._bootstrap) as cluster:
            topic = NewTopic(TOPIC, PARTITIONS, 3, configs={"min.insync.replicas": "2"})
            (await Admin(cluster).create_topics([topic])).ok()
        self._tasks = [
            asyncio.create_task(each()) for each in (self._write, self._read, self._look)
        ]

    async def stop(self) -> None:
        """End all."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _write(self) -> None:
        async with Cluster(self._bootstrap) as cluster:
            producer = Producer(cluster, ProducerConfig(linger_ms=5))
            try:
                number = 0
                while True:
                    for _ in range(BURST):
                        if len(self._outstanding) >= OUTSTANDING_MAX:
                            break
                        number += 1
                        partition = number % PARTITIONS
                        sent = await producer.send_soon(TOPIC, b"%d" % number, partition=partition)
                        self._outstanding.add(sent)
                        sent.add_done_callback(self._sent)
                    await asyncio.sleep(REST_S)
            finally:
                with suppress(KafkaError, TimeoutError):
                    await asyncio.wait_for(producer.close(), CLOSE_S_MAX)

    def _sent(self, future: asyncio.Future) -> None:
        self._outstanding.discard(future)
        if future.cancelled() or future.exception() is not None:
            self._world.failed += 1
        else:
            self._world.acknowledged()

    async def _read(self) -> None:
        config = ConsumerConfig(
            group_id=GROUP,
            auto_offset_reset=OffsetReset.EARLIEST,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=1_000,
            auto_commit_interval_ms=500,
        )
        async with Cluster(self._bootstrap) as cluster:
            while True:
                with suppress(KafkaError):
                    async with Consumer(cluster, config) as consumer:
                        await consumer.subscribe([TOPIC])
                        while True:
                            found = await consumer.poll(timeout_ms=500)
                            self._world.read += len(found)
                await asyncio.sleep(0.5)

    async def _look(self) -> None:
        ends = {TopicPartition(TopicName(TOPIC), number): End() for number in range(PARTITIONS)}
        async with Cluster(self._bootstrap, CLIENT) as cluster:
            admin = Admin(cluster)
            while True:
                with suppress(KafkaError):
                    topics = (await admin.describe_topics([TOPIC])).ok()
                    found = topics[TopicName(TOPIC)].partitions
                    self._world.partitions = [found[number] for number in sorted(found)]
                with suppress(KafkaError):
                    self._world.controller = (await admin.describe_quorum()).leader_id
                with suppress(KafkaError):
                    found_ends = await admin.list_offsets(ends)
                    self._world.ends |= {
                        each.partition: info.offset for each, info in found_ends.done.items()
                    }
                with suppress(KafkaError):
                    offsets = await admin.list_group_offsets(GROUP)
                    self._world.committed |= {
                        each.partition: at.offset for each, at in offsets.done.items()
                    }
                await asyncio.sleep(LOOK_S)
