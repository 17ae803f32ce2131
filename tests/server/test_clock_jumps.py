"""A wall clock that is set forward or back by a day: what was promised by durations holds."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dohle.client import Cluster, Consumer, ConsumerConfig, Producer, ProducerConfig
from dohle.core.seams import SystemClock
from dohle.server.node import Node
from dohle.storage.log import Log
from tests.server.faults import until, watched_node
from tests.server.wire import Wire, batch, create_topic, produce

DAY_MS = 86_400_000
CONFIG = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "10",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "log.retention.check.interval.ms": "10",
    "log.initial.task.delay.ms": "0",
}


class SetClock(SystemClock):
    """The machine's clocks, but for the one on the wall, which a test sets."""

    ahead_ms = 0

    def now_ms(self) -> int:
        """Return the wall-clock time."""
        return super().now_ms() + self.ahead_ms

    async def pass_ms(self, ms: int) -> None:
        """Return when so much time has really passed."""
        end_ms = self.monotonic_ms() + ms
        await until(lambda: self.monotonic_ms() >= end_ms)


def log_of(node: Node, topic: str) -> Log:
    partition = node.broker.partitions.get(topic, 0)
    assert partition is not None
    return partition.log


@pytest.mark.parametrize("jump_ms", [DAY_MS, -DAY_MS])
def test_a_transaction_times_out_after_its_timeout_and_not_before(
    tmp_path: Path, jump_ms: int
) -> None:
    clock = SetClock()

    async def run() -> None:
        async with (
            watched_node(tmp_path, [], CONFIG, clock=clock) as node,
            Cluster(node.bootstrap) as cluster,
        ):
            short = ProducerConfig(transactional_id="short", transaction_timeout_ms=300)
            long = ProducerConfig(transactional_id="long", transaction_timeout_ms=60_000)
            async with Producer(cluster, short) as left, Producer(cluster, long) as kept:
                for producer, topic in ((left, "left"), (kept, "kept")):
                    await producer.init_transactions()
                    producer.begin_transaction()
                    await (await producer.send_soon(topic, b"v"))
                clock.ahead_ms = jump_ms
                # The abort marker of the one, which nobody ends, lets its readers go on.
                log = log_of(node, "left")
                await until(lambda: log.last_stable_offset == 2)
                await clock.pass_ms(100)
                await kept.commit_transaction()
                log = log_of(node, "kept")
                await until(lambda: log.last_stable_offset == 2)
                await left.close(flush=False)

    asyncio.run(run())


async def until_member(consumer: Consumer) -> None:
    """Return when the consumer has its partition."""
    async with asyncio.timeout(20):
        while not consumer.assignment:
            await consumer.poll(timeout_ms=100)


@pytest.mark.parametrize("jump_ms", [DAY_MS, -DAY_MS])
def test_a_member_of_a_group_keeps_its_session(tmp_path: Path, jump_ms: int) -> None:
    clock = SetClock()

    async def run() -> None:
        async with watched_node(tmp_path, [], CONFIG, clock=clock) as node:
            async with await Wire.connect(node) as wire:
                await create_topic(wire, "t")
            config = ConsumerConfig(
                group_id="g", session_timeout_ms=1_000, heartbeat_interval_ms=100
            )
            async with Cluster(node.bootstrap) as cluster, Consumer(cluster, config) as consumer:
                await consumer.subscribe(["t"])
                await until_member(consumer)
                before = consumer.group_metadata()
                clock.ahead_ms = jump_ms
                for _ in range(5):
                    await consumer.poll(timeout_ms=100)
                    await clock.pass_ms(200)
                assert consumer.group_metadata() == before

    asyncio.run(run())


def test_retention_goes_by_the_wall_clock_and_takes_nothing_that_is_young_by_it(
    tmp_path: Path,
) -> None:
    clock = SetClock()

    async def run() -> None:
        async with (
            watched_node(tmp_path, [], CONFIG, clock=clock) as node,
            await Wire.connect(node) as wire,
        ):
            configs = {"retention.ms": str(2 * DAY_MS), "segment.bytes": "1048576"}
            await create_topic(wire, "t", configs=configs)
            now_ms = clock.now_ms()
            for _ in range(3):
                answer = await produce(wire, "t", batch(b"v" * 700_000, timestamp=now_ms))
                assert answer.error_code == 0
            log = log_of(node, "t")
            assert len(log.segments) == 3
            for ahead_ms in (DAY_MS, -DAY_MS, 0):
                clock.ahead_ms = ahead_ms
                await clock.pass_ms(100)
                assert log.log_start_offset == 0
            clock.ahead_ms = 3 * DAY_MS
            await until(lambda: log.log_start_offset == 3)

    asyncio.run(run())
