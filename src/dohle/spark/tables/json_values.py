"""JSON values into typed columns, by Spark's own parser.

A record is good if its value is one JSON object, every field of the schema that is in it has the
schema's type, and no column that must not be null is missing. Fields that are not in the schema are
ignored. Only for bad records, Python finds out what is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, types
from pyspark.sql import functions as f

from dohle.spark.tables.columns import TableError, arrow_schema
from dohle.spark.tables.decoding import (
    ERROR,
    NO_VALUE,
    Decoded,
    Kept,
    Tombstones,
    check_records,
    kept_columns,
    without_tombstones,
)

_CORRUPT = "_dohle_corrupt"
_PARSED = "_dohle_parsed"
_TEXT = "_dohle_text"
_SAMPLE_ROWS = 10_000
_STRICT = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
}


def decode_json(
    records: DataFrame,
    schema: types.StructType | str | None = None,
    *,
    keep: Kept = (),
    tombstones: Tombstones = Tombstones.REFUSE,
) -> Decoded:
    """Decode the JSON objects in ``value``.

    ``schema`` is Spark's, or its text as in ``"id LONG NOT NULL, name STRING"``. Without one it is
    inferred from the records; for a stream that must be done before (``infer_json_schema``).
    ``keep`` names columns of the record to keep: ``["offset"]``, or ``{"offset": "at"}`` to rename.
    """
    check_records(records, types.BinaryType, types.StringType)
    if schema is None:
        if records.isStreaming:
            raise TableError(
                "a stream has no records yet to infer a schema from: give one, or call "
                "infer_json_schema with a batch read of the topic"
            )
        schema = infer_json_schema(records)
    fields = _from_text(schema) if isinstance(schema, str) else schema
    arrow_schema(fields)
    kept = kept_columns(keep, records, fields)
    records = without_tombstones(records, tombstones)
    parsed = _parsed(records, fields)
    good = _is_good(fields)
    rows = parsed.where(good).select(*(_field(field.name) for field in fields), *kept)
    bad = parsed.where(~good).select(*(f.col(f"`{name}`") for name in records.columns))
    explained = types.StructType([*bad.schema, types.StructField(ERROR, types.StringType())])
    return Decoded(rows, bad.mapInArrow(_Explain(fields.json()), explained))


def infer_json_schema(records: DataFrame, sample_rows: int = _SAMPLE_ROWS) -> types.StructType:
    """Infer the schema from the first records' JSON objects; other values are ignored."""
    check_records(records, types.BinaryType, types.StringType)
    text = records.select(f.col("value").cast("string").alias("value"))
    sample = text.where(_is_one_object(f.col("value"))).limit(sample_rows)
    found = records.sparkSession.read.options(**_STRICT).json(sample)
    fields = [field for field in found.schema if field.name != _CORRUPT]
    if not fields:
        raise TableError("there are no JSON objects to infer a schema from: give a schema")
    return types.StructType(fields)


def _from_text(text: str) -> types.StructType:
    found = types.StructType.fromDDL(text)
    if not isinstance(found, types.StructType):
        raise TableError(f"a schema lists columns, as in 'id LONG, name STRING'; not {text!r}")
    return found


def _parsed(records: DataFrame, fields: types.StructType) -> DataFrame:
    text = f.col("value").cast("string")
    usable = f.when(f.is_valid_utf8(text) & _is_one_object(text), text)
    corrupt = types.StructField(_CORRUPT, types.StringType())
    parsed = f.from_json(f.col(_TEXT), types.StructType([*fields, corrupt]), _STRICT)
    # Exploding an array of one element keeps the optimizer from parsing twice, for the filter and
    # for the columns: it pushes filters below projections, but not below this.
    once = f.explode(f.array(parsed)).alias(_PARSED)
    return records.withColumn(_TEXT, usable).select("*", once)


def _is_one_object(text: Column) -> Column:
    # Spark's parser takes the first object of an array, and ignores what follows an object. So if
    # there is a closing brace before the last one, the values are counted.
    is_flat = text.rlike(r"\A\s*+\{[^}]*+\}\s*+\z")
    from_brace_to_brace = text.rlike(r"(?s)\A\s*+\{.*\}\s*+\z")
    values = f.json_array_length(f.concat(f.lit("["), text, f.lit("]")))
    return is_flat | (from_brace_to_brace & (f.coalesce(values, f.lit(0)) == 1))


def _is_good(fields: types.StructType) -> Column:
    whole = f.col(_PARSED).isNotNull() & f.col(_PARSED)[_CORRUPT].isNull()
    return reduce(
        lambda good, name: good & _field(name).isNotNull(),
        (field.name for field in fields if not field.nullable),
        whole,
    )


def _field(name: str) -> Column:
    return f.col(_PARSED)[name].alias(name)


@dataclass(frozen=True, slots=True)
class _Explain:
    """Says for each record what is wrong with it."""

    schema: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        fields = types.StructType.fromJson(json.loads(self.schema))
        for batch in batches:
            values = batch.column("value").to_pylist()
            reasons = pa.array([explain(value, fields) for value in values], pa.string())
            yield batch.append_column(ERROR, reasons)


def explain(value: bytes | str | None, fields: types.StructType) -> str:
    """Say why a value is not a JSON object with these fields."""
    if value is None:
        return NO_VALUE
    try:
        found = json.loads(value if isinstance(value, str) else value.decode())
    except UnicodeDecodeError as error:
        return f"not UTF-8: {error.reason} at byte {error.start}"
    except (ValueError, RecursionError) as error:
        return f"not JSON: {error}"
    if not isinstance(found, dict):
        return f"a JSON object is expected, not {_json_name(found)}"
    for field in fields:
        inside = found.get(field.name)
        if inside is None:
            if not field.nullable:
                missing = "null" if field.name in found else "missing"
                return f"field {field.name!r} is {missing}"
        elif not _fits(inside, field.dataType):
            wanted = field.dataType.simpleString()
            return f"field {field.name!r} is {_json_name(inside)}, which is not {wanted}"
    return f"not {fields.simpleString()}"


def _fits(value: Any, kind: types.DataType) -> bool:
    match kind:
        case types.BooleanType():
            return isinstance(value, bool)
        case types.IntegralType():
            return isinstance(value, int) and not isinstance(value, bool) and _in_range(value, kind)
        case types.FractionalType():
            return isinstance(value, int | float | str) and not isinstance(value, bool)
        case types.DateType() | types.TimestampType() | types.TimestampNTZType():
            # Only Spark can tell whether the text is a valid one.
            return isinstance(value, str) and not value.isspace() and any(map(str.isdigit, value))
        case types.ArrayType():
            return isinstance(value, list)
        case types.StructType() | types.MapType():
            return isinstance(value, dict)
    return True


def _in_range(value: int, kind: types.IntegralType) -> bool:
    sizes = {types.ByteType: 7, types.ShortType: 15, types.IntegerType: 31}
    limit = 1 << sizes.get(type(kind), 63)
    return -limit <= value < limit


def _json_name(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return "a string"
        case int() | float():
            return f"the number {value}"
        case list():
            return "an array"
    return "an object"
