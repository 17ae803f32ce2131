"""Transactions that are decided elsewhere (KIP-939), in both protocols, on a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from dohle.client import (
    Admin,
    Beginning,
    Cluster,
    Consumer,
    ConsumerConfig,
    IsolationLevel,
    PreparedTransaction,
    Producer,
    ProducerConfig,
    TransactionDescription,
    end_transaction,
)
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName, TopicPartition
from dohle.testing.broker import Broker
from tests.client.group.group_setup import make_topic, numbers
from tests.client.scripted_broker import within
from tests.client.transactions.features import set_transaction_version

SMALL = {"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "2"}
ENABLED = {**SMALL, "transaction.two.phase.commit.enable": "true"}


@pytest.fixture(scope="module", params=[2, 1])
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    """A broker with the newer and one with the older protocol of transactions."""
    with Broker(ENABLED) as broker:
        if request.param < 2:
            within(30, set_transaction_version(broker.bootstrap, request.param))
        yield broker.bootstrap


def two_phase(name: str) -> ProducerConfig:
    return ProducerConfig(
        transactional_id=name, linger_ms=0, transaction_two_phase_commit_enable=True
    )


async def write(producer: Producer, topic: str, value: int) -> None:
    producer.begin_transaction()
    await producer.send_soon(topic, b"%d" % value, partition=0)


async def prepare(cluster: Cluster, topic: str, value: int) -> PreparedTransaction:
    """Write in a transaction, and go away before it has ended."""
    async with Producer(cluster, two_phase(topic)) as producer:
        assert await producer.init_transactions() is None
        await write(producer, topic, value)
        prepared = await producer.prepare_transaction()
        assert prepared is not None
        return prepared


async def read(cluster: Cluster, topic: str) -> list[int]:
    """Return what is committed, when no transaction is open."""
    async with asyncio.timeout(10):
        while not (await described(cluster, topic)).state.startswith(("Complete", "Empty")):
            pass
    settings = ConsumerConfig(isolation_level=IsolationLevel.READ_COMMITTED, fetch_max_wait_ms=20)
    async with Consumer(cluster, settings) as consumer:
        partition = TopicPartition(TopicName(topic), 0)
        await consumer.assign({partition: Beginning()}, stop_at_end=True)
        return numbers([item async for item in consumer])


async def described(cluster: Cluster, topic: str) -> TransactionDescription:
    return (await Admin(cluster).describe_transactions([topic])).one()


def on_topic(bootstrap: str, topic: str, body: Callable[[Cluster], Awaitable[None]]) -> None:
    async def run() -> None:
        async with Cluster(bootstrap) as cluster:
            await make_topic(cluster, topic, 1)
            await body(cluster)

    within(60, run())


def test_a_two_phase_transaction_has_no_timeout(bootstrap: str, topic: str) -> None:
    async def body(cluster: Cluster) -> None:
        await prepare(cluster, topic, 1)
        found = await described(cluster, topic)
        assert (found.state, found.is_two_phase) == ("Ongoing", True)
        async with Producer(cluster, ProducerConfig(transactional_id=topic)) as producer:
            await producer.init_transactions()
        assert not (await described(cluster, topic)).is_two_phase
        assert await read(cluster, topic) == []

    on_topic(bootstrap, topic, body)


@pytest.mark.parametrize("commit", [True, False])
def test_what_is_prepared_is_ended_by_whoever_was_told_of_it(
    bootstrap: str, topic: str, commit: bool
) -> None:
    async def body(cluster: Cluster) -> None:
        prepared = await prepare(cluster, topic, 1)
        for _ in range(2):  # again, as one does who was not answered
            await end_transaction(cluster, prepared, commit=commit)
        assert await read(cluster, topic) == ([1] if commit else [])

    on_topic(bootstrap, topic, body)


@pytest.mark.parametrize("commit", [True, False])
def test_what_is_prepared_is_ended_by_a_producer_that_takes_over(
    bootstrap: str, topic: str, commit: bool
) -> None:
    async def body(cluster: Cluster) -> None:
        prepared = await prepare(cluster, topic, 1)
        async with Producer(cluster, two_phase(topic)) as producer:
            assert await producer.init_transactions(keep_prepared=True) == prepared
            with pytest.raises(KafkaError, match="end its transaction first"):
                producer.begin_transaction()
            with pytest.raises(KafkaError, match="end its transaction first"):
                await producer.send_soon(topic, b"2")
            with pytest.raises(KafkaError) as fenced:
                await end_transaction(cluster, prepared, commit=commit)
            assert fenced.value.code in (
                ErrorCode.PRODUCER_FENCED,
                ErrorCode.INVALID_PRODUCER_EPOCH,
            )
            await (producer.commit_transaction() if commit else producer.abort_transaction())
            await write(producer, topic, 3)
            await producer.commit_transaction()
        assert await read(cluster, topic) == ([1, 3] if commit else [3])

    on_topic(bootstrap, topic, body)


@pytest.mark.parametrize("is_decided", [True, False])
def test_what_is_prepared_is_committed_if_it_is_what_was_decided(
    bootstrap: str, topic: str, is_decided: bool
) -> None:
    async def body(cluster: Cluster) -> None:
        first = await prepare(cluster, topic, 1)
        second = await prepare(cluster, topic, 2)  # the first is aborted by that
        decided = second if is_decided else first
        async with Producer(cluster, two_phase(topic)) as producer:
            assert await producer.init_transactions(keep_prepared=True) == second
            assert await producer.complete_transaction(decided) is is_decided
            assert await producer.complete_transaction(decided) is None
        assert await read(cluster, topic) == ([2] if is_decided else [])

    on_topic(bootstrap, topic, body)


def test_a_producer_ends_itself_what_it_has_prepared(bootstrap: str, topic: str) -> None:
    async def body(cluster: Cluster) -> None:
        async with Producer(cluster, two_phase(topic)) as producer:
            assert await producer.init_transactions(keep_prepared=True) is None
            for value, commit in ((1, True), (2, False), (3, True)):
                await write(producer, topic, value)
                assert await producer.prepare_transaction() is not None
                with pytest.raises(KafkaError, match="end its transaction first"):
                    await producer.send_soon(topic, b"more")
                await (producer.commit_transaction() if commit else producer.abort_transaction())
            producer.begin_transaction()
            assert await producer.prepare_transaction() is None
            producer.begin_transaction()
            await producer.abort_transaction()
        assert await read(cluster, topic) == [1, 3]

    on_topic(bootstrap, topic, body)


def test_what_is_prepared_outlives_the_broker(tmp_path: Path, topic: str) -> None:
    async def before() -> PreparedTransaction:
        async with Cluster(broker.bootstrap) as cluster:
            await make_topic(cluster, topic, 1)
            return await prepare(cluster, topic, 1)

    async def after() -> None:
        async with Cluster(broker.bootstrap) as cluster:
            async with Producer(cluster, two_phase(topic)) as producer:
                assert await producer.init_transactions(keep_prepared=True) == prepared
                assert await producer.complete_transaction(prepared)
            assert await read(cluster, topic) == [1]

    with Broker(ENABLED, data=str(tmp_path)) as broker:
        prepared = within(30, before())
    with Broker(ENABLED, data=str(tmp_path)) as broker:
        within(30, after())


@pytest.mark.parametrize("keep_prepared", [True, False])
def test_a_broker_that_does_not_offer_it_is_not_asked(topic: str, keep_prepared: bool) -> None:
    async def body() -> None:
        config = ProducerConfig(transactional_id=topic) if keep_prepared else two_phase(topic)
        async with Cluster(broker.bootstrap) as cluster, Producer(cluster, config) as producer:
            with pytest.raises(KafkaError, match="KIP-939") as refused:
                await producer.init_transactions(keep_prepared=keep_prepared)
            assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION

    with Broker(SMALL) as broker:
        within(30, body())
