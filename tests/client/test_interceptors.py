"""Interceptors of producers and consumers: they see everything, and never do harm."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from dohle.client import (
    Beginning,
    ConsumedRecord,
    Consumer,
    ConsumerConfig,
    ConsumerInterceptor,
    OffsetAndMetadata,
    Producer,
    ProducerConfig,
    ProducerInterceptor,
    ProducerRecord,
    RecordMetadata,
    SerializationFailed,
    TopicPartition,
    sync,
)
from dohle.client.settings.names import given
from dohle.core.ids import TopicName
from tests.client.scripted_broker import within


class Stamp(ProducerInterceptor):
    """Adds a header and notes down what it is told."""

    def __init__(self) -> None:
        self.sent: list[ProducerRecord] = []
        self.outcomes: list[tuple[int | None, str | None]] = []
        self.closed = 0

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.sent.append(record)
        return record._replace(headers=(*record.headers, ("stamp", b"1")))

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        offset = None if metadata is None else metadata.offset
        self.outcomes.append((offset, None if error is None else type(error).__name__))

    def close(self) -> None:
        self.closed += 1


class Even(ConsumerInterceptor):
    """Leaves out odd numbers and notes down what it is told."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.commits: list[Mapping[TopicPartition, OffsetAndMetadata]] = []
        self.closed = 0

    def on_consume(self, records: list[ConsumedRecord]) -> list[ConsumedRecord]:
        self.seen += [record.value for record in records]
        return [record for record in records if record.value % 2 == 0]

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.commits.append(offsets)

    def close(self) -> None:
        self.closed += 1


class Broken(ProducerInterceptor, ConsumerInterceptor):
    """Raises whatever it is asked."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise RuntimeError("on_send")

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        raise RuntimeError("on_acknowledgement")

    def on_consume(self, records: list[ConsumedRecord]) -> list[ConsumedRecord]:
        raise RuntimeError("on_consume")

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        raise RuntimeError("on_commit")

    def close(self) -> None:
        raise RuntimeError("close")


class Forgetful(ProducerInterceptor, ConsumerInterceptor):
    """Returns nothing, and more than there was."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return None  # type: ignore[return-value]

    def on_consume(self, records: list[ConsumedRecord]) -> list[ConsumedRecord]:
        return records * 2


def test_each_record_and_its_outcome_are_seen_and_may_be_changed(
    own_bootstrap: str, topic: str
) -> None:
    async def body() -> None:
        first, second = Stamp(), Stamp()
        async with Producer(
            own_bootstrap, value_serializer="int", interceptors=[first, second]
        ) as producer:
            sent = await producer.send(topic, 7, key=b"k")
            with pytest.raises(SerializationFailed):
                await producer.send(topic, "seven")
            await producer.send_soon(topic, 8)
        # Before it is serialized, and each with what the one before has returned.
        assert first.sent[0] == ProducerRecord(topic, 7, b"k")
        assert second.sent[0].headers == (("stamp", b"1"),)
        assert first.outcomes == second.outcomes
        assert first.outcomes == [(0, None), (None, "SerializationFailed"), (1, None)]
        assert (first.closed, second.closed) == (1, 1)
        async with Consumer(own_bootstrap) as consumer:
            where = TopicPartition(TopicName(topic), sent.partition)
            await consumer.assign({where: Beginning()}, stop_at_end=True)
            found = [record async for record in consumer]
        assert [each.headers for each in found] == [(("stamp", b"1"), ("stamp", b"1"))] * 2

    within(60, body())


def test_records_are_seen_before_they_are_handed_out_and_commits_when_they_are_made(
    own_bootstrap: str, topic: str
) -> None:
    async def body() -> None:
        even = Even()
        async with Producer(own_bootstrap, value_serializer="int") as producer:
            for number in range(10):
                await producer.send_soon(topic, number)
        async with Consumer(
            own_bootstrap,
            group_id=topic,
            auto_offset_reset="earliest",
            value_deserializer="int",
            interceptors=even,
        ) as consumer:
            await consumer.subscribe([topic], stop_at_end=True)
            polled = await consumer.poll(timeout_ms=10_000, max_records=5)
            looped = [record.value async for record in consumer]
            await consumer.commit()
        read = [record.value for record in polled] + looped
        assert read == [0, 2, 4, 6, 8]
        assert even.seen == [*range(10)], "each is seen once"
        assert even.closed == 1
        committed = [place.offset for offsets in even.commits for place in offsets.values()]
        assert committed == [10], "what is left out counts as read"

    within(60, body())


def test_what_interceptors_raise_is_logged_and_harms_nobody(
    own_bootstrap: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    stamp, even = Stamp(), Even()
    with (
        caplog.at_level(logging.ERROR, "dohle.client"),
        sync.Producer(
            own_bootstrap, value_serializer="int", interceptors=[Broken(), Forgetful(), stamp]
        ) as producer,
    ):
        for number in range(4):
            producer.send(topic, number)
    assert len(stamp.sent) == 4
    assert stamp.outcomes == [(number, None) for number in range(4)]
    with sync.Consumer(
        own_bootstrap,
        group_id=topic,
        auto_offset_reset="earliest",
        value_deserializer="int",
        interceptors=[Broken(), Forgetful(), even],
    ) as consumer:
        consumer.subscribe([topic], stop_at_end=True)
        assert [record.value for record in consumer] == [0, 2]
        consumer.commit()
    assert even.seen == [0, 1, 2, 3]
    assert len(even.commits) == 1
    told = {record.getMessage().split(" of the ")[0] for record in caplog.records}
    assert told == {"on_send", "on_acknowledgement", "on_consume", "on_commit", "close"}


def test_interceptors_may_be_given_by_kafkas_name_for_them() -> None:
    def made(value: Any, kind: Any) -> Any:
        where = {"bootstrap.servers": "127.0.0.1:1", "interceptor.classes": value}
        return given(where, None, kind, {}).config.interceptors

    (by_name,) = made(f"{__name__}.Stamp", ProducerConfig)
    assert isinstance(by_name, Stamp)
    by_class, by_object = made([Even, Even()], ConsumerConfig)
    assert isinstance(by_class, Even)
    assert isinstance(by_object, Even)
    assert made("", ProducerConfig) == ()
    with pytest.raises(TypeError, match="must be a ConsumerInterceptor"):
        made([Stamp()], ConsumerConfig)
    with pytest.raises(ValueError, match=r"there is no interceptor 'com\.example\.Audit'"):
        made("com.example.Audit", ProducerConfig)
    with pytest.raises(ValueError, match=r"did you mean interceptor\.classes"):
        given({"bootstrap.servers": "h:1", "interceptor.class": Even}, None, ConsumerConfig, {})
