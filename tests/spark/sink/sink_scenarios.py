"""The steps of the sink on real brokers, without Spark: what tasks and drivers do, in any order.

Run against dohle (``test_sink_brokers.py``) and against Apache Kafka (``tests/jvm``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import count

import pytest

from dohle.client import (
    Admin,
    Beginning,
    Cluster,
    Consumer,
    ConsumerConfig,
    End,
    IsolationLevel,
    NewTopic,
    PreparedTransaction,
    Producer,
    ProducerConfig,
)
from dohle.client.consumer.offsets import list_offsets
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName, TopicPartition
from dohle.spark.sink.cluster import BrokerSinkCluster
from dohle.spark.sink.commit import (
    NotOpen,
    Place,
    RowsLost,
    abort_batch,
    begin_task,
    choose_id,
    commit_batch,
    confirm_task,
)
from dohle.spark.sink.protocol import Batch, Standing, Superseded, TaskResult, TooLate

_numbers = count(1)


class World:
    """A query of its own, a topic of its own, and those who take part."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.topic = TopicName(f"sink-{name}")
        self.query_id = f"query-{name}"
        self._attempts = count(1)

    def brokers(self) -> BrokerSinkCluster:
        """Return the brokers as a process sees them that has just begun."""
        return BrokerSinkCluster(
            self.cluster, topic="sink-commits", prefix="sink-test", timeout_ms=30_000
        )

    def batch(self, number: int, run: int = 1) -> Batch:
        """Return a batch of a run of the query."""
        return Batch(self.query_id, f"run-{run}", number)

    async def write(
        self, batch: Batch, task: int, *rows: str, attempt: int = 0, timeout_ms: int | None = None
    ) -> TaskResult:
        """Do what a task does."""
        brokers = self.brokers()
        place = Place(task, attempt, next(self._attempts))
        standing = await begin_task(brokers, batch, place)
        if standing is None:
            return TaskResult(batch, task, None, is_skipped=True)
        chosen = await choose_id(brokers, standing, batch, place)
        producer, is_two_phase = await brokers.open_producer(
            chosen.transactional_id, ProducerConfig(linger_ms=0), timeout_ms, may_wait_for_ever=True
        )
        await confirm_task(brokers, batch)
        producer.begin_transaction()
        for row in rows:
            await producer.send_soon(self.topic, row.encode(), partition=task % 2)
        transaction = await producer.prepare_transaction()
        await producer.close(flush=False)
        return TaskResult(batch, task, transaction, is_two_phase=is_two_phase, claim=chosen.claim)

    async def seen(self) -> list[str]:
        """Return what a reader of committed records sees, when nothing hides anything."""
        partitions = [TopicPartition(self.topic, number) for number in range(2)]
        found: list[str] = []
        config = ConsumerConfig(isolation_level=IsolationLevel.READ_COMMITTED)
        for partition in partitions:
            async with asyncio.timeout(30):
                while await self._end(partition, IsolationLevel.READ_COMMITTED) != (
                    end := await self._end(partition, IsolationLevel.READ_UNCOMMITTED)
                ):
                    await asyncio.sleep(0.02)
            async with Consumer(self.cluster, config) as consumer:
                await consumer.assign({partition: Beginning()})
                while (consumer.position(partition) or 0) < end:
                    records = await consumer.poll(timeout_ms=200)
                    found += [(each.record.value or b"").decode() for each in records]
        return sorted(found)

    async def _end(self, partition: TopicPartition, level: IsolationLevel) -> int:
        listed = await list_offsets(self.cluster, {partition: End()}, level)
        return listed.ok()[partition].offset


class Dying(BrokerSinkCluster):
    """Brokers as seen by a driver that dies after so many ends of transactions."""

    ends_left = 0

    async def end(self, transaction: PreparedTransaction, *, commit: bool) -> None:
        if not self.ends_left:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "the driver has died")
        self.ends_left -= 1
        await super().end(transaction, commit=commit)


async def a_batch_is_seen_when_it_is_committed_and_not_before(world: World) -> None:
    batch = world.batch(0)
    results = [await world.write(batch, 0, "a", "b"), await world.write(batch, 1, "c")]
    await commit_batch(world.brokers(), results)
    assert await world.seen() == ["a", "b", "c"]
    await commit_batch(world.brokers(), results)
    assert await world.seen() == ["a", "b", "c"]
    again = [await world.write(batch, 0, "a", "b"), await world.write(batch, 1, "c")]
    assert [each.is_skipped for each in again] == [True, True]
    await commit_batch(world.brokers(), again)
    await abort_batch(world.brokers(), results)
    following = world.batch(1)
    await commit_batch(world.brokers(), [await world.write(following, 0, "d")])
    assert await world.seen() == ["a", "b", "c", "d"]


async def a_decided_batch_is_finished_by_the_next_run(world: World) -> None:
    for ends in range(3):
        batch = world.batch(ends, run=2 * ends + 1)
        results = [await world.write(batch, task, f"{ends}{task}") for task in range(2)]
        dying = Dying(world.cluster, topic="sink-commits", prefix="sink-test", timeout_ms=30_000)
        dying.ends_left = ends
        if ends < 2:
            with pytest.raises(KafkaError, match="the driver has died"):
                await commit_batch(dying, results)
        else:
            await commit_batch(dying, results)
        await abort_batch(world.brokers(), results)
        replay = world.batch(ends, run=2 * ends + 2)
        again = [await world.write(replay, task, "never") for task in range(3)]
        assert all(each.is_skipped for each in again)
        await commit_batch(world.brokers(), again)
    assert await world.seen() == ["00", "01", "10", "11", "20", "21"]


