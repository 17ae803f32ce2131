"""Spark's own connector for Kafka, which knows nothing of dohle, reads and writes its topics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import time

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from pyspark.sql import DataFrame, Row, SparkSession

import dohle.spark
from tests.jvm.conftest import NewName, NewTopic
from tests.jvm.kept import made, need, run
from tests.jvm.oracle import CACHE, HERE

pytestmark = pytest.mark.filterwarnings(
    "ignore:PySpark does not yet fully support pandas:FutureWarning"
)

_POM = HERE / "spark" / "pom.xml"
_CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
_DEADLINE_S = 60
_SERVERS = "kafka.bootstrap.servers"


def _copy_jars(folder: Path) -> None:
    run(
        *("mvn", "-q", "-B", "-f", str(_POM), "dependency:copy-dependencies"),
        *(f"-DoutputDirectory={folder}", "-DincludeScope=runtime"),
    )


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    need("java", "mvn")
    jars = made(CACHE, "spark-connector", [_POM], _copy_jars)
    config = {
        "spark.jars": ",".join(map(str, sorted(jars.glob("*.jar")))),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    session = dohle.spark.session("connector", "local[2]", config)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def written(bootstrap: str, topic: str, partitions: int, records: int) -> list[Message]:
    """Return so many committed records, as confluent-kafka reads them, by partition and offset."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: list[Message] = []
    give_up = time() + _DEADLINE_S
    while len(found) < records and time() < give_up:
        found += consumer.consume(records - len(found), timeout=1)
    consumer.close()
    assert len(found) == records
    assert [message.error() for message in found] == [None] * records
    return sorted(found, key=lambda message: (message.partition(), message.offset()))


def produce(producer: Producer, topic: str, values: list[str], partition: int = 0) -> None:
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(_DEADLINE_S) == 0


