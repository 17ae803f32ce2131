"""Topics with records in them, read by Kafka's own client and by our readers without Spark.

:class:`Engine` calls a stream reader as Spark does, with a checkpoint that can be cut back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer
from confluent_kafka import TopicPartition as Place
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from dohle.client import Admin, Cluster, NewTopic, run
from dohle.core.ids import TopicName, TopicPartition
from dohle.spark.data_source import batch_reader, read_schema, stream_reader
from dohle.spark.source.splits import OffsetRange

_Result = TypeVar("_Result")


class Served(Protocol):
    """A broker of any kind."""

    @property
    def bootstrap(self) -> str: ...


Headers = tuple[tuple[str, bytes | None], ...]


class Seen(NamedTuple):
    """A record as a reader sees it; no headers are None, as in Spark."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers | None


def produce(
    broker: Served,
    topic: str,
    values: Iterable[bytes | None],
    *,
    partition: int = 0,
    config: Mapping[str, str] | None = None,
    **record: Any,
) -> None:
    """Send records, and return when they are written."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, **(config or {})})
    for value in values:
        producer.produce(topic, value, partition=partition, **record)
    assert producer.flush(30) == 0


def transactional(broker: Served, name: str) -> Producer:
    """Return a producer that can begin transactions."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    return producer


def consume(broker: Served, topics: Iterable[str], isolation_level: str) -> list[Seen]:
    """Read all there is with Kafka's own client."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reading",
            "enable.auto.commit": False,
            "isolation.level": isolation_level,
            "enable.partition.eof": True,
        }
    )
    places = [
        Place(topic, partition, OFFSET_BEGINNING)
        for topic in topics
        for partition in consumer.list_topics(topic, 10).topics[topic].partitions
    ]
    consumer.assign(places)
    seen: list[Seen] = []
    ended = 0
    while ended < len(places):
        message = consumer.poll(10)
        assert message is not None, "the consumer got nothing"
        if message.error() is None:
            seen.append(_seen(message))
        else:
            ended += 1
    consumer.close()
    return sorted(seen)


def _seen(message: Message) -> Seen:
    kind, timestamp_ms = message.timestamp()
    headers: Any = message.headers()
    return Seen(
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
        timestamp_ms,
        kind - 1,  # librdkafka counts "no timestamp" as the first
        message.key(),
        message.value(),
        tuple((name, value) for name, value in headers) if headers else None,
    )


def seen_by_spark(row: Mapping[str, Any]) -> Seen:
    """Turn a row of our columns into what the other reader gives."""
    headers = row.get("headers")
    return Seen(
        row["topic"],
        row["partition"],
        row["offset"],
        round(row["timestamp"].timestamp() * 1000),
        row["timestampType"],
        _bytes(row["key"]),
        _bytes(row["value"]),
        tuple((each["key"], _bytes(each["value"])) for each in headers) if headers else None,
    )


def _bytes(value: bytes | bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def ask(broker: Served, question: Callable[[Admin], Coroutine[Any, Any, _Result]]) -> _Result:
    """Ask a broker as an admin."""

    async def work() -> _Result:
        async with Cluster(broker.bootstrap) as cluster:
            return await question(Admin(cluster))

    return run(work())


def delete_records(broker: Served, topic: str, before: int, partition: int = 0) -> None:
    """Let a partition begin later."""
    place = TopicPartition(TopicName(topic), partition)

    async def question(admin: Admin) -> None:
        (await admin.delete_records({place: before})).ok()

    ask(broker, question)


def recreate(broker: Served, topic: str) -> None:
    """Delete a topic and make another of its name."""

    async def question(admin: Admin) -> None:
        (await admin.delete_topics([topic])).ok()
        (await admin.create_topics([NewTopic(TopicName(topic), partitions=1)])).ok()

    ask(broker, question)


def options_of(broker: Served, **options: str) -> dict[str, str]:
    """Return options, with two underscores for a dot."""
    named = {name.replace("__", "."): value for name, value in options.items()}
    return {"kafka.bootstrap.servers": broker.bootstrap, **named}


def planned(broker: Served, **options: str) -> list[OffsetRange]:
    """Return the work that a batch query gives to tasks."""
    given = options_of(broker, **options)
    return [each.value for each in batch_reader(given, read_schema(given)).partitions()]


def read_batch(broker: Served, **options: str) -> list[Seen]:
    """Read by the batch reader, without Spark."""
    given = options_of(broker, **options)
    reader = batch_reader(given, read_schema(given))
    return sorted(_rows(reader.read(each) for each in reader.partitions()))


def _rows(reads: Iterable[Iterable[Any]]) -> list[Seen]:
    return [
        seen_by_spark(row) for batches in reads for batch in batches for row in batch.to_pylist()
    ]


class Engine:
    """A stream and its checkpoint: what was planned, and how many batches are through."""

    def __init__(self, broker: Served, **options: str) -> None:
        self._options = options_of(broker, **options)
        self.planned: list[str] = []
        self.through = 0
        self.restart()

    def restart(self, **options: str) -> None:
        """Begin again with what the checkpoint has, and maybe other options."""
        self._options.update({name.replace("__", "."): value for name, value in options.items()})
        self.reader = stream_reader(self._options, read_schema(self._options))
        self.initial = self.reader.initialOffset()

    def next_batch(self, limit: ReadLimit | None = None) -> list[Seen] | None:
        """Run the batch that is planned and not through, or plan one; None if there is no news."""
        if self.through == len(self.planned):
            start = self._offset(self.through - 1)
            end = json.dumps(self.reader.latestOffset(start, limit or ReadAllAvailable()))
            if end == json.dumps(start):
                return None
            self.planned.append(end)
        rows = self.rows(self.through)
        self.through += 1
        return rows

    def tasks(self, number: int) -> list[OffsetRange]:
        """Return the work of a batch."""
        return [each.value for each in self._partitions(number)]

    def rows(self, number: int) -> list[Seen]:
        """Return what a batch reads."""
        return sorted(_rows(self.reader.read(each) for each in self._partitions(number)))

    def _partitions(self, number: int) -> list[InputPartition]:
        return list(self.reader.partitions(self._offset(number - 1), self._offset(number)))

    def _offset(self, number: int) -> dict[str, Any]:
        if number < 0:
            return self.initial
        offset: dict[str, Any] = json.loads(self.planned[number])
        return offset


def values(rows: Iterable[Seen] | None) -> list[bytes | None] | None:
    """Return the values alone."""
    return None if rows is None else [row.value for row in rows]
