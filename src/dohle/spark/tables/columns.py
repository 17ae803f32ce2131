"""The columns of a table: Spark's types as Arrow's, and whether two schemas are the same.

Files have timestamps in microseconds of UTC, and all columns may be null: what a record must have
is checked when it is decoded, and a table that outlives its query is free to change.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import types

_PLAIN: dict[type[types.DataType], pa.DataType] = {
    types.BooleanType: pa.bool_(),
    types.ByteType: pa.int8(),
    types.ShortType: pa.int16(),
    types.IntegerType: pa.int32(),
    types.LongType: pa.int64(),
    types.FloatType: pa.float32(),
    types.DoubleType: pa.float64(),
    types.StringType: pa.string(),
    types.CharType: pa.string(),
    types.VarcharType: pa.string(),
    types.BinaryType: pa.binary(),
    types.DateType: pa.date32(),
    types.TimestampType: pa.timestamp("us", tz="UTC"),
    types.TimestampNTZType: pa.timestamp("us"),
}

#: Characters that every format writes the same in folder names and partition values.
_PARTITION_TYPES = (
    types.BooleanType,
    types.ByteType,
    types.ShortType,
    types.IntegerType,
    types.LongType,
    types.StringType,
    types.DateType,
)


class TableError(ValueError):
    """A table cannot accept these rows; the text says why and what to do."""


def arrow_schema(schema: types.StructType) -> pa.Schema:
    """Return the columns of the files for these columns of Spark."""
    names = [name.lower() for name in schema.names]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TableError(f"several columns have the same name: {', '.join(twice)}; rename them")
    return pa.schema([pa.field(field.name, arrow_type(field.dataType)) for field in schema])


def arrow_type(kind: types.DataType) -> pa.DataType:
    """Return Arrow's type for one of Spark's."""
    match kind:
        case types.DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case types.ArrayType():
            return pa.list_(pa.field("element", arrow_type(kind.elementType)))
        case types.MapType():
            return pa.map_(arrow_type(kind.keyType), arrow_type(kind.valueType))
        case types.StructType():
            return pa.struct([pa.field(field.name, arrow_type(field.dataType)) for field in kind])
    plain = _PLAIN.get(type(kind))
    if plain is None:
        raise TableError(f"a table has no columns of type {kind.simpleString()}; cast them first")
    return plain


def widened(schema: pa.Schema) -> pa.Schema:
    """Return the schema with 32 bits for smaller integers, for formats that have none smaller."""
    return pa.schema([pa.field(field.name, _widened(field.type)) for field in schema])


def _widened(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_int8(kind) or pa.types.is_int16(kind):
        return pa.int32()
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _widened(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_widened(kind.key_type), _widened(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _widened(field.type)) for field in kind])
    return kind


def check_partitioning(schema: types.StructType, partition_by: tuple[str, ...]) -> None:
    """Refuse columns by which a table cannot be partitioned."""
    for name in partition_by:
        if name not in schema.names:
            raise TableError(f"there is no column {name!r} to partition the table by")
        kind = schema[name].dataType
        if not isinstance(kind, _PARTITION_TYPES):
            raise TableError(
                f"a table cannot be partitioned by {name!r} of type {kind.simpleString()}: take "
                "a string, an integer, a boolean or a date"
            )
    if partition_by and len(partition_by) == len(schema.names):
        raise TableError("a table cannot be partitioned by all of its columns")


def check_same_columns(table: pa.Schema, rows: pa.Schema, where: str) -> None:
    """Refuse rows whose columns are not the table's, in any order."""
    differences = list(_differences(table, rows))
    if differences:
        raise TableError(
            f"the rows do not fit the table {where}: {'; '.join(differences)}. Select and cast "
            "the table's columns, or write to another table"
        )


def _differences(table: pa.Schema, rows: pa.Schema) -> Iterator[str]:
    for name in rows.names:
        if name not in table.names:
            yield f"the table has no column {name!r}"
    for field in table:
        if field.name not in rows.names:
            yield f"the rows have no column {field.name!r}"
            continue
        there, here = spelling(field.type), spelling(rows.field(field.name).type)
        if there != here:
            yield f"column {field.name!r} is {there} in the table, but {here} in the rows"


def spelling(kind: pa.DataType) -> str:
    """Return one spelling for types that differ only in Arrow's representation."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_list_view(kind):
        return f"list<{spelling(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{spelling(kind.key_type)}, {spelling(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{field.name}: {spelling(field.type)}' for field in kind)}>"
    return str(kind).removeprefix("large_").removesuffix("_view")
