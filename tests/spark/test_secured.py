"""Spark reads and writes topics of brokers that want to know who it is, by Kafka's options."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from dohle.testing import Broker

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def secured() -> Iterator[Broker]:
    with Broker(security="SASL_SSL") as running:
        yield running


def test_source_and_sink_log_in_over_tls(spark: SparkSession, secured: Broker) -> None:
    options = {"kafka.bootstrap.servers": secured.bootstrap}
    options |= {f"kafka.{name}": value for name, value in secured.client_properties.items()}
    rows = spark.createDataFrame([("1 coffee",), ("1 tea",)], ["value"])
    rows.write.format("dohle").options(**options).option("topic", "orders").mode("append").save()
    read = spark.read.format("dohle").options(**options).option("subscribe", "orders").load()
    assert sorted(bytes(row.value) for row in read.collect()) == [b"1 coffee", b"1 tea"]
