"""What the cases are measured on: one broker, one Spark session with both formats, and topics.

The topics to be read are filled by Spark's own connector, so their batches are those that Kafka's
Java producer makes. What a case writes goes into a new topic or folder, which is gone after it.
"""

from __future__ import annotations

import os
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

import dohle.spark
from bench.processes import folder
from bench.spark.figures import CONNECTOR
from bench.versus.servers import dohle as dohle_server
from bench.versus.topics import create_topic
from dohle.client import Admin, Cluster, run

PARTITIONS = 4
MASTER = "local[2]"
_SERVERS = "kafka.bootstrap.servers"
_DEADLINE_S = 300
_BROKER = {"log.retention.ms": "-1", "log.segment.delete.delay.ms": "1000"}
_WORDS = ("offset", "topic", "broker", "leader", "epoch", "batch", "record", "segment", "index")
#: What one word with its number takes in a value, at least.
_WORD_BYTES = 12


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that was filled."""

    name: str
    rows: int


@dataclass(frozen=True, slots=True)
class Streamed:
    """What a query tells of the batches that had rows."""

    rows: tuple[int, ...]
    ms: tuple[int, ...]


@dataclass(slots=True)
class Field:
    """The broker, the session, and a folder."""

    address: str
    spark: SparkSession
    path: Path
    #: What was found in each topic, to be the same whoever reads.
    digests: dict[str, tuple[int, int]] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=count)

    def fill(self, name: str, rows: int, size: int, codec: str) -> Topic:
        """Make a topic with rows of a size."""
        create_topic(self.address, name, PARTITIONS)
        frame = self.spark.range(0, rows, 1, PARTITIONS).selectExpr(
            f"CAST(id % {PARTITIONS} AS INT) AS partition",
            "CAST(id AS STRING) AS key",
            f"substring({_text(size)}, 1, {size}) AS value",
        )
        writer = frame.write.format(CONNECTOR).option(_SERVERS, self.address).option("topic", name)
        writer.option("kafka.compression.type", codec).option("kafka.linger.ms", "5").save()
        return Topic(name, rows)

    def read(self, kind: str, topic: str, **options: str) -> DataFrame:
        """Read a topic, all of it."""
        reader = self.spark.read.format(kind).option(_SERVERS, self.address)
        return reader.option("subscribe", topic).options(**options).load()

    def read_stream(self, kind: str, topic: Topic, batch_rows: int) -> DataFrame:
        """Read a topic from its beginning, by batches of so many rows."""
        reader = self.spark.readStream.format(kind).option(_SERVERS, self.address)
        options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(batch_rows)}
        return reader.option("subscribe", topic.name).options(**options).load()

    def write(self, kind: str, rows: DataFrame, topic: str, **options: str) -> None:
        """Write rows to a topic."""
        writer = rows.write.format(kind).mode("append").option(_SERVERS, self.address)
        writer.option("topic", topic).options(**options).save()

    def stream_to(self, writer: DataStreamWriter, kind: str, topic: str) -> DataStreamWriter:
        """Let a stream write to a topic."""
        return writer.format(kind).option(_SERVERS, self.address).option("topic", topic)

    @contextmanager
    def new_topic(self) -> Iterator[str]:
        """Make an empty topic, and delete it."""
        name = f"written-{next(self._numbers)}"
        create_topic(self.address, name, PARTITIONS)
        try:
            yield name
        finally:
            run(self._delete(name))

    async def _delete(self, name: str) -> None:
        async with Cluster(self.address) as cluster:
            (await Admin(cluster).delete_topics([name])).ok()

    @contextmanager
    def new_folder(self) -> Iterator[Path]:
        """Name a folder that is not there, and delete it."""
        path = self.path / f"folder-{next(self._numbers)}"
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def check_written(self, topic: str, rows: int) -> None:
        """See that so many rows are there, for those who read what is committed."""
        committed = {"kafka.isolation.level": "read_committed"}
        found = self.read(CONNECTOR, topic, **committed).count()
        if found != rows:
            raise RuntimeError(f"{found} rows were written instead of {rows}")


def _text(size: int) -> str:
    """Return SQL for a text that codecs can make a third to a half of, as JSON is."""
    hashes = ", ".join(f"sha2(concat(id, '.{number}'), 512)" for number in range(1 + size // 512))
    words = ", ".join(f"'{word}'" for word in _WORDS)
    more = (
        f"transform(sequence(1, {size // _WORD_BYTES}), number -> concat(', \"', element_at(array("
        f"{words}), 1 + number % {len(_WORDS)}), '\": ', abs(hash(id, number)) % 10000))"
    )
    key = f"substring(concat({hashes}), 1, {size // 4})"
    return f"concat('{{\"id\": ', id, ', \"key\": \"', {key}, '\"', concat_ws('', {more}))"


def seconds(work: Callable[[], object]) -> float:
    """Return how long it takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def streamed(query: StreamingQuery) -> Streamed:
    """Wait for the end of a query, and return what it tells."""
    if not query.awaitTermination(_DEADLINE_S):
        query.stop()
        raise TimeoutError(f"a query did not end within {_DEADLINE_S} s")
    told = [each for each in query.recentProgress if each.numInputRows]
    return Streamed(
        tuple(each.numInputRows for each in told),
        tuple(each.durationMs["triggerExecution"] for each in told),
    )


@contextmanager
def open_field(jars: Sequence[Path]) -> Iterator[Field]:
    """Start the broker and Spark."""
    # What pyspark thinks of the installed pandas matters to nobody here; and Python compiles its
    # modules once, as Java programs come compiled.
    warnings.simplefilter("ignore")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with folder() as path, dohle_server(_BROKER) as server:
        config = {
            "spark.driver.memory": "2g",
            "spark.jars": ",".join(map(str, jars)),
            "spark.local.dir": f"{path}/local",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": f"{path}/warehouse",
        }
        spark = dohle.spark.session("bench", MASTER, config)
        spark.sparkContext.setLogLevel("ERROR")
        try:
            yield Field(server.address, spark, Path(path))
        finally:
            spark.stop()
