"""The sink on Spark: what is written, as Kafka's own client reads it, and what is refused."""

from __future__ import annotations

import shutil
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, raise_error, when
from pyspark.sql.streaming.query import StreamingQuery

from dohle.client import Admin
from dohle.client.producer.partitioner import partition_of_key
from dohle.testing import Broker
from tests.spark.conftest import NewTopicName
from tests.spark.source.reading import Seen, ask, consume

_ALL_COLUMNS = (
    "key binary, value string, topic string, partition int, "
    "headers array<struct<key:string,value:binary>>, timestamp timestamp, note string"
)


def _write(rows: DataFrame, broker: Broker, **options: str) -> None:
    writer = rows.write.format("dohle").mode("append")
    for name, value in options.items():
        writer = writer.option(name.replace("__", "."), value)
    writer.option("kafka.bootstrap.servers", broker.bootstrap).save()


def _read(broker: Broker, *topics: str) -> list[Seen]:
    return consume(broker, topics, "read_committed")


def test_columns_are_written_as_kafka_reads_them(
    spark: SparkSession, broker: Broker, new_topic: NewTopicName
) -> None:
    first, second = new_topic(partitions=3), new_topic(partitions=2)
    now = datetime.now(UTC).replace(microsecond=123000)
    headers = [("a", b"1"), ("b", None)]
    rows: list[tuple[Any, ...]] = [
        (b"k%d" % number, f"v{number}", first, None, None, now, "left out") for number in range(50)
    ]
    rows += [
        (None, "placed", second, 1, headers, None, ""),
        (b"", None, second, None, [], now, ""),
    ]
    _write(
        spark.createDataFrame(rows, _ALL_COLUMNS).repartition(2),
        broker,
        kafka__compression__type="zstd",
    )
    seen = _read(broker, first, second)
    now_ms = int(now.timestamp() * 1000)
    assert {(each.key, each.value) for each in seen if each.topic == first} == {
        (b"k%d" % number, b"v%d" % number) for number in range(50)
    }
    for each in seen:
        if each.key is not None:
            partitions = 3 if each.topic == first else 2
            assert each.partition == partition_of_key(each.key, partitions)
            assert each.timestamp_ms == now_ms
            assert each.headers is None
    (placed,) = [each for each in seen if each.value == b"placed"]
    assert (placed.topic, placed.partition, placed.headers) == (second, 1, tuple(headers))
    assert abs(placed.timestamp_ms - now_ms) < 600_000
    assert [each.value for each in seen if each.key == b""] == [None]
    assert len(seen) == 52


def test_the_option_topic_counts_above_the_column(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    rows = spark.range(10).selectExpr("'no-such-topic' AS topic", "string(id) AS value")
    _write(rows, broker, topic=topic, delivery="at-least-once")
    assert sorted(each.value or b"" for each in _read(broker, topic)) == [
        b"%d" % number for number in range(10)
    ]


def test_rows_without_a_topic_are_refused(spark: SparkSession, broker: Broker, topic: str) -> None:
    rows = spark.createDataFrame([("a", topic), ("b", None)], "value string, topic string")
    with pytest.raises(PySparkException, match="rows have no topic: set the option topic"):
        _write(rows, broker)
    assert _read(broker, topic) == []


def test_a_write_that_fails_leaves_no_row_and_nothing_open(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    bad = when(col("id") == 1999, raise_error("bad row")).otherwise(col("id"))
    rows = spark.range(0, 2000, 1, 2).select(bad.cast("string").alias("value"))
    with pytest.raises(PySparkException, match="bad row"):
        _write(rows, broker, topic=topic)
    assert _read(broker, topic) == []
    assert _open_transactions(broker) == []


def _open_transactions(broker: Broker) -> list[str]:
    async def question(admin: Admin) -> list[str]:
        found = await admin.list_transactions(states=("Ongoing",))
        return [each.transactional_id for each in found]

    return ask(broker, question)


class Stream:
    """A stream of text files to a topic, with a checkpoint."""

    def __init__(self, spark: SparkSession, broker: Broker, topic: str, folder: Path) -> None:
        self._spark = spark
        self._broker = broker
        self._topic = topic
        self._lines = folder / "lines"
        self.checkpoint = folder / "checkpoint"
        self._lines.mkdir()

    def add(self, name: str, *values: str) -> None:
        """Have a file to be read in a batch of its own."""
        (self._lines / name).write_text("\n".join(values))

    def start(self, **options: str) -> StreamingQuery:
        """Start the query."""
        rows = self._spark.readStream.option("maxFilesPerTrigger", 1).text(str(self._lines))
        writer = rows.repartition(2).writeStream.format("dohle").trigger(availableNow=True)
        for name, value in options.items():
            writer = writer.option(name, value)
        return (
            writer.option("kafka.bootstrap.servers", self._broker.bootstrap)
            .option("topic", self._topic)
            .option("checkpointLocation", str(self.checkpoint))
            .start()
        )

    def run(self, **options: str) -> None:
        """Run the query until it has caught up."""
        self.start(**options).awaitTermination()

    def written(self) -> list[str]:
        """Return the values that a reader of committed records sees."""
        seen = consume(self._broker, [self._topic], "read_committed")
        return sorted((each.value or b"").decode() for each in seen)


@pytest.fixture
def lines(spark: SparkSession, broker: Broker, new_topic: NewTopicName, tmp_path: Path) -> Stream:
    return Stream(spark, broker, new_topic(partitions=2), tmp_path)


def test_a_batch_that_comes_again_is_not_written_again(broker: Broker, lines: Stream) -> None:
    lines.add("1", "a", "b", "c")
    lines.run()
    lines.add("2", "d", "e")
    lines.run()
    assert lines.written() == ["a", "b", "c", "d", "e"]
    # As if the driver had died between the sink's commit and its own note of it.
    for note in lines.checkpoint.glob("commits/*1*"):
        note.unlink()
    lines.add("3", "f")
    lines.run()
    assert lines.written() == ["a", "b", "c", "d", "e", "f"]
    assert _open_transactions(broker) == []


def test_a_checkpoint_of_before_is_refused(lines: Stream) -> None:
    lines.add("1", "a")
    lines.run()
    lines.add("2", "b")
    lines.run()
    # As if the folder had come back from a backup that was made right after its creation.
    for log in ("offsets", "commits", "sources"):
        shutil.rmtree(lines.checkpoint / log)
    with pytest.raises(StreamingQueryException, match="checkpoint is older than what the query"):
        lines.run()
    assert lines.written() == ["a", "b"]


def test_at_least_once_needs_no_ledger(broker: Broker, lines: Stream) -> None:
    lines.add("1", "a", "b")
    lines.run(delivery="at-least-once", commitsTopic="never-made")
    assert Counter(lines.written()) == Counter("ab")

    async def question(admin: Admin) -> list[str]:
        return [str(name) for name in await admin.list_topics()]

    assert "never-made" not in ask(broker, question)
