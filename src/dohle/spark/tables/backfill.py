"""Table to topic: the rows of a table, or of any batch DataFrame, as records of a topic."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, types
from pyspark.sql import functions as f

from dohle.spark.tables.avro_types import AvroSchema
from dohle.spark.tables.avro_values import encode_avro
from dohle.spark.tables.columns import TableError


def backfill(
    rows: DataFrame,
    topic: str,
    *,
    bootstrap_servers: str,
    key: str | None = None,
    value: str | None = None,
    avro: AvroSchema | None = None,
    schema_id: int | None = None,
    options: Mapping[str, str] | None = None,
) -> None:
    """Write every row to the topic, as a record made by ``records_of``.

    ``options`` go to the sink, for example ``{"delivery": "at-least-once"}``.
    """
    if rows.isStreaming:
        raise TableError("a stream cannot be a backfill: use writeStream.format('dohle')")
    records = records_of(rows, key=key, value=value, avro=avro, schema_id=schema_id)
    settings = {"kafka.bootstrap.servers": bootstrap_servers, "topic": topic, **(options or {})}
    records.write.format("dohle").options(**settings).mode("append").save()


def records_of(
    rows: DataFrame,
    *,
    key: str | None = None,
    value: str | None = None,
    avro: AvroSchema | None = None,
    schema_id: int | None = None,
) -> DataFrame:
    """Return key and value for each row.

    The key is a column: text and bytes as they are, structures as JSON, all else as text. The value
    is another such column, or an Avro datum with ``avro``, or else the row as a JSON object.
    """
    for name in (key, value):
        if name is not None and name not in rows.columns:
            raise TableError(f"there is no column {name!r}, only {', '.join(rows.columns)}")
    keyed = None if key is None else _bytes(rows, key)
    if avro is not None:
        if value is not None:
            raise TableError("give either a column for the value or an Avro schema, not both")
        return encode_avro(rows, avro, keyed, schema_id=schema_id)
    if value is None:
        options = {"ignoreNullFields": "false"}
        valued = f.to_json(f.struct(*map(_column, rows.columns)), options).cast("binary")
    else:
        valued = _bytes(rows, value)
    no_key = f.lit(None).cast("binary")
    return rows.select((no_key if keyed is None else keyed).alias("key"), valued.alias("value"))


def _bytes(rows: DataFrame, name: str) -> Column:
    match rows.schema[name].dataType:
        case types.BinaryType():
            return _column(name)
        case types.StructType() | types.ArrayType() | types.MapType():
            return f.to_json(_column(name)).cast("binary")
    return _column(name).cast("string").cast("binary")


def _column(name: str) -> Column:
    return f.col(f"`{name}`")
