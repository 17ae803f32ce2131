"""One topic into another by ``dohle.spark.stream``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import dohle.spark
from dohle.testing import Broker
from tests.spark.conftest import NewTopicName
from tests.spark.topics import read, write

_DEADLINE_S = 100


def amount_of(value: bytes | None) -> str:
    order = json.loads(value or b"")
    return str(order["quantity"] * order["price"])


def test_sql_and_python_transform_a_topic(
    spark: SparkSession, broker: Broker, new_topic: NewTopicName, tmp_path: Path
) -> None:
    source, by_sql, by_python = new_topic(), new_topic(), new_topic()
    write(broker, source, b"a", b"b")

    def shout(records: DataFrame) -> DataFrame:
        return records.selectExpr("key", "upper(CAST(value AS STRING)) AS value")

    queries = [
        dohle.spark.stream(
            source,
            by_sql,
            sql="SELECT key, upper(CAST(value AS STRING)) AS value FROM {records}",
            checkpoint=str(tmp_path / "sql"),
            bootstrap=broker.bootstrap,
            stop_at_end=True,
            spark=spark,
        ),
        dohle.spark.stream(
            source,
            by_python,
            transform=shout,
            checkpoint=str(tmp_path / "python"),
            bootstrap=broker.bootstrap,
            stop_at_end=True,
            spark=spark,
        ),
    ]

    for query in queries:
        assert query.awaitTermination(_DEADLINE_S)
    for topic in (by_sql, by_python):
        assert [(one.key, one.value) for one in read(broker, topic)] == [(b"k", b"A"), (b"k", b"B")]


def test_what_a_function_fails_on_goes_to_the_dead_letters(
    spark: SparkSession, broker: Broker, new_topic: NewTopicName, tmp_path: Path
) -> None:
    source, target, dead = new_topic(), new_topic(), new_topic()
    write(broker, source, b'{"quantity": 2, "price": 3}', b"no order", b'{"quantity": 1}')

    query = dohle.spark.stream(
        source,
        target,
        function=amount_of,
        dead_letters=dead,
        checkpoint=str(tmp_path),
        bootstrap=broker.bootstrap,
        stop_at_end=True,
        name="amounts",
        spark=spark,
    )

    assert query.awaitTermination(_DEADLINE_S)
    (good,) = read(broker, target)
    assert (good.key, good.value, good.headers) == (b"k", b"6", (("own", b"1"),))
    first, second = read(broker, dead)
    assert (first.value, second.value) == (b"no order", b'{"quantity": 1}')
    headers = dict(second.headers)
    assert headers["own"] == b"1"
    assert headers["__connect.errors.topic"] == source.encode()
    assert headers["__connect.errors.offset"] == b"2"
    assert headers["__connect.errors.exception.message"] == b"KeyError: 'price'"
    assert headers["__connect.errors.connector.name"] == b"amounts"


def test_a_stream_that_is_said_in_two_ways_or_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="one of sql, transform and function"):
        dohle.spark.stream("a", "b", checkpoint=str(tmp_path))
    with pytest.raises(ValueError, match="one of sql, transform and function"):
        dohle.spark.stream("a", "b", checkpoint=str(tmp_path), sql="SELECT", function=amount_of)
    with pytest.raises(ValueError, match="dead_letters needs function"):
        dohle.spark.stream("a", "b", checkpoint=str(tmp_path), sql="SELECT", dead_letters="c")
    with pytest.raises(ValueError, match="every or stop_at_end"):
        dohle.spark.stream(
            "a", "b", checkpoint=str(tmp_path), sql="SELECT", every="1 second", stop_at_end=True
        )
