"""Other people's clients behind one face, so that each can be asked to do the same.

A client writes samples to a partition and tells their offsets, reads a partition from anywhere,
and finds offsets by time. No consumer group is used: partitions are assigned by hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import Any, NamedTuple, Protocol

import aiokafka
import confluent_kafka
import kafka

DEADLINE_S = 30.0
RECORD_BYTES_MAX = 1_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

Headers = tuple[tuple[str, bytes | None], ...]

BEGINNING = -2
END = -1


class Sample(NamedTuple):
    """A record to be written."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int = 1_700_000_000_000


class Received(NamedTuple):
    """A record that was read."""

    partition: int
    offset: int
    sample: Sample
    log_append_time: bool


class Writing(NamedTuple):
    """How to write."""

    codec: str = "none"
    acks: int = -1
    idempotent: bool = False
    bytes_max: int = RECORD_BYTES_MAX


class Reading(NamedTuple):
    """How to read."""

    #: An offset, BEGINNING or END.
    start: int = 0
    #: Where to go if there is no such offset.
    reset: str = "earliest"
    committed: bool = False
    wait_ms_max: int = 500
    bytes_max: int = RECORD_BYTES_MAX


AS_USUAL = Writing()
FROM_THE_FIRST = Reading()


class OffsetIsOutOfRange(Exception):
    """There is no such offset, and the client was told not to look for another."""


class Client(Protocol):
    """What every client can do."""

    name: str
    #: The codecs whose libraries it was installed with.
    codecs: tuple[str, ...]
    writes_null_headers: bool

    def write(
        self,
        bootstrap: str,
        topic: str,
        samples: Sequence[Sample],
        how: Writing = AS_USUAL,
        partition: int | None = 0,
    ) -> list[int]:
        """Write and return offsets; they are negative where the broker did not tell (acks=0)."""

    def read(
        self,
        bootstrap: str,
        topic: str,
        count: int,
        how: Reading = FROM_THE_FIRST,
        partitions: Sequence[int] = (0,),
    ) -> list[Received]:
        """Read until there are at least so many records, or time is up."""

    def offset_at(self, bootstrap: str, topic: str, timestamp_ms: int) -> int | None:
        """Return the first offset of partition 0 that is not older."""

    def bounds(self, bootstrap: str, topic: str) -> tuple[int, int]:
        """Return the first offset of partition 0 and the one behind the last."""


