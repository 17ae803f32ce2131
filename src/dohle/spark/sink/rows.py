"""Turns rows into batches of records: chooses the topic, partition and batch of each row.

Rows of one partition keep their order. Rows without key and partition fill one batch after the
other, each for another partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dohle.core.ids import TopicName, TopicPartition
from dohle.core.seams import Rng
from dohle.records.columnar.encode import (
    Ints,
    column_of,
    encode_header_column,
    encode_records,
    lengths_of,
    numbers_of,
    partitions_of_keys,
)
from dohle.spark.options import OptionError
from dohle.spark.sink.schema import Columns, WrongSchema

#: The size of a record besides key, value and headers; more only with odd timestamps.
_OVERHEAD = 24
#: Rows are gathered to this many bytes before they are encoded: larger batches per partition.
_GATHER_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """The records of one batch."""

    partition: TopicPartition
    records: bytes
    record_count: int
    base_timestamp: int
    max_timestamp: int


def gather(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Merge small Arrow batches."""
    some: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        some.append(batch)
        size += batch.nbytes
        if size >= _GATHER_BYTES:
            yield pa.Table.from_batches(some)
            some, size = [], 0
    if some:
        yield pa.Table.from_batches(some)


class RowEncoder:
    """Encodes the rows of one task."""

    def __init__(
        self,
        columns: Columns,
        topic: str | None,
        batch_size: int,
        count_partitions: Callable[[TopicName], int],
        rng: Rng,
    ) -> None:
        self._columns = columns
        self._topic = topic
        self._batch_size = batch_size
        self._count_partitions = count_partitions
        self._next_partition = rng.randrange(1 << 30)

    def encode(self, table: pa.Table, now_ms: int) -> Iterator[EncodedBatch]:
        """Yield the batches of some rows."""
        columns = self._columns
        values = _binary(table, columns.value)
        keys = None if columns.key is None else _binary(table, columns.key)
        if keys is not None and keys.null_count == len(keys):
            keys = None
        headers = None
        if columns.headers is not None:
            headers = encode_header_column(_column(table, columns.headers))
        sizes = np.maximum(lengths_of(values), 0) + _OVERHEAD
        if keys is not None:
            sizes += np.maximum(lengths_of(keys), 0)
        if headers is not None:
            sizes += lengths_of(headers)
        timestamps = _timestamps(table, columns.timestamp, now_ms)
        topics, names = self._topics(table)
        partitions = self._partitions(table, topics, names, keys, sizes)
        order = _order(topics, partitions)
        if order is not None:
            topics, partitions, sizes = topics[order], partitions[order], sizes[order]
            timestamps = timestamps[order]
            places = column_of(order)
            values = values.take(places)
            keys = None if keys is None else keys.take(places)
            headers = None if headers is None else headers.take(places)
        starts = self._starts(topics, partitions, sizes)
        data, offsets = encode_records(keys, values, timestamps, headers, starts)
        latest = np.maximum.reduceat(timestamps, starts)
        ends = np.append(starts[1:], len(values))
        for number, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            yield EncodedBatch(
                TopicPartition(names[int(topics[start])], int(partitions[start])),
                bytes(data[offsets[start] : offsets[end]]),
                end - start,
                int(timestamps[start]),
                int(latest[number]),
            )

    def _topics(self, table: pa.Table) -> tuple[Ints, list[TopicName]]:
        """Return each row's topic as an index into the list of names."""
        if self._topic is not None or self._columns.topic is None:
            assert self._topic is not None
            return np.zeros(table.num_rows, dtype=np.int64), [TopicName(self._topic)]
        column = _column(table, self._columns.topic)
        if column.null_count:
            raise OptionError(
                f"{column.null_count} rows have no topic: set the option topic, or fill the "
                "column topic"
            )
        found = column.dictionary_encode()
        return (
            numbers_of(found.indices),
            [TopicName(name) for name in found.dictionary.to_pylist()],
        )

    def _partitions(
        self,
        table: pa.Table,
        topics: Ints,
        names: list[TopicName],
        keys: pa.Array | None,
        sizes: Ints,
    ) -> Ints:
        """Return each row's partition."""
        chosen = np.full(table.num_rows, -1, dtype=np.int64)
        if self._columns.partition is not None:
            given = _column(table, self._columns.partition)
            chosen = numbers_of(given, -1).copy()
        for number, name in enumerate(names):
            count = self._count_partitions(name)
            rows = np.flatnonzero((topics == number) & (chosen < 0))
            if not len(rows):
                continue
            if keys is not None:
                # The same keys may be hashed more than once for several topics: topics are few.
                has_key = numbers_of(pc.is_valid(keys))[rows] != 0
                with_key = rows[has_key]
                chosen[with_key] = partitions_of_keys(keys.take(column_of(with_key)), count)
                rows = rows[~has_key]
            chosen[rows] = self._sticky(sizes[rows], count)
        return cast("Ints", chosen)

    def _sticky(self, sizes: Ints, count: int) -> Ints:
        """Give each batch of rows the next partition."""
        if not len(sizes):
            return sizes
        turns = (np.cumsum(sizes) - 1) // self._batch_size
        chosen: Ints = (self._next_partition + turns) % count
        self._next_partition += int(turns[-1]) + 1
        return chosen

    def _starts(self, topics: Ints, partitions: Ints, sizes: Ints) -> Ints:
        """Return the first row of each batch: another partition, or the previous batch is full."""
        changes = (np.diff(topics) != 0) | (np.diff(partitions) != 0)
        groups = np.append(0, np.flatnonzero(changes) + 1)
        starts = []
        for begin, end in zip(groups, np.append(groups[1:], len(sizes)), strict=True):
            reach = np.cumsum(sizes[begin:end])
            at = int(begin)
            while at < end:
                starts.append(at)
                before = int(reach[at - begin - 1]) if at > begin else 0
                fit = int(np.searchsorted(reach, before + self._batch_size, side="right"))
                at = max(int(begin) + fit, at + 1)
        return np.array(starts, dtype=np.int64)


def _order(topics: Ints, partitions: Ints) -> Ints | None:
    """Return the rows by topic and partition; None if they already are in this order."""
    width = int(partitions.max(initial=0)) + 1
    places = topics * width + partitions
    if not np.any(places[1:] < places[:-1]):
        return None
    return np.argsort(places, kind="stable")


def _column(table: pa.Table, place: int) -> pa.Array:
    column = table.column(place).combine_chunks()
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _binary(table: pa.Table, place: int) -> pa.Array:
    return _column(table, place).cast(pa.binary())


def _timestamps(table: pa.Table, place: int | None, now_ms: int) -> Ints:
    """Return each row's time in milliseconds; rows without one get the current time."""
    if place is None:
        return np.full(table.num_rows, now_ms, dtype=np.int64)
    times_us = _column(table, place).cast(pa.timestamp("us"))
    times_ms = numbers_of(times_us, now_ms * 1000) // 1000
    if int(times_ms.min(initial=0)) < 0:
        raise WrongSchema("a row's timestamp is before 1970: no record can have it")
    return times_ms
