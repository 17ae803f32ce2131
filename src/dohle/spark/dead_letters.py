"""Sends records that cannot be processed to a dead-letter topic, without stopping the query.

A frame read from topics gets two columns: ``data``, the parsed value, and ``error``, why that
failed, or null. :func:`valid` and :func:`dead_letters` separate the two. Works in streams and
batches, in Spark's classic sessions and in Connect, where pipelines run.

The headers of a dead letter are those that Kafka Connect uses, so its tools understand them, and
``dohle pipeline replay`` can send it back to its origin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from dohle.spark.letter_headers import ERROR, OFFSET, PARTITION, PIPELINE, TOPIC

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

__all__ = ["attempt", "dead_letters", "letter_headers_of", "parse_json", "valid"]

#: Where from_json puts a text that does not match the schema.
_CORRUPT = "_corrupt_record"
_HEADERS = "array<struct<key: string, value: binary>>"


def parse_json(
    records: DataFrame,
    schema: str | StructType,
    checks: Mapping[str, str] | None = None,
) -> DataFrame:
    """Parse values as JSON of a schema into ``data``; a value that fails has an ``error``.

    ``checks`` are SQL conditions that must hold, by the error to report if they do not: ``{"no
    quantity": "data.quantity > 0"}``. A condition that is null counts as failed.
    """
    from pyspark.sql import functions as f

    text = schema if isinstance(schema, str) else _ddl(schema)
    parsed = records.withColumn(
        "data",
        f.from_json(
            f.col("value").cast("string"),
            f"{text}, {_CORRUPT} string",
            {"columnNameOfCorruptRecord": _CORRUPT},
        ),
    )
    error = f.when(f.col("value").isNull(), f.lit("there is no value"))
    unreadable = f.col("data").isNull() | f.col(f"data.{_CORRUPT}").isNotNull()
    error = error.when(unreadable, f.lit(f"the value is not JSON of the schema {text}"))
    for message, condition in (checks or {}).items():
        holds = f.coalesce(f.expr(condition), f.expr("false"))
        error = error.when(~holds, f.lit(message))
    return parsed.withColumn("error", error).withColumn("data", f.col("data").dropFields(_CORRUPT))


def attempt(
    records: DataFrame, function: Callable[[bytes | None], Any], schema: str | StructType
) -> DataFrame:
    """Put a Python function's result for each value into ``data``; what it raises is the error.

    The function returns what Spark accepts for the schema: a dictionary or a tuple for a struct.
    """
    from pyspark.sql import functions as f

    text = schema if isinstance(schema, str) else _ddl(schema)

    def tried(value: bytes | None) -> tuple[Any, str | None]:
        try:
            return function(None if value is None else bytes(value)), None
        except Exception as error:
            return None, f"{type(error).__name__}: {error}"

    # Called once per record: Spark would call it again for each of the two columns.
    outcomes = f.udf(
        tried, f"data struct<{text}>, error string", useArrow=True
    ).asNondeterministic()
    return (
        records.withColumn("_outcome", outcomes("value"))
        .withColumn("data", f.col("_outcome.data"))
        .withColumn("error", f.col("_outcome.error"))
        .drop("_outcome")
    )


def valid(tried: DataFrame) -> DataFrame:
    """Return the records without an error."""
    from pyspark.sql import functions as f

    return tried.where(f.col("error").isNull())


def dead_letters(
    tried: DataFrame, pipeline: str | None = None, *, has_headers: bool = True
) -> DataFrame:
    """Return the others as records to write: unchanged, with the reason and their origin.

    The frame must have the columns of the source, including ``headers`` (``includeHeaders``); if it
    has none, say so: a pipeline's function may not inspect the frame.
    """
    from pyspark.sql import functions as f

    headers = letter_headers_of(pipeline, has_headers=has_headers)
    return tried.where(f.col("error").isNotNull()).select("key", "value", headers.alias("headers"))


def letter_headers_of(pipeline: str | None = None, *, has_headers: bool = True) -> Column:
    """Return the headers of a dead letter: its own, the error, and its origin."""
    from pyspark.sql import functions as f

    def header(name: str, value: Column) -> Column:
        return f.struct(f.lit(name).alias("key"), value.cast("binary").alias("value"))

    added = [
        header(TOPIC, f.col("topic")),
        header(PARTITION, f.col("partition").cast("string")),
        header(OFFSET, f.col("offset").cast("string")),
        header(ERROR, f.col("error")),
    ]
    if pipeline is not None:
        added.append(header(PIPELINE, f.lit(pipeline)))
    before = f.col("headers") if has_headers else f.lit(None).cast(_HEADERS)
    none = f.array().cast(_HEADERS)
    return f.concat(f.coalesce(before, none), f.array(*added)).cast(_HEADERS)


def _ddl(schema: StructType) -> str:
    return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in schema.fields)
