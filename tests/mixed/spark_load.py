"""Streams on Spark in the background, behind a producer that never stops.

One reads and writes by ``format("dohle")``, exactly once; the other reads by Spark's own connector
for Kafka, whose clients are Java's, in the driver and in the tasks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import dohle.spark
from dohle.client import Beginning, Consumer, ConsumerConfig, IsolationLevel, run
from dohle.client import Cluster as Client
from dohle.core.ids import TopicName, TopicPartition
from dohle.testing.checking.history import Partition
from tests.interop.load import PARTITIONS
from tests.interop.waiting import wait_until
from tests.jvm import spark_connector
from tests.mixed.administration import Operator
from tests.mixed.nodes import DEADLINE_S, MixedCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: Said once by whatever of pyspark 4.3 touches Arrow first, if pandas 3 is installed.
PANDAS_3 = "ignore:PySpark does not yet fully support pandas:FutureWarning"
_SERVERS = "kafka.bootstrap.servers"
#: What each partition holds, in order.
Values = dict[int, list[bytes]]


def new_session(folder: Path) -> SparkSession:
    """Start Spark with its own connector for Kafka beside ours."""
    config = {
        "spark.jars": ",".join(map(str, spark_connector.jars())),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
    }
    session = dohle.spark.session("mixed", "local[2]", config)
    session.sparkContext.setLogLevel("ERROR")
    return session


class Streams:
    """Two streams that read one topic, and what has come out of them."""

    def __init__(
        self, spark: SparkSession, bootstrap: str, source: TopicName, target: TopicName, at: Path
    ) -> None:
        self._spark, self._bootstrap = spark, bootstrap
        self._source, self._target = source, target
        self._seen: Values = defaultdict(list)
        copies = (
            self._rows("dohle")
            .select("value", "partition")
            .writeStream.format("dohle")
            .option(_SERVERS, bootstrap)
            .option("topic", target)
            .option("checkpointLocation", str(at / "copies"))
        )
        looks = (
            self._rows("kafka")
            .writeStream.foreachBatch(self._look)
            .option("checkpointLocation", str(at / "looks"))
        )
        self._queries: list[StreamingQuery] = [copies.start(), looks.start()]

    def _rows(self, kind: str) -> DataFrame:
        return (
            self._spark.readStream.format(kind)
            .option(_SERVERS, self._bootstrap)
            .option("subscribe", self._source)
            .option("startingOffsets", "earliest")
            .load()
        )

    def _look(self, rows: DataFrame, _: int) -> None:
        for row in rows.select("partition", "value").collect():
            self._seen[row.partition].append(_name(bytes(row.value)))

    def flow(self) -> None:
        """See that both go on: wait until each has finished another batch."""
        before = self._batches
        wait_until(
            lambda: all(a > b for a, b in zip(self._batches, before, strict=True)), DEADLINE_S
        )

    @property
    def _batches(self) -> list[int]:
        for query in self._queries:
            assert query.isActive, query.exception()
        found = [query.lastProgress for query in self._queries]
        return [-1 if progress is None else progress["batchId"] for progress in found]

    def judge(self, records: dict[Partition, list[tuple[int, bytes]]]) -> None:
        """What is in the topic by now has come out of both: all of it, once and in order."""
        for query in self._queries:
            query.processAllAvailable()
        expected = {
            partition.number: [value for _, value in found] for partition, found in records.items()
        }
        assert self._seen == expected
        assert run(self._copied()) == expected

    async def _copied(self) -> Values:
        found: Values = {index: [] for index in range(PARTITIONS)}
        config = ConsumerConfig(isolation_level=IsolationLevel.READ_COMMITTED)
        begins = {TopicPartition(self._target, index): Beginning() for index in found}
        async with Client(self._bootstrap) as client, Consumer(client, config) as consumer:
            await consumer.assign(begins, stop_at_end=True)
            async for each in consumer:
                found[each.partition].append(_name(each.record.value or b""))
        return found

    def stop(self) -> None:
        for query in self._queries:
            query.stop()


def _name(value: bytes) -> bytes:
    """Return what a record's value begins with: its number in its partition."""
    return value.split(b" ")[0]


@contextmanager
def streams(
    spark: SparkSession,
    cluster: MixedCluster,
    operator: Operator,
    source: TopicName,
    folder: Path,
) -> Iterator[Streams]:
    """Let streams read a topic, and copy it to a new one."""
    target = operator.create("copied", PARTITIONS)
    running = Streams(spark, cluster.bootstrap, source, target, folder)
    try:
        yield running
    finally:
        running.stop()
