"""How ``format("dohle")`` turns its options into columns and readers."""

from __future__ import annotations

from pyspark.sql import types
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader

from dohle.spark.options import OptionError, Options
from dohle.spark.source.options import (
    Query,
    check_source_names,
    parse_source_options,
    wants_headers,
)
from dohle.spark.source.source import BatchReader, StreamReader

#: The columns of Spark's Kafka source.
_COLUMNS: tuple[tuple[str, types.DataType], ...] = (
    ("key", types.BinaryType()),
    ("value", types.BinaryType()),
    ("topic", types.StringType()),
    ("partition", types.IntegerType()),
    ("offset", types.LongType()),
    ("timestamp", types.TimestampType()),
    ("timestampType", types.IntegerType()),
)
_HEADERS = types.ArrayType(
    types.StructType(
        [
            types.StructField("key", types.StringType()),
            types.StructField("value", types.BinaryType()),
        ]
    )
)


def read_schema(options: Options) -> types.StructType:
    """Return the columns of a read. Spark asks for them first, so wrong option names fail here."""
    check_source_names(options)
    schema = types.StructType([types.StructField(name, kind) for name, kind in _COLUMNS])
    return schema.add("headers", _HEADERS) if wants_headers(options) else schema


def batch_reader(options: Options, schema: types.StructType) -> DataSourceReader:
    """Return the reader of a batch query."""
    _check_schema(options, schema)
    return BatchReader(parse_source_options(options, Query.BATCH))


def stream_reader(options: Options, schema: types.StructType) -> DataSourceStreamReader:
    """Return the reader of a streaming query."""
    _check_schema(options, schema)
    return StreamReader(parse_source_options(options, Query.STREAMING))


def _check_schema(options: Options, schema: types.StructType) -> None:
    expected = read_schema(options)
    if schema != expected:
        raise OptionError(
            f"the columns of a topic are {expected.simpleString()}; no other schema can be set: "
            "select or cast these columns"
        )
