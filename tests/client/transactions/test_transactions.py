"""Transactions in both protocols, on a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest

from dohle.client import (
    Admin,
    Beginning,
    Cluster,
    Consumer,
    ConsumerConfig,
    GroupMetadata,
    IsolationLevel,
    OffsetAndMetadata,
    Producer,
    ProducerConfig,
)
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import GroupId, TopicPartition
from dohle.testing.broker import Broker
from tests.client.group.group_setup import GROUP, make_topic, numbers, write
from tests.client.scripted_broker import within
from tests.client.transactions.features import set_transaction_version


@pytest.fixture(scope="module", params=[2, 1])
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    """A broker with the newer and one with the older protocol of transactions."""
    config = {
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.num.partitions": "2",
    }
    with Broker(config) as broker:
        if request.param < 2:
            within(30, set_transaction_version(broker.bootstrap, request.param))
        yield broker.bootstrap


def config(transactional_id: str) -> ProducerConfig:
    return ProducerConfig(transactional_id=transactional_id, linger_ms=0)


async def read(
    cluster: Cluster,
    partitions: tuple[TopicPartition, ...],
    level: IsolationLevel = IsolationLevel.READ_COMMITTED,
) -> list[int]:
    settings = ConsumerConfig(isolation_level=level, fetch_max_wait_ms=20)
    async with Consumer(cluster, settings) as consumer:
        await consumer.assign(dict.fromkeys(partitions, Beginning()), stop_at_end=True)
        return sorted(numbers([item async for item in consumer]))


async def send(producer: Producer, partitions: tuple[TopicPartition, ...], *values: int) -> None:
    for value in values:
        topic, partition = partitions[value % len(partitions)]
        await producer.send_soon(topic, b"%d" % value, partition=partition)


def test_readers_see_what_was_committed_and_not_what_was_aborted(
    bootstrap: str, topic: str
) -> None:
    async def body() -> None:
        async with Cluster(bootstrap) as cluster:
            partitions = await make_topic(cluster, topic, 3)
            async with Producer(cluster, config(topic)) as producer:
                await producer.init_transactions()
                for number in range(6):
                    producer.begin_transaction()
                    await send(producer, partitions, *range(10 * number, 10 * number + 10))
                    if number % 2:
                        await producer.flush()
                        await producer.abort_transaction()
                    else:
                        await producer.commit_transaction()
            committed = [10 * number + each for number in (0, 2, 4) for each in range(10)]
            assert await read(cluster, partitions) == committed
            everything = await read(cluster, partitions, IsolationLevel.READ_UNCOMMITTED)
            assert everything == list(range(60))

    within(60, body())


def test_what_is_aborted_before_it_was_sent_is_not_sent(bootstrap: str, topic: str) -> None:
    async def body() -> None:
        async with Cluster(bootstrap) as cluster:
            partitions = await make_topic(cluster, topic, 1)
            lingering = replace(config(topic), linger_ms=3_600_000)
            async with Producer(cluster, lingering) as producer:
                await producer.init_transactions()
                producer.begin_transaction()
                future = await producer.send_soon(topic, b"1", partition=0)
                await producer.abort_transaction()
                with pytest.raises(KafkaError, match="was aborted"):
                    await future
                producer.begin_transaction()
                await send(producer, partitions, 2)
                await producer.commit_transaction()
            assert await read(cluster, partitions, IsolationLevel.READ_UNCOMMITTED) == [2]

    within(60, body())


def test_empty_transactions_are_nothing(bootstrap: str, topic: str) -> None:
    async def body() -> None:
        async with Cluster(bootstrap) as cluster, Producer(cluster, config(topic)) as producer:
            await producer.init_transactions()
            for _ in range(3):
                producer.begin_transaction()
                await producer.commit_transaction()
                producer.begin_transaction()
                await producer.abort_transaction()
            (described,) = (await Admin(cluster).describe_transactions([topic])).ok().values()
            assert described.state == "Empty"

    within(60, body())


def test_whoever_takes_an_id_over_fences_the_one_before_and_aborts_its_transaction(
    bootstrap: str, topic: str
) -> None:
    async def body() -> None:
        async with Cluster(bootstrap) as cluster:
            partitions = await make_topic(cluster, topic, 1)
            async with (
                Producer(cluster, config(topic)) as old,
                Producer(cluster, config(topic)) as new,
            ):
                await old.init_transactions()
                old.begin_transaction()
                await send(old, partitions, 1)
                await old.flush()
                await new.init_transactions()
                new.begin_transaction()
                await send(new, partitions, 2)
                await new.commit_transaction()
                with suppress(KafkaError):
                    await send(old, partitions, 3)
                with pytest.raises(KafkaError):
                    await old.commit_transaction()
                with pytest.raises(KafkaError) as raised:
                    await old.abort_transaction()
                assert raised.value.code is ErrorCode.PRODUCER_FENCED
            assert await read(cluster, partitions) == [2]

    within(60, body())


def test_a_transaction_with_a_record_that_was_refused_can_only_be_aborted(
    bootstrap: str, topic: str
) -> None:
    async def body() -> None:
        async with Cluster(bootstrap) as cluster:
            partitions = await make_topic(cluster, topic, 1)
            large = replace(config(topic), max_request_size=10_000_000)
            async with Producer(cluster, large) as producer:
                await producer.init_transactions()
                producer.begin_transaction()
                await send(producer, partitions, 1)
                await producer.flush()
                # More than max.message.bytes.
                future = await producer.send_soon(topic, bytes(2_000_000), partition=0)
                with pytest.raises(KafkaError, match="must be aborted") as raised:
                    await producer.commit_transaction()
                assert raised.value.code is ErrorCode.TRANSACTION_ABORTABLE
                assert isinstance(future.exception(), KafkaError)
                with pytest.raises(KafkaError, match="must be aborted"):
                    await send(producer, partitions, 2)
                await producer.abort_transaction()
                producer.begin_transaction()
                await send(producer, partitions, 3)
                await producer.commit_transaction()
            assert await read(cluster, partitions) == [3]

    within(60, body())


async def stable_offsets(admin: Admin, group_id: str) -> dict[TopicPartition, int]:
    """Wait for the markers, which may be on their way when the end is answered."""
    async with asyncio.timeout(10):
        while True:
            found = await admin.list_group_offsets(group_id, require_stable=True)
            if not found.errors:
                return {each: place.offset for each, place in found.done.items()}
            assert {error.code for error in found.errors.values()} == {
                ErrorCode.UNSTABLE_OFFSET_COMMIT
            }


def test_offsets_count_with_the_transaction_or_not_at_all(bootstrap: str, topic: str) -> None:
    async def body() -> None:
        async with Cluster(bootstrap) as cluster:
            (partition,) = await make_topic(cluster, topic, 1)
            admin = Admin(cluster)
            group = GroupMetadata(GroupId(f"group-{topic}"))
            async with Producer(cluster, config(topic)) as producer:
                await producer.init_transactions()
                for offset, commit, expected in ((1, True, 1), (2, False, 1), (3, True, 3)):
                    producer.begin_transaction()
                    await producer.send_offsets_to_transaction(
                        {partition: OffsetAndMetadata(offset)}, group
                    )
                    if commit:
                        await producer.commit_transaction()
                    else:
                        await producer.abort_transaction()
                    assert await stable_offsets(admin, group.group_id) == {partition: expected}

    within(60, body())


def test_offsets_of_a_generation_that_is_over_spoil_the_transaction(
    bootstrap: str, topic: str
) -> None:
    async def body() -> None:
        async with Cluster(bootstrap) as cluster:
            (partition,) = await make_topic(cluster, topic, 1)
            settings = replace(GROUP, group_id=topic, enable_auto_commit=False)
            async with (
                Consumer(cluster, settings) as consumer,
                Producer(cluster, config(topic)) as producer,
            ):
                await consumer.subscribe([topic])
                await consumer.poll(timeout_ms=20)
                while not consumer.assignment:
                    await consumer.poll(timeout_ms=20)
                who = consumer.group_metadata()
                await producer.init_transactions()
                producer.begin_transaction()
                offsets = {partition: OffsetAndMetadata(1)}
                await producer.send_offsets_to_transaction(offsets, who)
                await producer.commit_transaction()
                producer.begin_transaction()
                stale = replace(who, generation_id=who.generation_id - 1)
                with pytest.raises(KafkaError) as raised:
                    await producer.send_offsets_to_transaction(offsets, stale)
                assert raised.value.code is ErrorCode.ILLEGAL_GENERATION
                with pytest.raises(KafkaError, match="must be aborted"):
                    await producer.commit_transaction()
                await producer.abort_transaction()

    within(60, body())


def test_records_go_from_topic_to_topic_exactly_once_though_every_third_try_is_aborted(
    bootstrap: str, topic: str
) -> None:
    count = 300

    async def once(cluster: Cluster, output: str, attempt: int) -> int:
        """Copy some records in one transaction; every third attempt comes to nothing."""
        settings = replace(GROUP, group_id=topic, enable_auto_commit=False)
        async with (
            Consumer(cluster, settings) as consumer,
            Producer(cluster, config(topic)) as producer,
        ):
            await producer.init_transactions()
            await consumer.subscribe([topic])
            done = 0
            for _ in range(3):
                items = await consumer.poll(timeout_ms=500, max_records=20)
                if not items:
                    continue
                producer.begin_transaction()
                for item in items:
                    await producer.send_soon(output, item.record.value, partition=item.partition)
                offsets = {
                    each: OffsetAndMetadata(consumer.position(each)) for each in consumer.assignment
                }
                await producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
                if attempt % 3 == 2:
                    await producer.abort_transaction()
                    break
                await producer.commit_transaction()
                done += len(items)
            return done

    async def body() -> None:
        async with Cluster(bootstrap) as cluster:
            partitions = await make_topic(cluster, topic, 2)
            outputs = await make_topic(cluster, f"{topic}-out", 2)
            await write(cluster, partitions, range(count))
            done = attempt = 0
            while done < count:
                done += await once(cluster, f"{topic}-out", attempt)
                attempt += 1
            assert attempt > 2
            assert await read(cluster, outputs) == list(range(count))

    within(60, body())


def test_without_a_transactional_id_there_are_no_transactions(own_bootstrap: str) -> None:
    async def body() -> None:
        async with Cluster(own_bootstrap) as cluster, Producer(cluster) as producer:
            with pytest.raises(ValueError, match="transactional_id"):
                await producer.init_transactions()
            with pytest.raises(ValueError, match="transactional_id"):
                producer.begin_transaction()

    within(60, body())


def test_transactions_need_idempotence() -> None:
    with pytest.raises(ValueError, match="enable_idempotence"):
        ProducerConfig(transactional_id="tx", enable_idempotence=False)
    with pytest.raises(ValueError, match="empty"):
        ProducerConfig(transactional_id="")
