"""Values into typed columns: what is good, what is bad and why, for JSON and Avro."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyspark.sql import DataFrame, SparkSession

from dohle.spark.tables import (
    TableError,
    Tombstones,
    decode_avro,
    decode_json,
    infer_json_schema,
    records_of,
)

_COLUMNS = "key binary, value binary, topic string, partition int, offset long"
_JSON = "id LONG NOT NULL, name STRING, inner STRUCT<x: INT>, list ARRAY<INT>, at TIMESTAMP"
_AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
        },
        {"name": "color", "type": {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}},
        {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
        {
            "name": "from",
            "type": {
                "type": "record",
                "name": "Address",
                "fields": [{"name": "zip", "type": "string"}],
            },
        },
        {"name": "to", "type": ["null", "Address"]},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "time", "type": {"type": "int", "logicalType": "time-millis"}},
    ],
}
_ORDER: dict[str, Any] = {
    "id": 7,
    "name": None,
    "at": datetime(2026, 2, 3, 4, 5, 6, 789_000, tzinfo=UTC),
    "local": datetime(2026, 2, 3, 4, 5, 6, 7),
    "day": date(2026, 2, 3),
    "price": Decimal("12.30"),
    "color": "BLUE",
    "uuid": "8a4f",
    "tags": ["a", "b"],
    "counts": {"x": 1},
    "from": {"zip": "10115"},
    "to": {"zip": "20095"},
    "hash": b"\x00\xff",
    "time": 1000,
}


def _records(spark: SparkSession, values: Sequence[bytes | None]) -> DataFrame:
    rows = [(b"k", value, "orders", 3, offset) for offset, value in enumerate(values)]
    return spark.createDataFrame(rows, _COLUMNS).coalesce(1)


def _avro(datum: dict[str, Any], schema: dict[str, Any] = _AVRO) -> bytes:
    target = BytesIO()
    fastavro.schemaless_writer(target, json.loads(json.dumps(schema)), datum)
    return target.getvalue()


def test_json_becomes_columns_and_each_bad_record_says_why(spark: SparkSession) -> None:
    good = {
        b'{"id":1, "name":"a", "inner":{"x":2}, "list":[1, 2], "at":"2026-01-01T00:00:00Z"}': 1,
        b' {"id": 2, "unknown": 1}\n': 2,
        b'{"id": 3, "name": "}{", "list": null}': 3,
        b'{"id": 4, "name": 5}': 4,
    }
    bad = {
        None: "the record has no value",
        b"": "not JSON: Expecting value",
        b"null": "a JSON object is expected, not null",
        b'[{"id": 1}]': "a JSON object is expected, not an array",
        b'{"id": 1} {"id": 2}': "not JSON: Extra data",
        b'{"id": 1, "inner": {}},{"id": 2}': "not JSON: Extra data",
        b'{"id": 1} rest': "not JSON: Extra data",
        b'{"id": 1': "not JSON: Expecting ',' delimiter",
        b"{'id': 1}": "not JSON: Expecting property name",
        b"\xff\xfe": "not UTF-8: invalid start byte at byte 0",
        b'{"id": 1, "name": "\xff"}': "not UTF-8: invalid start byte at byte 19",
        b"{}": "field 'id' is missing",
        b'{"id": null}': "field 'id' is null",
        b'{"id": "1"}': "field 'id' is a string, which is not bigint",
        b'{"id": 1.5}': "field 'id' is the number 1.5, which is not bigint",
        b'{"id": 9223372036854775808}': "field 'id' is the number 9223372036854775808",
        b'{"id": true}': "field 'id' is true, which is not bigint",
        b'{"id": 1, "inner": 3}': "field 'inner' is the number 3, which is not struct<x:int>",
        b'{"id": 1, "inner": {"x": "y"}}': "not struct<id:bigint",
        b'{"id": 1, "list": [1, "b"]}': "not struct<id:bigint",
        b'{"id": 1, "at": "yesterday"}': "field 'at' is a string, which is not timestamp",
    }
    records = _records(spark, [*good, *bad])

    decoded = decode_json(records, _JSON, keep={"offset": "record_offset"})

    rows = decoded.rows.collect()
    assert decoded.rows.columns == ["id", "name", "inner", "list", "at", "record_offset"]
    assert [row.id for row in rows] == list(good.values())
    assert [row.record_offset for row in rows] == [0, 1, 2, 3]
    assert (rows[0].inner.x, rows[0].list, rows[0].name) == (2, [1, 2], "a")
    refused = decoded.bad.collect()
    assert decoded.bad.columns == [*records.columns, "error"]
    for row, (value, reason) in zip(refused, bad.items(), strict=True):
        assert row.error.startswith(reason), (value, row.error)
        assert (row.key, row.value, row.topic, row.partition) == (b"k", value, "orders", 3)
    assert [row.offset for row in refused] == list(range(len(good), len(good) + len(bad)))


def test_a_schema_is_inferred_from_the_json_objects_of_a_batch(spark: SparkSession) -> None:
    values = [b'{"id": 1, "inner": {"x": 1.5}}', b"rubbish", b'{"id": 2, "tags": ["a"]}', None]
    records = _records(spark, values)

    assert infer_json_schema(records).simpleString() == (
        "struct<id:bigint,inner:struct<x:double>,tags:array<string>>"
    )
    decoded = decode_json(records, tombstones=Tombstones.DROP)

    assert [row.id for row in decoded.rows.collect()] == [1, 2]
    assert [row.value for row in decoded.bad.collect()] == [b"rubbish"]


def test_a_schema_that_cannot_be_is_refused(spark: SparkSession) -> None:
    records = _records(spark, [b"no JSON at all"])

    with pytest.raises(TableError, match="no JSON objects"):
        infer_json_schema(records)
    with pytest.raises(TableError, match="'offset' is a field of the value as well"):
        decode_json(records, "offset LONG", keep=["offset"])
    with pytest.raises(TableError, match="no columns of type interval"):
        decode_json(records, "a INTERVAL DAY")
    with pytest.raises(TableError, match="have a column 'value'"):
        decode_json(records.drop("value"), "a INT")
    with pytest.raises(TableError, match="give one"):
        decode_json(spark.readStream.format("rate").load().selectExpr("cast(value as string)"))
    with pytest.raises(TableError, match="not binary"):
        decode_avro(records.selectExpr("cast(value as string)"), _AVRO)


def test_avro_becomes_columns_and_back_and_each_bad_record_says_why(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = tmp_path / "order.avsc"
    schema.write_text(json.dumps(_AVRO))
    datum = _avro(_ORDER)
    bad = {
        datum[:-1]: "not Avro of this schema: it ends too early",
        datum + b"x": "not Avro of this schema: 1 bytes are left after the datum",
        b"": "not Avro of this schema: it ends too early",
        b"\x02" * 5: "not Avro of this schema",
        None: "the record has no value",
    }

    decoded = decode_avro(_records(spark, [datum, *bad]), schema, keep=["offset"])

    (row,) = decoded.rows.collect()
    found = row.asDict(recursive=True)
    assert found.pop("offset") == 0
    instant = decoded.rows.selectExpr("unix_micros(at)").collect()[0][0]
    assert instant == int(_ORDER["at"].timestamp() * 1000) * 1000
    assert {**found, "at": None} == {**_ORDER, "at": None}
    for refused, (value, reason) in zip(decoded.bad.collect(), bad.items(), strict=True):
        assert (refused.value, refused.topic, refused.partition) == (value, "orders", 3)
        assert refused.error.startswith(reason), refused.error
    (again,) = records_of(decoded.rows, key="id", avro=_AVRO, schema_id=9).collect()
    assert (again.key, again.value) == (b"7", b"\x00\x00\x00\x00\x09" + datum)


def test_framed_avro_is_read_with_the_schema_it_was_written_with(spark: SparkSession) -> None:
    old = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    added = {"name": "b", "type": "string", "default": "none"}
    new = {**old, "fields": [{"name": "a", "type": "long"}, added]}
    values = [
        b"\x00\x00\x00\x00\x01" + _avro({"a": 1}, old),
        b"\x00\x00\x00\x00\x02" + _avro({"a": 2, "b": "x"}, new),
        b"\x00\x00\x00\x00\x03" + _avro({"a": 3}, old),
        _avro({"a": 4}, old),
    ]

    decoded = decode_avro(_records(spark, values), new, writer_schemas={1: old, 2: new})

    assert [tuple(row) for row in decoded.rows.collect()] == [(1, "none"), (2, "x")]
    assert [row.error for row in decoded.bad.collect()] == [
        "not Avro of this schema: schema 3 is not among the given writer_schemas",
        "not Avro of this schema: the value is not framed: it does not begin with a zero byte and "
        "an id",
    ]


def test_avro_that_no_column_holds_is_refused(spark: SparkSession) -> None:
    def record(kind: object) -> dict[str, Any]:
        return {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}

    records = _records(spark, [])

    with pytest.raises(TableError, match="the Avro union"):
        decode_avro(records, record(["int", "string"]))
    with pytest.raises(TableError, match="contains itself"):
        decode_avro(records, record(["null", "R"]))
    with pytest.raises(TableError, match="must be a record"):
        decode_avro(records, {"type": "string"})
    with pytest.raises(TableError, match="no column for the fields a"):
        records_of(records, avro=record("int"))
