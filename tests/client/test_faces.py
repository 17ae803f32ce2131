"""The client as users meet it, on a broker of ours: in a loop, and without one."""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import Future
from typing import Any

import pytest

from dohle.client import (
    Admin,
    Beginning,
    Consumer,
    KafkaError,
    NewTopic,
    Producer,
    RecordMetadata,
    SerializationFailed,
    TimedOut,
    TopicPartition,
    run,
    sync,
)
from dohle.core.ids import TopicName
from tests.ports import free_port

WAIT_MS = 30_000


def first(topic: str) -> TopicPartition:
    return TopicPartition(TopicName(topic), 0)


def test_a_record_goes_there_and_back_with_nothing_but_an_address(
    own_bootstrap: str, topic: str
) -> None:
    async def body() -> None:
        async with Producer(own_bootstrap, key_serializer="str", value_serializer="json") as out:
            sent = await out.send(topic, {"item": "coffee"}, key="alice", partition=0)
            assert (sent.partition, sent.offset) == (0, 0)
        config = {"bootstrap.servers": own_bootstrap, "auto.offset.reset": "earliest"}
        async with Consumer(
            config, group_id=f"of-{topic}", key_deserializer=str, value_deserializer="json"
        ) as consumer:
            consumer.subscribe([topic])
            record = await anext(consumer)
            assert (record.topic, record.offset, record.key) == (topic, 0, "alice")
            assert record.value == {"item": "coffee"}
            assert record.timestamp > 0
            assert record.headers == ()

    run(body())


def test_assigning_takes_effect_without_await_and_an_error_is_told_by_the_next_call(
    own_bootstrap: str, topic: str
) -> None:
    async def body() -> None:
        async with Producer(own_bootstrap) as producer:
            await producer.send(topic, b"1", partition=0)
        async with Consumer(own_bootstrap, api_timeout_ms=500) as consumer:
            consumer.assign({first(topic): Beginning()})
            assert (await anext(consumer)).value == b"1"
            consumer.assign({TopicPartition(TopicName(topic), 99): Beginning()})
            with pytest.raises(KafkaError, match="99"):
                await consumer.poll(timeout_ms=WAIT_MS)
            with pytest.raises(KafkaError, match="98"):
                await consumer.assign({TopicPartition(TopicName(topic), 98): Beginning()})
            consumer.assign({first(topic): Beginning()})
            assert (await anext(consumer)).value == b"1"

    run(body())


def test_reading_without_an_assignment_is_refused(own_bootstrap: str) -> None:
    async def body() -> None:
        async with Consumer(own_bootstrap) as consumer:
            with pytest.raises(ValueError, match="call subscribe or assign first"):
                await consumer.poll()
            with pytest.raises(ValueError, match="call subscribe or assign first"):
                await anext(consumer)
            with pytest.raises(ValueError, match="subscribe needs a group_id"):
                consumer.subscribe(["orders"])

    run(body())


def test_a_transaction_is_committed_at_its_end_and_aborted_by_an_error(
    own_bootstrap: str, topic: str
) -> None:
    async def fail(producer: Producer) -> None:
        async with producer.transaction():
            await producer.send_soon(topic, b"never", partition=0)
            raise ZeroDivisionError

    async def body() -> list[bytes]:
        async with Producer(own_bootstrap, transactional_id=f"of-{topic}") as producer:
            async with producer.transaction():
                await producer.send_soon(topic, b"1", partition=0)
            with pytest.raises(ZeroDivisionError):
                await fail(producer)
            async with producer.transaction():
                await producer.send_soon(topic, b"2", partition=0)
        async with Consumer(own_bootstrap, isolation_level="read_committed") as consumer:
            consumer.assign({first(topic): Beginning()}, stop_at_end=True)
            return [record.value async for record in consumer]

    assert run(body()) == [b"1", b"2"]


def test_a_record_that_cannot_be_read_is_named_and_loses_none_of_its_neighbours(
    own_bootstrap: str, topic: str
) -> None:
    with sync.Producer(own_bootstrap) as producer:
        for value in (b"1", b"2", b"not json", b"4"):
            producer.send_soon(topic, value, partition=0)
    with sync.Consumer(own_bootstrap, value_deserializer="json") as consumer:
        consumer.assign({first(topic): Beginning()}, stop_at_end=True)
        assert [next(consumer).value, next(consumer).value] == [1, 2]
        with pytest.raises(SerializationFailed, match=rf"value of {topic}-0 at offset 2 is not"):
            next(consumer)
        assert [record.value for record in consumer] == [4]


def test_without_a_broker_the_reason_is_told_at_once_and_at_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    where = f"127.0.0.1:{free_port()}"

    async def body() -> None:
        async with Producer(where, max_block_ms=300) as producer:
            await producer.send("orders", b"1")

    with pytest.raises(TimedOut, match=rf"no broker can be reached: .*{where}.*refused"):
        run(body())
    told = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(told) == 1
    assert "no broker can be reached" in told[0].getMessage()


