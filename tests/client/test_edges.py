"""Slips at the edge of the client, told where they are made, and habits of other clients."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from dohle.client import (
    Beginning,
    Consumer,
    KafkaError,
    NewTopic,
    Producer,
    TopicPartition,
    run,
    sync,
)
from dohle.core.ids import TopicName
from dohle.testing.broker import Broker
from tests.ports import free_port

WAIT_MS = 30_000


def first(topic: str) -> TopicPartition:
    return TopicPartition(TopicName(topic), 0)


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
    def told() -> list[str]:
        return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]

    async def body() -> None:
        async with (
            Consumer(
                own_bootstrap, group_id=f"of-{topic}", auto_offset_reset="earliest"
            ) as consumer,
            asyncio.timeout(WAIT_MS / 1000),
        ):
            await consumer.subscribe([topic])
            while not told():
                assert await consumer.poll(timeout_ms=100) == []
            async with Producer(own_bootstrap) as producer:
                await producer.send(topic, b"late")
            assert (await anext(consumer)).value == b"late"

    run(body())
    assert told() == [f"group of-{topic}: topic {topic} does not exist; waiting for it"]


def test_a_name_that_no_topic_can_have_is_refused_when_it_is_subscribed_to(
    own_bootstrap: str,
) -> None:
    with sync.Consumer(own_bootstrap, group_id="g") as consumer:
        consumer.subscribe(["two words"])
        for _ in range(2):
            with pytest.raises(KafkaError, match="INVALID_TOPIC_EXCEPTION: topic two words"):
                consumer.poll(timeout_ms=WAIT_MS)


def test_who_subscribes_before_there_is_a_broker_reads_when_there_is_one(topic: str) -> None:
    port = free_port()

    async def body() -> None:
        async with Consumer(
            f"127.0.0.1:{port}", group_id="early", auto_offset_reset="earliest", api_timeout_ms=500
        ) as consumer:
            await consumer.subscribe([topic])
            assert await consumer.poll(timeout_ms=1000) == []
            config = {
                "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                "group.initial.rebalance.delay.ms": 0,
            }
            with Broker(config) as broker:
                async with Producer(broker.bootstrap) as producer:
                    await producer.send(topic, b"first")
                async with asyncio.timeout(WAIT_MS / 1000):
                    assert (await anext(consumer)).value == b"first"

    run(body())


def test_an_offset_to_commit_may_be_a_number(own_bootstrap: str, topic: str) -> None:
    with sync.Producer(own_bootstrap, transactional_id=f"of-{topic}") as producer:
        with producer.transaction():
            producer.send(topic, b"", partition=0)
        with sync.Consumer(own_bootstrap, group_id=f"of-{topic}") as consumer:
            consumer.assign([first(topic)])
            consumer.commit({first(topic): 7})
            assert consumer.committed([first(topic)])[first(topic)].offset == 7
            with producer.transaction():
                producer.send_offsets_to_transaction({first(topic): 8}, consumer.group_metadata())
            assert consumer.committed([first(topic)])[first(topic)].offset == 8
            slip: Any = {first(topic): "9"}
            with pytest.raises(TypeError, match=rf"the offset of {topic}-0 is '9': it must be"):
                consumer.commit(slip)
            slip = first(topic)
            with pytest.raises(TypeError, match="pass a dict from TopicPartition"):
                consumer.commit(slip)


def test_an_operation_on_several_things_is_not_done_to_the_letters_of_one(
    own_bootstrap: str,
) -> None:
    slip: Any
    with sync.Admin(own_bootstrap) as admin:
        slip = NewTopic("orders")
        with pytest.raises(TypeError, match=r"topics is NewTopic.*: pass a list, even of one"):
            admin.create_topics(slip)
        slip = ["orders"]
        with pytest.raises(TypeError, match=r"topics has 'orders': pass NewTopic\(name"):
            admin.create_topics(slip)
        for method in (admin.delete_topics, admin.describe_topics):
            with pytest.raises(TypeError, match="names is 'orders': pass a list, even of one"):
                method("orders")
        for of_groups in (admin.delete_groups, admin.describe_groups):
            with pytest.raises(TypeError, match="group_ids is 'billing': pass a list"):
                of_groups("billing")


def test_what_brokers_answer_without_a_word_is_told_with_what_to_do(own_bootstrap: str) -> None:
    with sync.Consumer(own_bootstrap, group_id="g", session_timeout_ms=1) as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(KafkaError, match=r"INVALID_SESSION_TIMEOUT.*session_timeout_ms must"):
            consumer.poll(timeout_ms=WAIT_MS)
    with sync.Producer(own_bootstrap) as producer, pytest.raises(KafkaError, match="a name has 1"):
        producer.send("two words", b"")


def test_a_shell_can_complete_the_methods_of_an_admin_without_a_loop(own_bootstrap: str) -> None:
    with sync.Admin(own_bootstrap) as admin:
        assert {"create_topics", "list_groups", "close"} <= set(dir(admin))