class Confluent:
    """confluent-kafka: librdkafka."""

    name = "confluent"
    codecs: tuple[str, ...] = CODECS
    writes_null_headers = True

    def write(
        self,
        bootstrap: str,
        topic: str,
        samples: Sequence[Sample],
        how: Writing = AS_USUAL,
        partition: int | None = 0,
    ) -> list[int]:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": how.codec,
                "acks": how.acks,
                "enable.idempotence": how.idempotent,
                "linger.ms": 5,
                "message.max.bytes": how.bytes_max,
                "message.timeout.ms": int(DEADLINE_S * 1000),
            }
        )
        offsets = [-1] * len(samples)
        failures: list[Any] = []

        def report(number: int) -> Any:
            def delivered(error: Any, message: Any) -> None:
                if error is not None:
                    failures.append(error)
                elif message.offset() is not None:
                    offsets[number] = message.offset()

            return delivered

        for number, sample in enumerate(samples):
            producer.produce(
                topic,
                sample.value,
                sample.key,
                -1 if partition is None else partition,
                on_delivery=report(number),
                timestamp=sample.timestamp_ms,
                headers=list(sample.headers),
            )
            producer.poll(0)
        assert producer.flush(DEADLINE_S) == 0
        if failures:
            raise confluent_kafka.KafkaException(failures[0])
        return offsets

    def consumer(self, bootstrap: str, **config: Any) -> Any:
        return confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "not-used",
                "enable.auto.commit": False,
                **{key.replace("_", "."): value for key, value in config.items()},
            }
        )

    def read(
        self,
        bootstrap: str,
        topic: str,
        count: int,
        how: Reading = FROM_THE_FIRST,
        partitions: Sequence[int] = (0,),
    ) -> list[Received]:
        consumer = self.consumer(
            bootstrap,
            auto_offset_reset="error" if how.reset == "none" else how.reset,
            isolation_level="read_committed" if how.committed else "read_uncommitted",
            fetch_wait_max_ms=how.wait_ms_max,
            fetch_message_max_bytes=how.bytes_max,
            check_crcs=True,
        )
        found: list[Received] = []
        try:
            consumer.assign(
                [confluent_kafka.TopicPartition(topic, each, how.start) for each in partitions]
            )
            deadline = monotonic() + DEADLINE_S
            while len(found) < count and monotonic() < deadline:
                message = consumer.poll(0.5)
                if message is None:
                    continue
                error = message.error()
                if error is not None:
                    if error.code() == confluent_kafka.KafkaError._AUTO_OFFSET_RESET:
                        raise OffsetIsOutOfRange(error)
                    raise confluent_kafka.KafkaException(error)
                kind, timestamp_ms = message.timestamp()
                sample = Sample(
                    message.key(),
                    message.value(),
                    tuple(message.headers() or ()),
                    timestamp_ms,
                )
                is_log_append = kind == confluent_kafka.TIMESTAMP_LOG_APPEND_TIME
                found.append(Received(message.partition(), message.offset(), sample, is_log_append))
        finally:
            consumer.close()
        return found

    def offset_at(self, bootstrap: str, topic: str, timestamp_ms: int) -> int | None:
        consumer = self.consumer(bootstrap)
        try:
            asked = confluent_kafka.TopicPartition(topic, 0, timestamp_ms)
            (found,) = consumer.offsets_for_times([asked], timeout=DEADLINE_S)
            assert found.error is None
            return None if found.offset < 0 else int(found.offset)
        finally:
            consumer.close()

    def bounds(self, bootstrap: str, topic: str) -> tuple[int, int]:
        consumer = self.consumer(bootstrap)
        try:
            partition = confluent_kafka.TopicPartition(topic, 0)
            low, high = consumer.get_watermark_offsets(partition, timeout=DEADLINE_S, cached=False)
            return low, high
        finally:
            consumer.close()


class KafkaPython:
    """kafka-python."""

    name = "kafka-python"
    codecs: tuple[str, ...] = ("none", "gzip", "snappy", "lz4", "zstd")
    writes_null_headers = False

    def write(
        self,
        bootstrap: str,
        topic: str,
        samples: Sequence[Sample],
        how: Writing = AS_USUAL,
        partition: int | None = 0,
    ) -> list[int]:
        producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if how.codec == "none" else how.codec,
            acks=how.acks,
            enable_idempotence=how.idempotent,
            linger_ms=5,
            max_request_size=how.bytes_max + 1000,
        )
        try:
            futures = [
                producer.send(
                    topic,
                    sample.value,
                    sample.key,
                    list(sample.headers),
                    partition,
                    sample.timestamp_ms,
                )
                for sample in samples
            ]
            producer.flush(DEADLINE_S)
            return [future.get(DEADLINE_S).offset for future in futures]
        finally:
            producer.close(DEADLINE_S)

    def read(
        self,
        bootstrap: str,
        topic: str,
        count: int,
        how: Reading = FROM_THE_FIRST,
        partitions: Sequence[int] = (0,),
    ) -> list[Received]:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset=how.reset,
            isolation_level="read_committed" if how.committed else "read_uncommitted",
            fetch_max_wait_ms=how.wait_ms_max,
            request_timeout_ms=how.wait_ms_max + 30_000,
            max_partition_fetch_bytes=how.bytes_max,
        )
        found: list[Received] = []
        try:
            assigned = [kafka.TopicPartition(topic, each) for each in partitions]
            consumer.assign(assigned)
            if how.start == BEGINNING:
                consumer.seek_to_beginning()
            elif how.start == END:
                consumer.seek_to_end()
            else:
                for each in assigned:
                    consumer.seek(each, how.start)
            deadline = monotonic() + DEADLINE_S
            while len(found) < count and monotonic() < deadline:
                for records in consumer.poll(500).values():
                    found += map(_received, records)
        except kafka.errors.OffsetOutOfRangeError as error:
            raise OffsetIsOutOfRange from error
        finally:
            consumer.close()
        return found

    def offset_at(self, bootstrap: str, topic: str, timestamp_ms: int) -> int | None:
        consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
        try:
            partition = kafka.TopicPartition(topic, 0)
            found = consumer.offsets_for_times({partition: timestamp_ms})[partition]
            return None if found is None else int(found.offset)
        finally:
            consumer.close()

    def bounds(self, bootstrap: str, topic: str) -> tuple[int, int]:
        consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
        try:
            partition = kafka.TopicPartition(topic, 0)
            low = consumer.beginning_offsets([partition])[partition]
            return low, consumer.end_offsets([partition])[partition]
        finally:
            consumer.close()


