"""Records that cannot be read, and what becomes of them."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from dohle.spark.dead_letters import attempt, dead_letters, parse_json, valid

_SCHEMA = "id int, name string"
_COLUMNS = (
    "key binary, value binary, topic string, partition int, offset long,"
    " headers array<struct<key: string, value: binary>>"
)
_VALUES = [b'{"id": 1, "name": "a"}', b"{", b'{"id": "x", "name": "b"}', None, b'{"name": "c"}']


@pytest.fixture(scope="module")
def records(spark: SparkSession) -> DataFrame:
    rows = [
        (b"k%d" % offset, value, "orders", 2, offset, [("own", b"%d" % offset)])
        for offset, value in enumerate(_VALUES)
    ]
    return spark.createDataFrame(rows, _COLUMNS).coalesce(1).cache()


def errors(tried: DataFrame) -> dict[int, str | None]:
    return {row.offset: row.error for row in tried.select("offset", "error").collect()}


def test_values_that_are_not_json_of_the_schema_have_an_error(records: DataFrame) -> None:
    tried = parse_json(records, _SCHEMA, {"no id": "data.id > 0"})

    wrong = f"the value is not JSON of the schema {_SCHEMA}"
    assert errors(tried) == {0: None, 1: wrong, 2: wrong, 3: "there is no value", 4: "no id"}
    (good,) = valid(tried).select("data.*").collect()
    assert good == Row(id=1, name="a")


def test_what_a_function_raises_is_the_error(records: DataFrame) -> None:
    def name_of(value: bytes | None) -> tuple[str]:
        return (json.loads(value or b"null")["name"],)

    tried = attempt(records, name_of, "name string")

    found = errors(tried)
    assert found[0] is found[4] is found[2] is None
    assert found[1] is not None
    assert found[1].startswith("JSONDecodeError: ")
    assert found[3] == "TypeError: 'NoneType' object is not subscriptable"
    assert {row.name for row in valid(tried).select("data.name").collect()} == {"a", "b", "c"}


def test_a_dead_letter_says_why_and_where_it_came_from(records: DataFrame) -> None:
    letters = dead_letters(parse_json(records, _SCHEMA), pipeline="shop").collect()

    assert {bytes(row.key): row.value for row in letters} == {
        b"k1": b"{",
        b"k2": b'{"id": "x", "name": "b"}',
        b"k3": None,
    }
    last = next(row for row in letters if row.value is None)
    assert [(one.key, bytes(one.value)) for one in last.headers] == [
        ("own", b"3"),
        ("__connect.errors.topic", b"orders"),
        ("__connect.errors.partition", b"2"),
        ("__connect.errors.offset", b"3"),
        ("__connect.errors.exception.message", b"there is no value"),
        ("__connect.errors.connector.name", b"shop"),
    ]


def test_records_without_headers_make_letters_too(records: DataFrame) -> None:
    tried = parse_json(records.drop("headers"), _SCHEMA)

    letters = dead_letters(tried, has_headers=False).collect()

    assert {len(row.headers) for row in letters} == {4}
