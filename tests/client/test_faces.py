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


def test_what_is_changed_after_it_was_sent_does_not_change_the_record(
    own_bootstrap: str, topic: str
) -> None:
    row = {"n": 0}
    with sync.Producer(own_bootstrap, value_serializer="json") as producer:
        for number in range(5):
            row["n"] = number
            producer.send_soon(topic, row, partition=0)
    with sync.Consumer(own_bootstrap, value_deserializer="json") as consumer:
        consumer.assign({first(topic): Beginning()}, stop_at_end=True)
        assert [record.value["n"] for record in consumer] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("named", "sentence"),
    [
        ({"topic": b"orders"}, r"topic is b'orders': it must be a string"),
        ({"topic": None}, r"topic is None: it must be a string"),
        ({"value": "text"}, r"value is a str: pass bytes"),
        ({"partition": "0"}, r"partition is '0': it must be a whole number$"),
        ({"timestamp": 1.5}, r"timestamp is 1\.5: it must be a whole number \(milliseconds"),
        ({"headers": 3}, r"headers is 3: it must be a dict, or a list of pairs"),
        ({"headers": ["trace"]}, r"headers has 'trace': it must be a dict, or a list of pairs"),
        ({"headers": {"trace": "17"}}, r"the header trace is a str: pass bytes"),
    ],
)
def test_a_wrong_type_is_refused_by_the_call_that_has_it(
    own_bootstrap: str, named: dict[str, Any], sentence: str
) -> None:
    arguments = {"topic": "orders", "value": b"", **named}

    async def body() -> None:
        async with Producer(own_bootstrap) as producer:
            with pytest.raises(TypeError, match=sentence):
                await producer.send_soon(**arguments)

    run(body())
    with sync.Producer(own_bootstrap) as without_loop, pytest.raises(TypeError, match=sentence):
        without_loop.send_soon(**arguments)


def test_headers_may_be_a_dict(own_bootstrap: str, topic: str) -> None:
    with sync.Producer(own_bootstrap) as producer:
        producer.send(topic, b"", headers={"trace": b"17", "none": None})
    with sync.Consumer(own_bootstrap) as consumer:
        consumer.assign({first(topic): Beginning()})
        assert next(consumer).headers == (("trace", b"17"), ("none", None))


