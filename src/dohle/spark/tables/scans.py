"""Reads the rows of a table into Spark without the format's jars: executors read the pieces.

A piece is what the format reads as a unit (a file with its deletes and its partition's values); it
is pickled and sent to its task. Rows are streamed: no piece is in memory as a whole.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, types

_PIECES = "piece binary"


@dataclass(frozen=True, slots=True)
class _ScanTask:
    schema: pa.Schema
    read: Callable[[Any], Iterator[pa.RecordBatch]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for piece in batch.column("piece"):
                for rows in self.read(pickle.loads(piece.as_py())):
                    yield rows.select(self.schema.names).cast(self.schema)


def scan(
    spark: SparkSession,
    pieces: Sequence[object],
    schema: pa.Schema,
    read: Callable[[Any], Iterator[pa.RecordBatch]],
) -> DataFrame:
    """Return the rows of all pieces; a task reads its pieces one after the other."""
    columns = _spark_schema(spark, schema)
    if not pieces:
        return spark.createDataFrame([], columns)
    rows = [(pickle.dumps(piece),) for piece in pieces]
    listed = spark.createDataFrame(rows, _PIECES).repartition(len(pieces))
    return listed.mapInArrow(_ScanTask(_plain(schema), read), columns)


def _spark_schema(spark: SparkSession, schema: pa.Schema) -> types.StructType:
    return spark.createDataFrame(_plain(schema).empty_table()).schema


def _plain(schema: pa.Schema) -> pa.Schema:
    """Return the schema as Spark accepts it: without views, and without the format's metadata."""
    return pa.schema([pa.field(field.name, _plain_type(field.type)) for field in schema])


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", _plain_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_type(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _plain_type(field.type)) for field in kind])
    return kind
