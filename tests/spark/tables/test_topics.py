"""Topic to table and back, with the broker: dead letters, restarts and backfills."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from dohle.spark.dead_letters import dead_letters
from dohle.spark.tables import backfill, decode_json, read_table, write_stream
from dohle.testing import Broker
from tests.spark.conftest import NewTopicName


def _read(spark: SparkSession, broker: Broker, topic: str) -> DataFrame:
    reader = spark.read.format("dohle").option("kafka.bootstrap.servers", broker.bootstrap)
    return reader.option("subscribe", topic).option("includeHeaders", "true").load()


def test_a_topic_becomes_a_table_and_the_table_a_topic(
    spark: SparkSession, broker: Broker, new_topic: NewTopicName, tmp_path: Path
) -> None:
    source, letters, target = new_topic(partitions=2), new_topic(), new_topic(partitions=2)
    orders = [{"id": id_, "name": f"n{id_}"} for id_ in range(20)]
    values = [json.dumps(order).encode() for order in orders]
    rows = [(str(i).encode(), value) for i, value in enumerate([*values, b"rubbish"])]
    servers = {"kafka.bootstrap.servers": broker.bootstrap}
    records = spark.createDataFrame(rows, "key binary, value binary").coalesce(1)
    records.write.format("dohle").options(**servers, topic=source).mode("append").save()
    stream = spark.readStream.format("dohle").options(
        **servers, subscribe=source, startingOffsets="earliest", includeHeaders="true"
    )

    decoded = decode_json(stream.load(), "id LONG NOT NULL, name STRING", keep=["offset"])
    for_table = write_stream(
        decoded.rows,
        "delta",
        tmp_path / "table",
        checkpoint=tmp_path / "rows",
        trigger={"availableNow": True},
    )
    for_letters = (
        dead_letters(decoded.bad)
        .writeStream.format("dohle")
        .options(**servers, topic=letters, checkpointLocation=str(tmp_path / "letters"))
        .trigger(availableNow=True)
        .start()
    )
    for_table.awaitTermination()
    for_letters.awaitTermination()
    table = read_table(spark, "delta", tmp_path / "table").drop("offset")
    backfill(table, target, bootstrap_servers=broker.bootstrap, key="id")

    assert sorted((row.id, row.name) for row in table.collect()) == [
        (order["id"], order["name"]) for order in orders
    ]
    (letter,) = _read(spark, broker, letters).collect()
    headers = {header.key: header.value for header in letter.headers}
    assert letter.value == b"rubbish"
    assert headers["__connect.errors.topic"] == source.encode()
    assert headers["__connect.errors.exception.message"].startswith(b"not JSON")
    copies = sorted(_read(spark, broker, target).collect(), key=lambda row: int(row.key))
    assert [(int(row.key), json.loads(row.value)) for row in copies] == [
        (order["id"], order) for order in orders
    ]