def test_without_a_loop_records_go_there_and_back(own_bootstrap: str, topic: str) -> None:
    with sync.Admin(own_bootstrap) as admin:
        admin.create_topics([NewTopic(topic, partitions=2)]).ok()
    with sync.Producer({"bootstrap.servers": own_bootstrap, "linger.ms": 0}) as producer:
        assert producer.send(topic, b"0", partition=1).offset == 0
        futures = [producer.send_soon(topic, b"%d" % n, partition=1) for n in range(1, 3_000)]
        producer.flush()
        assert [future.result(0).offset for future in futures] == list(range(1, 3_000))
    with sync.Consumer(own_bootstrap) as consumer:
        consumer.assign({TopicPartition(TopicName(topic), 1): Beginning()}, stop_at_end=True)
        assert [record.value for record in consumer] == [b"%d" % n for n in range(3_000)]


def test_threads_share_a_producer_and_each_keeps_its_order(own_bootstrap: str, topic: str) -> None:
    futures: dict[int, list[Future[RecordMetadata]]] = {}

    def send(number: int, producer: sync.Producer) -> None:
        futures[number] = [producer.send_soon(topic, b"%d" % n, partition=0) for n in range(500)]

    with sync.Producer(own_bootstrap) as producer:
        threads = [threading.Thread(target=send, args=(n, producer)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    offsets = [[future.result(0).offset for future in of_one] for of_one in futures.values()]
    assert all(of_one == sorted(of_one) for of_one in offsets)
    assert sorted(offset for of_one in offsets for offset in of_one) == list(range(2000))


def test_what_a_loop_over_a_consumer_has_not_returned_is_not_committed(
    own_bootstrap: str, topic: str
) -> None:
    def member() -> sync.Consumer:
        consumer = sync.Consumer(
            own_bootstrap, group_id=f"of-{topic}", auto_offset_reset="earliest"
        )
        consumer.subscribe([topic])
        return consumer

    with sync.Producer(own_bootstrap) as producer:
        for number in range(10):
            producer.send_soon(topic, b"%d" % number, partition=0)
    with member() as consumer:
        assert [next(consumer).value for _ in range(3)] == [b"0", b"1", b"2"]
        assert consumer.position(first(topic)) == 3
    with member() as consumer:
        assert next(consumer).value == b"3"
        assert next(consumer).value == b"4"
        consumer.commit()
        assert consumer.committed([first(topic)])[first(topic)].offset == 5
        assert next(consumer).value == b"5"
    with member() as consumer:
        assert next(consumer).value == b"6"


def test_a_program_with_a_running_loop_may_use_it_too(own_bootstrap: str, topic: str) -> None:
    async def cell() -> int:
        with sync.Producer(own_bootstrap) as producer:
            return producer.send(topic, b"from a notebook", partition=0).offset

    assert asyncio.run(cell()) == 0


def test_a_transaction_without_a_loop(own_bootstrap: str, topic: str) -> None:
    def fail(producer: sync.Producer) -> None:
        with producer.transaction():
            producer.send_soon(topic, b"never", partition=0)
            raise ZeroDivisionError

    with sync.Producer(own_bootstrap, transactional_id=f"of-{topic}") as producer:
        with producer.transaction():
            producer.send_soon(topic, b"1", partition=0)
        with pytest.raises(ZeroDivisionError):
            fail(producer)
    with sync.Consumer(own_bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign({first(topic): Beginning()}, stop_at_end=True)
        assert [record.value for record in consumer] == [b"1"]


def test_slips_are_told_where_they_are_made(own_bootstrap: str, topic: str) -> None:
    async def body() -> None:
        async with Producer(own_bootstrap) as producer, Admin(own_bootstrap) as admin:
            with pytest.raises(TypeError, match="value is a str: pass bytes"):
                await producer.send(topic, "text")
            with pytest.raises(TypeError, match="key is a int: pass bytes"):
                await producer.send(topic, b"", key=5)
            assert (await admin.describe_cluster()).brokers

    run(body())
    with pytest.raises(ValueError, match=r"unknown setting acksx: did you mean acks\?"):
        sync.Producer(own_bootstrap, acksx="all")
    closed: Any = sync.Producer(own_bootstrap)
    closed.close()
    with pytest.raises(KafkaError, match="the producer is closed"):
        closed.send(topic, b"")


def test_a_partitioner_of_ones_own_chooses_and_taking_turns_spreads(
    own_bootstrap: str, topic: str
) -> None:
    with sync.Admin(own_bootstrap) as admin:
        admin.create_topics([NewTopic(topic, partitions=3)]).ok()
    with sync.Producer(own_bootstrap, partitioner="round_robin") as producer:
        sent = [producer.send(topic, b"", key=b"same").partition for _ in range(6)]
        assert sent == [0, 1, 2, 0, 1, 2]

    def by_length(name: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
        assert (name, partitions) == (topic, 3)
        return len(value or b"")

    with sync.Producer(own_bootstrap, partitioner=by_length) as producer:
        assert producer.send(topic, b"22").partition == 2
        assert producer.send(topic, b"22", partition=0).partition == 0
        with pytest.raises(ValueError, match=r"the partitioner chose 3 for .* partitions 0 to 2"):
            producer.send(topic, b"333")
    with pytest.raises(ValueError, match="partitioner is 'sticky': choose murmur2, round_robin"):
        sync.Producer(own_bootstrap, partitioner="sticky")