class Aiokafka:
    """aiokafka."""

    name = "aiokafka"
    codecs: tuple[str, ...] = CODECS
    writes_null_headers = True

    def write(
        self,
        bootstrap: str,
        topic: str,
        samples: Sequence[Sample],
        how: Writing = AS_USUAL,
        partition: int | None = 0,
    ) -> list[int]:
        return asyncio.run(self._write(bootstrap, topic, samples, how, partition))

    async def _write(
        self,
        bootstrap: str,
        topic: str,
        samples: Sequence[Sample],
        how: Writing,
        partition: int | None,
    ) -> list[int]:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if how.codec == "none" else how.codec,
            acks="all" if how.acks == -1 else how.acks,
            enable_idempotence=how.idempotent,
            linger_ms=5,
            max_request_size=how.bytes_max,
        )
        await producer.start()
        try:
            futures = [
                await producer.send(
                    topic,
                    sample.value,
                    sample.key,
                    partition,
                    sample.timestamp_ms,
                    list(sample.headers),
                )
                for sample in samples
            ]
            await asyncio.wait_for(producer.flush(), DEADLINE_S)
            results = await asyncio.wait_for(asyncio.gather(*futures), DEADLINE_S)
            return [-1 if result is None else result.offset for result in results]
        finally:
            await producer.stop()

    def read(
        self,
        bootstrap: str,
        topic: str,
        count: int,
        how: Reading = FROM_THE_FIRST,
        partitions: Sequence[int] = (0,),
    ) -> list[Received]:
        return asyncio.run(self._read(bootstrap, topic, count, how, partitions))

    async def _read(
        self, bootstrap: str, topic: str, count: int, how: Reading, partitions: Sequence[int]
    ) -> list[Received]:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset=how.reset,
            isolation_level="read_committed" if how.committed else "read_uncommitted",
            fetch_max_wait_ms=how.wait_ms_max,
            max_partition_fetch_bytes=how.bytes_max,
        )
        await consumer.start()
        found: list[Received] = []
        try:
            assigned = [aiokafka.TopicPartition(topic, each) for each in partitions]
            consumer.assign(assigned)
            if how.start == BEGINNING:
                await consumer.seek_to_beginning()
            elif how.start == END:
                await consumer.seek_to_end()
            else:
                for each in assigned:
                    consumer.seek(each, how.start)
            deadline = monotonic() + DEADLINE_S
            while len(found) < count and monotonic() < deadline:
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    found += map(_received, records)
        except aiokafka.errors.OffsetOutOfRangeError as error:
            raise OffsetIsOutOfRange from error
        finally:
            await consumer.stop()
        return found

    def offset_at(self, bootstrap: str, topic: str, timestamp_ms: int) -> int | None:
        async def find() -> int | None:
            consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
            await consumer.start()
            try:
                partition = aiokafka.TopicPartition(topic, 0)
                found = (await consumer.offsets_for_times({partition: timestamp_ms}))[partition]
                return None if found is None else int(found.offset)
            finally:
                await consumer.stop()

        return asyncio.run(find())

    def bounds(self, bootstrap: str, topic: str) -> tuple[int, int]:
        async def find() -> tuple[int, int]:
            consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
            await consumer.start()
            try:
                partition = aiokafka.TopicPartition(topic, 0)
                low = (await consumer.beginning_offsets([partition]))[partition]
                return low, (await consumer.end_offsets([partition]))[partition]
            finally:
                await consumer.stop()

        return asyncio.run(find())


def _received(record: Any) -> Received:
    """Both libraries have the same kind of record."""
    return Received(
        record.partition,
        record.offset,
        Sample(record.key, record.value, tuple(record.headers), record.timestamp),
        record.timestamp_type == 1,
    )


CLIENTS: tuple[Client, ...] = (Confluent(), KafkaPython(), Aiokafka())