def test_a_failure_that_nobody_waits_for_is_told_once_in_the_log(
    own_bootstrap: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with sync.Producer(own_bootstrap) as producer:
        producer.send(topic, b"")
        for _ in range(3):
            producer.send_soon(topic, b"", partition=99)
        with pytest.raises(KafkaError, match="no partition 98"):
            producer.send(topic, b"", partition=98)
    told = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(told) == 1
    assert "has 1 partitions and no partition 99" in told[0]


def test_a_transaction_without_one_of_its_records_is_not_committed(
    own_bootstrap: str, topic: str
) -> None:
    def lose_one(producer: sync.Producer) -> None:
        with producer.transaction():
            producer.send_soon(topic, b"never", partition=0)
            producer.send_soon(topic, b"lost", partition=99)

    with sync.Producer(own_bootstrap, transactional_id=f"of-{topic}") as producer:
        with producer.transaction():
            producer.send(topic, b"1", partition=0)
        with pytest.raises(KafkaError, match=r"cannot commit.*no partition 99"):
            lose_one(producer)
        with producer.transaction():
            producer.send(topic, b"2", partition=0)
    with sync.Consumer(own_bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign({first(topic): Beginning()}, stop_at_end=True)
        assert [record.value for record in consumer] == [b"1", b"2"]


def test_partitions_without_positions_begin_where_the_group_is_or_as_the_settings_say(
    own_bootstrap: str, topic: str
) -> None:
    with sync.Producer(own_bootstrap) as producer:
        for number in range(4):
            producer.send(topic, b"%d" % number, partition=0)
    with sync.Consumer(own_bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([first(topic)])
        assert next(consumer).value == b"0"
    with sync.Consumer(own_bootstrap, group_id=f"of-{topic}") as consumer:
        consumer.assign({first(topic): 2})
        assert next(consumer).value == b"2"
    with sync.Consumer(own_bootstrap, group_id=f"of-{topic}") as consumer:
        consumer.assign([first(topic)])
        assert next(consumer).value == b"3"
        consumer.seek(first(topic), 1)
        assert next(consumer).value == b"1"


def test_what_is_no_assignment_and_what_is_not_assigned_is_told(
    own_bootstrap: str, topic: str
) -> None:
    with sync.Producer(own_bootstrap) as producer:
        producer.send(topic, b"", partition=0)
    with sync.Consumer(own_bootstrap, auto_offset_reset="earliest") as consumer:
        given: Any
        for given in (topic, 5):
            with pytest.raises(TypeError, match="is no assignment: pass a list of TopicPartition"):
                consumer.assign(given)
        given = [topic]
        with pytest.raises(TypeError, match=r"is no partition: pass TopicPartition\(topic"):
            consumer.assign(given)
        given = {first(topic): "beginning"}
        with pytest.raises(TypeError, match=r"'beginning' is no position: pass an offset, Begin"):
            consumer.assign(given)
        consumer.assign([first(topic)])
        other = TopicPartition(TopicName(topic), 7)
        told = rf"{topic}-7 is not assigned to this consumer, which reads {topic}-0;"
        with pytest.raises(ValueError, match=told):
            consumer.seek(other, Beginning())
        with pytest.raises(ValueError, match=told):
            consumer.pause([other])
        with pytest.raises(ValueError, match=told):
            consumer.position(other)


def test_a_topic_that_comes_after_its_subscribers_is_found_soon_and_its_absence_told_once(
    own_bootstrap: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        async with Consumer(
            own_bootstrap, group_id=f"of-{topic}", auto_offset_reset="earliest"
        ) as consumer:
            await consumer.subscribe([topic])
            assert await consumer.poll(timeout_ms=100) == []
            async with Producer(own_bootstrap) as producer:
                await producer.send(topic, b"late")
            async with asyncio.timeout(WAIT_MS / 1000):
                assert (await anext(consumer)).value == b"late"

    run(body())
    told = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert told == [f"group of-{topic}: there is no topic {topic}; it is waited for"]


def test_a_name_that_no_topic_can_have_is_refused_when_it_is_subscribed_to(
    own_bootstrap: str,
) -> None:
    with (
        sync.Consumer(own_bootstrap, group_id="g") as consumer,
        pytest.raises(KafkaError, match="INVALID_TOPIC_EXCEPTION: topic two words"),
    ):
        consumer.subscribe(["two words"])


def test_an_operation_on_several_things_is_not_done_to_the_letters_of_one(
    own_bootstrap: str,
) -> None:
    slip: Any
    with sync.Admin(own_bootstrap) as admin:
        slip = NewTopic("orders")
        with pytest.raises(TypeError, match=r"topics is NewTopic.*: pass a list, even of one"):
            admin.create_topics(slip)
        with pytest.raises(TypeError, match=r"topics has 'orders': pass NewTopic\(name"):
            admin.create_topics(["orders"])
        for method in (admin.delete_topics, admin.describe_topics):
            with pytest.raises(TypeError, match="names is 'orders': pass a list, even of one"):
                method("orders")
        for method in (admin.delete_groups, admin.describe_groups):
            with pytest.raises(TypeError, match="group_ids is 'billing': pass a list"):
                method("billing")


def test_what_brokers_answer_without_a_word_is_told_with_what_to_do(own_bootstrap: str) -> None:
    with sync.Consumer(own_bootstrap, group_id="g", session_timeout_ms=1) as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(KafkaError, match=r"INVALID_SESSION_TIMEOUT.*session_timeout_ms must"):
            consumer.poll(timeout_ms=WAIT_MS)
    with sync.Producer(own_bootstrap) as producer, pytest.raises(KafkaError, match="a name has 1"):
        producer.send("two words", b"")
