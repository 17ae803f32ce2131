"""Avro schemas: loaded from text or file, and their types in Spark.

Logical types without a counterpart in Spark count as their underlying types, as Avro requires of
readers. A union must be a type and null; other unions fit no column and are refused, as are
recursive types.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pyspark.sql import types

from dohle.spark.tables.columns import TableError

AvroSchema = str | os.PathLike[str] | Mapping[str, Any]

_PLAIN: dict[str, types.DataType] = {
    "boolean": types.BooleanType(),
    "int": types.IntegerType(),
    "long": types.LongType(),
    "float": types.FloatType(),
    "double": types.DoubleType(),
    "bytes": types.BinaryType(),
    "fixed": types.BinaryType(),
    "string": types.StringType(),
    "enum": types.StringType(),
}
_LOGICAL: dict[str, types.DataType] = {
    "date": types.DateType(),
    "timestamp-millis": types.TimestampType(),
    "timestamp-micros": types.TimestampType(),
    "local-timestamp-millis": types.TimestampNTZType(),
    "local-timestamp-micros": types.TimestampNTZType(),
}
_DECIMAL = "decimal"
_DECIMAL_PRECISION_MAX = 38


def load_avro_schema(schema: AvroSchema) -> dict[str, Any]:
    """Return a record's schema, given as JSON text, the name of a file, or a dict."""
    if find_spec("fastavro") is None:
        raise TableError("Avro needs the package fastavro: pip install dohle[tables]")
    if isinstance(schema, Mapping):
        loaded: Any = dict(schema)
    else:
        text = os.fspath(schema)
        if not text.lstrip().startswith("{"):
            text = Path(text).read_text()
        loaded = json.loads(text)
    if not isinstance(loaded, dict) or loaded.get("type") != "record":
        raise TableError("the Avro schema of a topic's values must be a record")
    known: dict[str, Any] = _known_logical_types(loaded)
    return known


def spark_schema(schema: Mapping[str, Any]) -> types.StructType:
    """Return the columns of a record."""
    from fastavro.schema import expand_schema

    expanded: Any = expand_schema(json.loads(json.dumps(schema)))
    return _record(expanded)


def _known_logical_types(node: Any) -> Any:
    if isinstance(node, list):
        return [_known_logical_types(item) for item in node]
    if not isinstance(node, dict):
        return node
    logical = node.get("logicalType")
    is_known = logical in _LOGICAL or logical == _DECIMAL
    return {
        name: _known_logical_types(item) if name in ("type", "items", "values", "fields") else item
        for name, item in node.items()
        if name != "logicalType" or is_known
    }


def _record(node: Mapping[str, Any]) -> types.StructType:
    return types.StructType(
        [types.StructField(field["name"], _type(field["type"])) for field in node["fields"]]
    )


def _type(node: Any) -> types.DataType:
    if isinstance(node, list):
        others = [item for item in node if item != "null"]
        if len(others) != 1:
            raise TableError(f"no column holds the Avro union {json.dumps(node)}")
        return _type(others[0])
    if isinstance(node, str):
        if node not in _PLAIN:
            raise TableError(f"no column holds the Avro type {node}, if it contains itself")
        return _PLAIN[node]
    match node["type"]:
        case "record":
            return _record(node)
        case "array":
            return types.ArrayType(_type(node["items"]))
        case "map":
            return types.MapType(types.StringType(), _type(node["values"]))
        case dict() | list() as inner:
            return _type(inner)
    logical = node.get("logicalType")
    if logical == _DECIMAL:
        return _decimal(node)
    return _LOGICAL.get(logical) or _type(node["type"])


def _decimal(node: Mapping[str, Any]) -> types.DecimalType:
    precision = int(node["precision"])
    if precision > _DECIMAL_PRECISION_MAX:
        raise TableError(f"{precision} digits are too many for Spark's decimals")
    return types.DecimalType(precision, int(node.get("scale", 0)))
