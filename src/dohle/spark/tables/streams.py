"""Topic to table: a streaming query whose batches each reach the table once.

The query's id comes from its checkpoint: with the same checkpoint a restarted query is the same
one, and a batch that it repeats is recognised. A query with a new checkpoint is another query.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from dohle.spark.tables.batches import BatchId, Outcome, Table, write_batch
from dohle.spark.tables.columns import TableError
from dohle.spark.tables.kinds import Kind, table

BatchFunction = Callable[[DataFrame, int], None]


def write_stream(
    rows: DataFrame,
    kind: Kind,
    where: str | os.PathLike[str],
    *,
    checkpoint: str | os.PathLike[str],
    partition_by: Sequence[str] = (),
    catalog: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    trigger: Mapping[str, Any] | None = None,
    query_name: str | None = None,
    files_per_batch_max: int | None = None,
) -> StreamingQuery:
    """Start a query that adds a stream's rows to a table, each batch exactly once.

    ``kind`` is ``"parquet"``, ``"delta"`` or ``"iceberg"``; ``where`` the folder of the table, or
    for Iceberg its name ``namespace.table`` in the ``catalog``. The table is created if it is
    missing. ``trigger`` is passed to Spark's ``trigger()``, for example ``{"availableNow": True}``.
    """
    if not rows.isStreaming:
        raise TableError("these rows are not a stream: use write_once to add a batch to a table")
    target = table(
        kind, where, partition_by=partition_by, catalog=catalog, storage_options=storage_options
    )
    target.prepare(rows.schema)
    each = batch_function(target, checkpoint, files_per_batch_max=files_per_batch_max)
    writer = rows.writeStream.option("checkpointLocation", os.fspath(checkpoint))
    if query_name is not None:
        writer = writer.queryName(query_name)
    if trigger is not None:
        writer = writer.trigger(**trigger)
    return writer.foreachBatch(each).start()


def write_once(
    rows: DataFrame,
    kind: Kind,
    where: str | os.PathLike[str],
    *,
    load_id: str,
    partition_by: Sequence[str] = (),
    catalog: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Outcome:
    """Add the rows of a batch query to a table; the same ``load_id`` again adds nothing."""
    target = table(
        kind, where, partition_by=partition_by, catalog=catalog, storage_options=storage_options
    )
    target.prepare(rows.schema)
    return write_batch(target, rows, BatchId(load_id, 0))


def batch_function(
    target: Table,
    checkpoint: str | os.PathLike[str],
    *,
    files_per_batch_max: int | None = None,
) -> BatchFunction:
    """Return a function for ``foreachBatch``, for queries that do more than fill a table."""
    known: list[str] = []

    def each(rows: DataFrame, number: int) -> None:
        if not known:
            known.append(query_id(rows.sparkSession, checkpoint))
        if files_per_batch_max is not None:
            rows = rows.coalesce(files_per_batch_max)
        write_batch(target, rows, BatchId(known[0], number))

    return each


def query_id(spark: SparkSession, checkpoint: str | os.PathLike[str]) -> str:
    """Return the id of the query of a checkpoint, which survives restarts."""
    text = spark.read.text(f"{os.fspath(checkpoint)}/metadata", wholetext=True).first()
    if text is None:
        raise TableError(f"{os.fspath(checkpoint)} is not a checkpoint")
    return str(json.loads(text[0])["id"])