def read(spark: SparkSession, bootstrap: str, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("kafka").option(_SERVERS, bootstrap).option("subscribe", topic)
    return reader.options(**options).load()


def values(rows: list[Row]) -> list[str]:
    return [bytes(row.value).decode() for row in rows]


def test_a_batch_write_is_what_another_client_reads(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic(3)
    rows = spark.sql(
        "SELECT CASE WHEN id % 5 = 0 THEN NULL ELSE CAST(id AS STRING) END AS key,"
        " CASE WHEN id % 7 = 0 THEN NULL ELSE concat('value ', id) END AS value,"
        " array(struct('id' AS key, CAST(CAST(id AS STRING) AS BINARY) AS value)) AS headers,"
        " CAST(id % 3 AS INT) AS partition FROM range(100)"
    )

    rows.write.format("kafka").option(_SERVERS, bootstrap).options(
        topic=topic, includeHeaders="true"
    ).save()

    found = written(bootstrap, topic, 3, 100)
    seen = {
        int(dict(message.headers() or [])["id"] or b""): (
            message.key(),
            message.value(),
            message.partition(),
        )
        for message in found
    }
    assert seen == {
        number: (
            None if number % 5 == 0 else b"%d" % number,
            None if number % 7 == 0 else b"value %d" % number,
            number % 3,
        )
        for number in range(100)
    }


def test_a_batch_read_finds_every_codec_with_keys_headers_and_nulls(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    began_ms = int(time() * 1000)
    for codec in _CODECS:
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec})
        for number in range(50):
            producer.produce(
                topic,
                None if number % 7 == 0 else f"{codec} {number} " * 5,
                None if number % 3 == 0 else codec,
                headers=[("codec", codec), ("null", None)],
                partition=0,
                timestamp=began_ms + number,
            )
        assert producer.flush(_DEADLINE_S) == 0

    rows = read(spark, bootstrap, topic, includeHeaders="true").orderBy("offset").collect()

    assert [row.offset for row in rows] == list(range(250))
    for row in rows:
        codec, number = _CODECS[row.offset // 50], row.offset % 50
        assert row.value == (None if number % 7 == 0 else f"{codec} {number} ".encode() * 5)
        assert row.key == (None if number % 3 == 0 else codec.encode())
        assert [(one.key, one.value) for one in row.headers] == [
            ("codec", codec.encode()),
            ("null", None),
        ]
        assert (row.topic, row.partition, row.timestampType) == (topic, 0, 0)
        assert round(row.timestamp.timestamp() * 1000) == began_ms + number


def test_a_batch_read_begins_and_ends_where_it_is_told(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    producer = Producer({"bootstrap.servers": bootstrap})
    began_ms = int(time() * 1000) - 1000
    for number in range(20):
        producer.produce(topic, str(number), partition=0, timestamp=began_ms + number)
    assert producer.flush(_DEADLINE_S) == 0

    by_offset = read(
        spark,
        bootstrap,
        topic,
        startingOffsets=f'{{"{topic}": {{"0": 5}}}}',
        endingOffsets=f'{{"{topic}": {{"0": 9}}}}',
    )
    by_time = read(
        spark,
        bootstrap,
        topic,
        startingTimestamp=str(began_ms + 12),
        endingTimestamp=str(began_ms + 15),
    )

    assert sorted(values(by_offset.collect()), key=int) == ["5", "6", "7", "8"]
    assert sorted(values(by_time.collect()), key=int) == ["12", "13", "14"]


def test_one_partition_is_read_by_several_tasks(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    produce(Producer({"bootstrap.servers": bootstrap}), topic, [str(n) for n in range(1000)])

    rows = read(spark, bootstrap, topic, minPartitions="4")

    assert rows.rdd.getNumPartitions() == 4
    assert sorted(map(int, values(rows.collect()))) == list(range(1000))


def test_a_stream_goes_on_from_its_checkpoint(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    source, target = new_topic(2), new_topic(1)
    producer = Producer({"bootstrap.servers": bootstrap})
    for rounds in range(2):
        for partition in range(2):
            mine = [f"{rounds}.{partition}.{number}" for number in range(20)]
            produce(producer, source, mine, partition)
        query = (
            spark.readStream.format("kafka")
            .option(_SERVERS, bootstrap)
            .options(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="15")
            .load()
            .selectExpr("key", "upper(CAST(value AS STRING)) AS value")
            .writeStream.format("kafka")
            .option(_SERVERS, bootstrap)
            .options(topic=target, checkpointLocation=str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(_DEADLINE_S)
        assert query.exception() is None

    found = written(bootstrap, target, 1, 80)
    assert sorted(message.value() or b"" for message in found) == sorted(
        b"%d.%d.%d" % (rounds, partition, number)
        for rounds in range(2)
        for partition in range(2)
        for number in range(20)
    )


def test_a_running_stream_sees_records_that_come_later(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    first = new_topic(1)
    pattern = f"{first}.*"
    producer = Producer({"bootstrap.servers": bootstrap})
    produce(producer, first, ["before"])
    query = (
        spark.readStream.format("kafka")
        .option(_SERVERS, bootstrap)
        .options(subscribePattern=pattern, startingOffsets="earliest")
        .load()
        .selectExpr("CAST(value AS STRING) AS value")
        .writeStream.format("memory")
        .queryName("seen")
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        query.processAllAvailable()
        produce(producer, first, ["after"])
        query.processAllAvailable()
        seen = spark.sql("SELECT value FROM seen").collect()
    finally:
        query.stop()

    assert [row.value for row in seen] == ["before", "after"]


def test_a_read_committed_reader_leaves_aborted_records_out(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, new_name: NewName
) -> None:
    topic = new_topic(1)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": new_name("id")})
    producer.init_transactions(_DEADLINE_S)
    for number in range(6):
        producer.begin_transaction()
        produce(producer, topic, [f"{number}.{each}" for each in range(3)])
        if number % 2:
            producer.abort_transaction(_DEADLINE_S)
        else:
            producer.commit_transaction(_DEADLINE_S)

    option = {"kafka.isolation.level": "read_committed"}
    committed = read(spark, bootstrap, topic, **option).orderBy("offset").collect()
    everything = read(spark, bootstrap, topic).collect()

    assert values(committed) == [f"{n}.{each}" for n in (0, 2, 4) for each in range(3)]
    assert len(everything) == 18
