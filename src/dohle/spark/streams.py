"""``dohle.spark.stream()``: copies one topic into another, through SQL or Python, continuously.

Records are written exactly once, whatever is killed in between: the checkpoint remembers what was
read, and the sink what was decided about it. With a function for each value, those it fails on go
to a dead-letter topic in the same transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from dohle.spark.dead_letters import attempt, letter_headers_of
from dohle.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Transform = Callable[["DataFrame"], "DataFrame"]
Function = Callable[[bytes | None], bytes | str | None]

_SERVERS = "kafka.bootstrap.servers"


def stream(
    source: str,
    target: str,
    *,
    checkpoint: str,
    bootstrap: str = "localhost:9092",
    sql: str | None = None,
    transform: Transform | None = None,
    function: Function | None = None,
    dead_letters: str | None = None,
    name: str | None = None,
    starting_offsets: str = "earliest",
    every: str | None = None,
    stop_at_end: bool = False,
    source_options: Mapping[str, str] | None = None,
    sink_options: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
) -> StreamingQuery:
    """Start a query that reads ``source``, transforms, and writes ``target``; return it.

    One of three says how: ``sql`` selects from ``{records}``; ``transform`` makes a frame of the
    frame of records; ``function`` makes a value of each value, and what it raises on goes to the
    topic ``dead_letters``, if that is given, else stops the query. The columns ``key``, ``value``,
    ``headers``, ``partition`` and ``topic`` of what they make are written.

    ``every`` is how often to look ("5 seconds"; by default always); ``stop_at_end`` ends
    the query when it has read what there was at its start.
    """
    if sum(way is not None for way in (sql, transform, function)) != 1:
        raise ValueError("give one of sql, transform and function")
    if dead_letters is not None and function is None:
        raise ValueError("dead_letters needs function: nothing else says which records are bad")
    if every is not None and stop_at_end:
        raise ValueError("give every or stop_at_end, not both")
    spark = spark or session(name or f"{source} to {target}")
    records = (
        spark.readStream.format("dohle")
        .option(_SERVERS, bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", starting_offsets)
        .option("includeHeaders", "true")
        .options(**(source_options or {}))
        .load()
    )
    if sql is not None:
        made = spark.sql(sql, records=records)
    elif transform is not None:
        made = transform(records)
    else:
        assert function is not None
        made = _each(records, function, target, dead_letters, name)
    writer = made.writeStream.format("dohle").option(_SERVERS, bootstrap)
    if dead_letters is None:
        writer = writer.option("topic", target)
    writer = writer.options(**(sink_options or {})).option("checkpointLocation", checkpoint)
    if name is not None:
        writer = writer.queryName(name)
    if stop_at_end:
        writer = writer.trigger(availableNow=True)
    elif every is not None:
        writer = writer.trigger(processingTime=every)
    return writer.start()


def _each(
    records: DataFrame, function: Function, target: str, dead_letters: str | None, name: str | None
) -> DataFrame:
    """Return what a function makes of each value, and what it fails on as letters."""
    from pyspark.sql import functions as f

    def value_of(value: bytes | None) -> tuple[bytes | None]:
        made = function(value)
        return (made.encode() if isinstance(made, str) else made,)

    if dead_letters is None:
        make = f.udf(lambda value: value_of(value)[0], "binary", useArrow=True)
        return records.select("key", make("value").alias("value"), "headers")
    tried = attempt(records, value_of, "value binary")
    is_bad = f.col("error").isNotNull()
    return tried.select(
        "key",
        f.when(is_bad, f.col("value")).otherwise(f.col("data.value")).alias("value"),
        f.when(is_bad, letter_headers_of(name)).otherwise(f.col("headers")).alias("headers"),
        f.when(is_bad, f.lit(dead_letters)).otherwise(f.lit(target)).alias("topic"),
    )
