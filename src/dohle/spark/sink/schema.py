"""The columns of a write: those of Spark's Kafka sink, and the timestamp.

Columns with other names are ignored, so that what was read from a topic can be written to another
one unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from dohle.spark.options import OptionError

_COLUMNS: dict[str, tuple[type[DataType], ...]] = {
    "key": (StringType, BinaryType),
    "value": (StringType, BinaryType),
    "topic": (StringType,),
    "partition": (IntegerType,),
    "timestamp": (TimestampType, TimestampNTZType),
}
_HEADERS = "headers"


class WrongSchema(ValueError):
    """The rows cannot be written as records."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The index of each column among those of the rows; None if it is missing."""

    value: int
    key: int | None
    topic: int | None
    partition: int | None
    headers: int | None
    timestamp: int | None


def find_columns(schema: StructType, topic: str | None) -> Columns:
    """Find the columns to write, or raise what is wrong with them."""
    places = {name: place for place, name in enumerate(schema.fieldNames())}
    if "value" not in places:
        raise WrongSchema(
            f"rows need a column value, and have {', '.join(places) or 'none'}: make one of them, "
            'say by selectExpr("to_json(struct(*)) AS value")'
        )
    for name, types in _COLUMNS.items():
        if name in places and not isinstance(schema[name].dataType, types):
            _refuse(schema, name, " or ".join(each.typeName() for each in types))
    if _HEADERS in places and not _are_headers(schema[_HEADERS].dataType):
        _refuse(schema, _HEADERS, "array<struct<key:string,value:binary>>")
    if topic is None and "topic" not in places:
        raise OptionError("rows have no column topic: add one, or set the option topic")
    return Columns(
        places["value"],
        *(places.get(name) for name in ("key", "topic", "partition", _HEADERS, "timestamp")),
    )


def _are_headers(found: DataType) -> bool:
    if not isinstance(found, ArrayType) or not isinstance(found.elementType, StructType):
        return False
    fields = [(each.name, type(each.dataType)) for each in found.elementType.fields]
    return fields == [("key", StringType), ("value", BinaryType)]


def _refuse(schema: StructType, name: str, wanted: str) -> None:
    found = schema[name].dataType.simpleString()
    raise WrongSchema(f"column {name} is {found}, and must be {wanted}: cast it")