async def what_fails_before_the_decision_leaves_nothing(world: World) -> None:
    batch = world.batch(0)
    results = [await world.write(batch, task, "no") for task in range(2)]
    lost = await world.write(batch, 2, "no", attempt=1)
    assert lost.transaction is not None
    await abort_batch(world.brokers(), results)
    assert await world.seen() == []
    with pytest.raises(TooLate):
        await world.write(batch, 3, "late")
    # The next run dies without a word; the one after it has fewer tasks, and not all of its first
    # attempts win.
    left = [await world.write(world.batch(0, run=2), task, "no") for task in range(3)]
    assert all(each.transaction is not None for each in left)
    replay = world.batch(0, run=3)
    await world.write(replay, 0, "no")
    await commit_batch(world.brokers(), [await world.write(replay, 0, "a", attempt=1)])
    assert await world.seen() == ["a"]
    with pytest.raises(Superseded):
        await world.write(batch, 0, "late")
    later = world.batch(1, run=3)
    await commit_batch(world.brokers(), [await world.write(later, 0, "b")])
    assert await world.seen() == ["a", "b"]


async def a_run_that_was_replaced_can_do_nothing(world: World) -> None:
    old = [await world.write(world.batch(0, run=1), 0, "old")]
    new = [await world.write(world.batch(0, run=2), 0, "new")]
    with pytest.raises(Superseded):
        await commit_batch(world.brokers(), old)
    with pytest.raises(Superseded):
        await world.write(world.batch(0, run=1), 1, "old")
    await abort_batch(world.brokers(), old)
    await commit_batch(world.brokers(), new)
    with pytest.raises(Superseded):
        await commit_batch(world.brokers(), old)
    assert await world.seen() == ["new"]


async def an_attempt_that_comes_late_writes_nothing(world: World) -> None:
    for number, end in enumerate((commit_batch, abort_batch)):
        batch = world.batch(number)
        results = [await world.write(batch, 0, "a")]
        brokers = world.brokers()
        places = [Place(0, 1, 1000 + each) for each in range(2)]
        standings = [await begin_task(brokers, batch, each) for each in places]

        async def identity(
            place: Place, standing: Standing | None, batch: Batch = batch
        ) -> Producer:
            assert standing is not None
            chosen = await choose_id(world.brokers(), standing, batch, place)
            producer, _ = await world.brokers().open_producer(
                chosen.transactional_id, ProducerConfig(), None, may_wait_for_ever=True
            )
            return producer

        # One has its identity, and has looked whether it is late; the other one is slower.
        before = await identity(places[0], standings[0])
        await confirm_task(brokers, batch)
        await end(world.brokers(), results)
        before.begin_transaction()
        await before.send_soon(world.topic, b"late", partition=0)
        with pytest.raises(KafkaError, match=r"PRODUCER_FENCED|INVALID_PRODUCER_EPOCH"):
            await before.prepare_transaction()
        await before.close(flush=False)
        after = await identity(places[1], standings[1])
        with pytest.raises(TooLate):
            await confirm_task(brokers, batch)
        await after.close()
        assert await world.seen() == ["a"]


async def who_holds_the_ledger_shuts_others_out(world: World) -> None:
    await world.write(world.batch(0), 0, "a")
    brokers = world.brokers()
    async with brokers.hold(world.query_id) as first:
        assert first.standing is not None
        async with brokers.hold(world.query_id) as second:
            with pytest.raises(KafkaError) as error:
                await first.write(first.standing)
            assert error.value.code is ErrorCode.PRODUCER_FENCED
            assert second.standing == first.standing
            await second.write(first.standing)
    assert await world.brokers().peek(world.query_id) == first.standing


async def a_transaction_that_somebody_else_has_ended_is_told(world: World) -> None:
    batch = world.batch(0)
    results = [await world.write(batch, task, "no") for task in range(2)]
    assert results[0].transaction is not None
    await world.brokers().fence([results[0].transaction.transactional_id])
    with pytest.raises(NotOpen):
        await commit_batch(world.brokers(), results)
    await abort_batch(world.brokers(), results)
    replay = world.batch(0, run=2)
    results = [await world.write(replay, task, "rows") for task in range(2)]
    dying = Dying(world.cluster, topic="sink-commits", prefix="sink-test", timeout_ms=30_000)
    with pytest.raises(KafkaError, match="the driver has died"):
        await commit_batch(dying, results)
    assert results[0].transaction is not None
    await world.brokers().fence([results[0].transaction.transactional_id])
    with pytest.raises(RowsLost, match=results[0].transaction.transactional_id):
        await commit_batch(world.brokers(), results)
    assert await world.seen() == ["rows"]
    await commit_batch(world.brokers(), results, fail_on_data_loss=False)
    following = await world.write(world.batch(1, run=2), 0, "more")
    await commit_batch(world.brokers(), [following])
    assert sorted(await world.seen()) == ["more", "rows"]


Scenario = Callable[[World], Awaitable[None]]
SCENARIOS: Sequence[Scenario] = (
    a_batch_is_seen_when_it_is_committed_and_not_before,
    a_decided_batch_is_finished_by_the_next_run,
    what_fails_before_the_decision_leaves_nothing,
    a_run_that_was_replaced_can_do_nothing,
    an_attempt_that_comes_late_writes_nothing,
    who_holds_the_ledger_shuts_others_out,
    a_transaction_that_somebody_else_has_ended_is_told,
)


async def play(scenario: Scenario, bootstrap: str) -> None:
    """Let a scenario happen in a world of its own."""
    async with Cluster(bootstrap) as cluster:
        world = World(cluster, f"{scenario.__name__}-{next(_numbers)}".replace("_", "-"))
        new = NewTopic(world.topic, partitions=2)
        (await Admin(cluster).create_topics([new])).ok()
        await scenario(world)
