"""``format("dohle")`` in Spark: batch and streaming, with checkpoints, failures and losses."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit

from dohle.client import Admin
from dohle.testing import Broker
from tests.spark.conftest import NewTopicName
from tests.spark.source.reading import (
    Seen,
    ask,
    consume,
    delete_records,
    options_of,
    produce,
    seen_by_spark,
    transactional,
)

#: What takes seconds takes a minute where others work too.
pytestmark = pytest.mark.timeout(300)

NOW_MS = int(time.time() * 1000)
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def _load(spark: SparkSession, broker: Broker, **options: str) -> DataFrame:
    return spark.read.format("dohle").options(**options_of(broker, **options)).load()


def _seen(frame: DataFrame) -> list[Seen]:
    return sorted(seen_by_spark(row.asDict(recursive=True)) for row in frame.collect())


def _values(frame: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in frame.select("value").collect())


def _fill(broker: Broker, topic: str, *numbers: int, partition: int = 0) -> None:
    produce(broker, topic, [b"%d" % number for number in numbers], partition=partition)


def test_a_batch_read_gives_what_kafka_s_client_reads(
    spark: SparkSession, broker: Broker, new_topic: NewTopicName
) -> None:
    topics = [new_topic(partitions=2) for _ in CODECS]
    for topic, codec in zip(topics, CODECS, strict=True):
        config = {"compression.type": codec}
        headers = [("a", b"1"), ("ü", None), ("a", b"")]
        produce(broker, topic, [b"x" * 300, b"", None], key=b"k", config=config)
        produce(broker, topic, [b"y"], partition=1, headers=headers, config=config)
        producer = transactional(broker, topic)
        for number in range(3):
            producer.begin_transaction()
            producer.produce(topic, b"%d" % number, partition=0)
            producer.abort_transaction(30) if number == 1 else producer.commit_transaction(30)
    frame = _load(
        spark,
        broker,
        subscribe=",".join(topics),
        includeHeaders="true",
        kafka__isolation__level="read_committed",
    )
    expected = consume(broker, topics, "read_committed")

    assert len(expected) == 6 * len(CODECS)
    assert _seen(frame) == expected
    assert frame.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]


def test_a_wrong_option_is_told_when_it_is_loaded(spark: SparkSession, broker: Broker) -> None:
    with pytest.raises(AnalysisException, match="did you mean startingOffsets"):
        _load(spark, broker, subscribe="t", startingOffset="earliest")


def test_filters_spare_reading_where_they_are_pushed_down_and_count_everywhere(
    spark: SparkSession, broker: Broker, new_topic: NewTopicName
) -> None:
    topic = new_topic(partitions=2)
    for number in range(8):
        produce(broker, topic, [b"%d" % number], partition=1, timestamp=NOW_MS + number % 4)
    _fill(broker, topic, 100)
    frame = _load(spark, broker, subscribe=topic)
    since = datetime.fromtimestamp((NOW_MS + 2) / 1000, UTC)
    by_offset = frame.filter((col("partition") == 1) & (col("offset") >= 2) & (col("offset") < 5))
    by_time = frame.filter((col("timestamp") >= lit(since)) & (col("partition") == 1))

    assert spark.conf.get(PUSHDOWN) == "true"
    assert _values(by_time) == [2, 3, 6, 7]
    assert _values(by_offset) == [2, 3, 4]
    assert "Filter (" not in by_offset._jdf.queryExecution().executedPlan().toString()
    spark.conf.set(PUSHDOWN, "false")
    try:
        frame = _load(spark, broker, subscribe=topic)
        assert _values(frame.filter("partition = 1 and offset = 3")) == [3]
    finally:
        spark.conf.set(PUSHDOWN, "true")


class Query:
    """A stream with a checkpoint, run until all that is there is read."""

    def __init__(self, spark: SparkSession, broker: Broker, folder: Path, **options: str) -> None:
        self._spark = spark
        self._options = options_of(broker, **options)
        self.checkpoint = folder / "checkpoint"

    def run(self, on_batch: Callable[[int], None] = lambda number: None) -> dict[int, list[int]]:
        """Return the values of each batch."""
        batches: dict[int, list[int]] = {}

        def take(frame: DataFrame, number: int) -> None:
            batches[number] = _values(frame)
            on_batch(number)

        query = self.start(take, availableNow=True)
        query.awaitTermination(60)
        return batches

    def start(self, take: Callable[[DataFrame, int], None], **trigger: Any) -> Any:
        frame = self._spark.readStream.format("dohle").options(**self._options).load()
        writer = frame.writeStream.foreachBatch(take).trigger(**trigger)
        return writer.option("checkpointLocation", str(self.checkpoint)).start()

    def alter(self, **options: str) -> None:
        """Change options for the next run."""
        self._options.update(options)


def _committed(broker: Broker, group_id: str) -> dict[int, int]:
    async def question(admin: Admin) -> dict[int, int]:
        found = (await admin.list_group_offsets(group_id)).ok()
        return {place.partition: offset.offset for place, offset in found.items()}

    return ask(broker, question)


def test_a_stream_goes_on_from_its_checkpoint_and_replays_its_first_batch(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    def fail(number: int) -> None:
        raise RuntimeError("the sink is full")

    _fill(broker, topic, 0, 1)
    query = Query(
        spark,
        broker,
        tmp_path,
        subscribe=topic,
        startingOffsets="earliest",
        kafka__group__id=topic,
        minOffsetsPerTrigger="1000",
    )
    with pytest.raises(PySparkException, match="the sink is full"):
        query.run(fail)
    after_failure = _committed(broker, topic)
    *_, offset = (query.checkpoint / "offsets" / "0").read_text().splitlines()
    _fill(broker, topic, 2)
    query.alter(startingOffsets="latest")

    assert after_failure == {}
    assert json.loads(offset)["offsets"] == {topic: {"0": 2}}
    assert json.loads(offset)["first"] == {topic: {"0": 0}}
    assert query.run() == {0: [0, 1], 1: [2]}
    assert _committed(broker, topic) == {0: 3}
    _fill(broker, topic, 3)
    assert query.run() == {2: [3]}
    assert _committed(broker, topic) == {0: 4}


def test_a_running_stream_finds_new_records_and_partitions_and_shows_its_lag(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    batches: list[list[int]] = []

    async def add_partition(admin: Admin) -> None:
        (await admin.create_partitions({topic: 2})).ok()

    _fill(broker, topic, 0)
    query = Query(
        spark,
        broker,
        tmp_path,
        subscribePattern=topic.replace(".", "[.]"),
        kafka__group__id=topic,
        kafka__metadata__max__age__ms="1",
        maxOffsetsPerTrigger="2",
        minPartitions="2",
    )
    running = query.start(
        lambda frame, number: batches.append(_values(frame)), processingTime="0 seconds"
    )
    try:
        running.processAllAvailable()
        _fill(broker, topic, 1, 2, 3)
        running.processAllAvailable()
        ask(broker, add_partition)
        _fill(broker, topic, 4, partition=1)
        deadline = time.monotonic() + 30
        while _committed(broker, topic) != {0: 4, 1: 1} and time.monotonic() < deadline:
            running.processAllAvailable()
    finally:
        running.stop()

    assert [batch for batch in batches if batch] == [[1, 2], [3], [4]]
    assert _committed(broker, topic) == {0: 4, 1: 1}


def test_records_that_are_gone_fail_a_stream_or_are_left_out(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    _fill(broker, topic, 0)
    query = Query(spark, broker, tmp_path, subscribe=topic, startingOffsets="earliest")
    assert query.run() == {0: [0]}
    _fill(broker, topic, 1, 2, 3)
    delete_records(broker, topic, before=3)

    with pytest.raises(PySparkException, match="offsets 1 to 2 should still be read"):
        query.run()
    query.alter(failOnDataLoss="false")
    assert query.run() == {1: [3]}
