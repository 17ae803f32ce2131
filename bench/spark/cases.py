"""The cases: reading topics, writing topics, topic to Parquet, and batches with almost no rows.

Rates of streams are those of a stream that runs: rows by the time of its batches, without the first
one, which plans the query and starts its processes. Before a batch write is measured, some rows are
written for the same reason.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from statistics import median

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from bench.comparison.figures import Measure
from bench.spark.field import PARTITIONS, Field, Streamed, Topic, seconds, streamed
from bench.spark.figures import DOHLE, Case
from dohle.spark.tables import write_stream

SOURCE, SINK, PARQUET, OVERHEAD = "source", "sink", "topic to Parquet", "batch of 4 rows"
PARTS = {"source": SOURCE, "sink": SINK, "parquet": PARQUET, "overhead": OVERHEAD}
DELIVERIES = ("exactly-once", "at-least-once")

#: Rows in a topic to be read, and rows to be written, by the size of their values.
_ROWS_READ = {100: 2_000_000, 1024: 400_000}
_ROWS_WRITTEN = {100: 600_000, 1024: 150_000}
#: A stream reads a topic in so many batches.
_BATCHES = 4
_SMALL_BATCHES, _SMALL_SKIPPED = 11, 3
_COLUMNS = "key, value, topic, partition, offset, timestamp, timestampType"
_DIGEST = f"bit_xor(xxhash64({_COLUMNS})) AS digest"

_Start = Callable[[DataStreamWriter], StreamingQuery]


def cases(field: Field, parts: list[str], scale: float, *, few: bool = False) -> list[Case]:
    """Fill the topics that the parts need, and return their cases: all, or those of one size."""
    sizes, codecs = ((100,), ("none",)) if few else ((100, 1024), ("none", "zstd"))
    found: list[Case] = []
    filled: dict[tuple[int, str], Topic] = {}

    def topic(size: int, codec: str) -> Topic:
        if (size, codec) not in filled:
            rows = int(_ROWS_READ[size] * scale)
            filled[size, codec] = field.fill(f"read-{size}-{codec}-{rows}", rows, size, codec)
        return filled[size, codec]

    if SOURCE in parts:
        for size, codec in product(sizes, codecs):
            found += _source(field, topic(size, codec), f"{_name(size)}, {codec}")
    if SINK in parts:
        for size in sizes:
            found += _sink(field, size, int(_ROWS_WRITTEN[size] * scale))
        found += _topic_to_topic(field, topic(100, "none"))
    if PARQUET in parts:
        found += _parquet(field, topic(100, "none"))
    if OVERHEAD in parts:
        small = f"small-{scale:g}"
        rows = PARTITIONS * _SMALL_BATCHES
        found += _overhead(field, field.fill(small, rows, 100, "none"))
    return found


def _name(size: int) -> str:
    return "1 KiB" if size == 1024 else f"{size} B"


def _source(field: Field, topic: Topic, what: str) -> list[Case]:
    def count(kind: str) -> float:
        found: list[int] = []
        took_s = seconds(lambda: found.append(field.read(kind, topic.name).count()))
        _expect(found[0], topic.rows)
        return topic.rows / took_s

    def all_columns(kind: str) -> float:
        frame = field.read(kind, topic.name).selectExpr(_DIGEST, "count(*) AS number")
        found: list[tuple[int, int]] = []
        took_s = seconds(lambda: found.extend((row.digest, row.number) for row in frame.collect()))
        _expect(found[0][1], topic.rows)
        if field.digests.setdefault(topic.name, found[0]) != found[0]:
            raise RuntimeError(f"{kind} reads other columns of {topic.name}")
        return topic.rows / took_s

    def stream(kind: str) -> float:
        return _rate(field, kind, topic, lambda writer: writer.format("noop").start())

    shapes = {"batch, count": count, "batch, all columns": all_columns, "stream to noop": stream}
    return [Case(SOURCE, f"{name}, {what}", Measure.ROWS_READ, run) for name, run in shapes.items()]


def _sink(field: Field, size: int, rows: int) -> list[Case]:
    def some(number: int) -> DataFrame:
        value = f"CAST(lpad(CAST(id AS STRING), {size}, 'x') AS BINARY) value"
        ids = field.spark.range(0, number, 1, PARTITIONS)
        return ids.selectExpr("CAST(id AS STRING) AS key", value)

    def write(delivery: str, kind: str) -> float:
        with field.new_topic() as topic:
            options = _options(kind, delivery)
            # Spark ends Python processes that had nothing to do for a minute: that they start
            # anew would be measured of whichever case comes first.
            field.write(kind, some(PARTITIONS), topic, **options)
            took_s = seconds(lambda: field.write(kind, some(rows), topic, **options))
            field.check_written(topic, PARTITIONS + rows)
        return rows / took_s

    return [
        Case(SINK, f"batch, {_name(size)}, {each}", Measure.ROWS_WRITTEN, partial(write, each))
        for each in DELIVERIES
    ]


def _topic_to_topic(field: Field, source: Topic) -> list[Case]:
    def stream(delivery: str, kind: str) -> float:
        with field.new_topic() as target:

            def start(writer: DataStreamWriter) -> StreamingQuery:
                to_topic = field.stream_to(writer, kind, target)
                return to_topic.options(**_options(kind, delivery)).start()

            rate = _rate(field, kind, source, start, "key", "value")
            field.check_written(target, source.rows)
            return rate

    return [
        Case(
            SINK,
            f"stream topic to topic, 100 B, {each}",
            Measure.ROWS_WRITTEN,
            partial(stream, each),
        )
        for each in DELIVERIES
    ]


def _parquet(field: Field, source: Topic) -> list[Case]:
    def to_files(kind: str) -> float:
        with field.new_folder() as folder:
            return _rate(
                field, kind, source, lambda writer: writer.format("parquet").start(str(folder))
            )

    def to_table(kind: str) -> float:
        if kind != DOHLE:
            return to_files(kind)
        with field.new_folder() as folder, field.new_folder() as checkpoint:
            query = write_stream(
                field.read_stream(kind, source, source.rows // _BATCHES),
                "parquet",
                folder,
                checkpoint=checkpoint,
                trigger={"availableNow": True},
            )
            return _running_rate(streamed(query), source.rows)

    return [
        Case(PARQUET, "Spark's own Parquet sink, 100 B", Measure.ROWS_THROUGH, to_files),
        Case(PARQUET, "dohle's table beside Spark's sink, 100 B", Measure.ROWS_THROUGH, to_table),
    ]


def _overhead(field: Field, source: Topic) -> list[Case]:
    def small(start: _Start, kind: str) -> float:
        told = _stream(field, kind, source, PARTITIONS, start, "key", "value")
        return median(told.ms[_SMALL_SKIPPED:])

    def to_noop(kind: str) -> float:
        return small(lambda writer: writer.format("noop").start(), kind)

    def to_topic(delivery: str, kind: str) -> float:
        with field.new_topic() as target:
            options = _options(kind, delivery)
            return small(
                lambda writer: field.stream_to(writer, kind, target).options(**options).start(),
                kind,
            )

    return [
        Case(OVERHEAD, "topic to noop", Measure.LATENCY, to_noop),
        *(
            Case(OVERHEAD, f"topic to topic, {each}", Measure.LATENCY, partial(to_topic, each))
            for each in DELIVERIES
        ),
    ]


def _options(kind: str, delivery: str) -> dict[str, str]:
    """Return the option for the delivery guarantee; the connector only has at-least-once."""
    return {"delivery": delivery} if kind == DOHLE else {}


def _rate(field: Field, kind: str, topic: Topic, start: _Start, *columns: str) -> float:
    told = _stream(field, kind, topic, topic.rows // _BATCHES, start, *columns)
    return _running_rate(told, topic.rows)


def _stream(
    field: Field, kind: str, topic: Topic, batch_rows: int, start: _Start, *columns: str
) -> Streamed:
    """Stream a topic from its beginning to its end."""
    rows: DataFrame = field.read_stream(kind, topic, batch_rows)
    with field.new_folder() as checkpoint:
        writer = (rows.select(*columns) if columns else rows).writeStream
        writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        return streamed(start(writer))


def _running_rate(told: Streamed, rows: int) -> float:
    _expect(sum(told.rows), rows)
    return sum(told.rows[1:]) / sum(told.ms[1:]) * 1000


def _expect(found: int, rows: int) -> None:
    if found != rows:
        raise RuntimeError(f"{found} rows were read instead of {rows}")
