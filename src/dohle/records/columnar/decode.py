"""From the bytes that Fetch returns to Arrow batches with the columns of Spark's Kafka source.

Batches are examined one by one: is the checksum right, was the transaction aborted, does it have an
offset that is wanted. The records of many are then read together, since the work for a group costs
the same whether it has a hundred records or ten thousand. Batches that cannot be read together,
such as old message formats, are read by :mod:`dohle.records` one by one: either way the result is
what its reader returns, or its error.

Memory is bounded: a group is closed before it grows beyond a few MiB, and one batch never
decompresses to more than the caller allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import ProducerId
from dohle.records.aborted import AbortedTransactions
from dohle.records.batch import HEADER_SIZE, Batch, RecordBatch, batches
from dohle.records.columnar.columns import (
    SCHEMA,
    SCHEMA_WITH_HEADERS,
    binary_column,
    check_timestamps,
    headers_column,
    headers_of_records,
    int_column,
    same_column,
    timestamp_column,
)
from dohle.records.columnar.fields import (
    PADDING,
    RECORD_SIZE_MIN,
    Ints,
    Memory,
    Span,
    Unusual,
    read_fields,
    read_headers,
    record_starts,
)
from dohle.records.compression.codecs import DECOMPRESSED_BYTES_MAX, Codec
from dohle.records.errors import InvalidRecord
from dohle.records.record import Record, TimestampType

__all__ = ["Decoding", "decode_records", "schema"]

#: A group of batches is closed before its records take more than this.
GROUP_BYTES_MAX = 2 * 1024 * 1024
#: The most rows of an Arrow batch.
ROWS_MAX = 32 * 1024
#: Base offsets and timestamps up to this size can be added to any delta that is read together.
_BASE_MAX = 1 << 62


def schema(*, include_headers: bool) -> pa.Schema:
    """Return the columns, with or without headers."""
    return SCHEMA_WITH_HEADERS if include_headers else SCHEMA


def decode_records(
    data: bytes | memoryview,
    start_offset: int,
    end_offset: int,
    *,
    topic: str,
    partition: int,
    aborted: Sequence[tuple[int, int]] | None,
    include_headers: bool,
) -> tuple[list[pa.RecordBatch], int]:
    """Return all of a :class:`Decoding` at once, and the next offset to fetch."""
    decoding = Decoding(
        data,
        start_offset,
        end_offset,
        topic=topic,
        partition=partition,
        aborted=aborted,
        include_headers=include_headers,
    )
    return list(decoding), decoding.next_offset


class Decoding:
    """The records that Fetch returned, from one offset up to another, as Arrow batches.

    ``data`` has whole batches, and maybe a part of another. Control records are left out, and so
    are the records of the transactions in ``aborted`` (producer id, first offset).

    Bytes that are not a batch, a wrong checksum and records that break the format raise the errors
    of :mod:`dohle.records.errors`, a batch that does not fit into ``data`` MESSAGE_TOO_LARGE.
    Headers that were not asked for are not examined.
    """

    def __init__(
        self,
        data: bytes | memoryview,
        start_offset: int,
        end_offset: int,
        *,
        topic: str,
        partition: int,
        aborted: Sequence[tuple[int, int]] | None,
        include_headers: bool,
        decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
    ) -> None:
        self._data = data
        self._start_offset = start_offset
        self._end_offset = end_offset
        self._topic = topic
        self._partition = partition
        self._aborted = aborted
        self._include_headers = include_headers
        self._decompressed_bytes_max = decompressed_bytes_max
        #: The offset after everything examined so far; at the end, the offset to fetch next. That
        #: may be past the end offset.
        self.next_offset = start_offset

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Decode group by group."""
        group = _Group()
        for batch in self._wanted():
            chunk: bytes | memoryview = batch.buffer
            if isinstance(batch, RecordBatch):
                if batch.compression is Codec.NONE:
                    chunk = batch.records_buffer
                else:
                    chunk = batch.decompressed(self._decompressed_bytes_max)
            if group.size + len(chunk) > GROUP_BYTES_MAX:
                yield from self._rows_of(group)
                group = _Group()
            group.add(batch, chunk)
        yield from self._rows_of(group)

    def _wanted(self) -> Iterator[Batch]:
        """Choose the batches that have wanted records."""
        transactions = None
        if self._aborted is not None:
            transactions = AbortedTransactions(
                (ProducerId(producer_id), first) for producer_id, first in self._aborted
            )
        is_any_whole = False
        for batch in batches(self._data):
            is_any_whole = True
            batch.ensure_valid()
            is_new_format = isinstance(batch, RecordBatch)
            # A batch of an old format would have to be decompressed to know where it begins.
            if is_new_format and batch.base_offset >= self._end_offset:
                self.next_offset = max(self.next_offset, batch.base_offset)
                return
            self.next_offset = max(self.next_offset, batch.next_offset)
            if transactions is not None and transactions.covers(batch):
                continue
            if batch.is_control or batch.last_offset < self._start_offset:
                continue
            if is_new_format and batch.size == HEADER_SIZE and batch.record_count == 0:
                continue
            yield batch
        if len(self._data) and not is_any_whole:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the batch at offset {self._start_offset} of {self._topic}-{self._partition} "
                f"does not fit into {len(self._data)} bytes: raise the fetch size",
            )

    def _rows_of(self, group: _Group) -> Iterator[pa.RecordBatch]:
        """Decode a group, together if possible, else record by record."""
        if not group.batches:
            return
        try:
            rows = list(self._read_together(group))
        except (Unusual, InvalidRecord, pa.ArrowInvalid):
            yield from self._read_singly(group.batches)
        else:
            yield from rows

    def _read_together(self, group: _Group) -> Iterator[pa.RecordBatch]:
        """Read the records of several batches together.

        Any error says only that they have to be read singly: Unusual, InvalidRecord if Spark has no
        such timestamp, though maybe nobody asked for that record, ArrowInvalid for header keys.
        """
        described = _Described(group)
        data = b"".join((*group.chunks, PADDING))
        memory, buffer = Memory(data), pa.py_buffer(data)
        starts = record_starts(data, group.spans)
        ends = np.append(starts[1:], group.size)
        for begin in range(0, len(starts), ROWS_MAX):
            part = slice(begin, begin + ROWS_MAX)
            fields = read_fields(memory, starts[part], ends[part])
            batch_of = described.batch_of[part]
            offsets = described.base_offsets[batch_of] + fields.offset_deltas
            columns = [
                binary_column(buffer, fields.keys),
                binary_column(buffer, fields.values),
                same_column(self._topic, len(offsets)),
                same_column(self._partition, len(offsets)),
                int_column(offsets),
                timestamp_column(described.timestamps(batch_of, fields.timestamp_deltas)),
                described.timestamp_types(batch_of),
            ]
            if self._include_headers:
                headers = read_headers(memory, fields)
                columns.append(headers_column(buffer, headers, fields.header_counts))
            rows = pa.RecordBatch.from_arrays(columns, schema=self._schema)
            is_wanted = (offsets >= self._start_offset) & (offsets < self._end_offset)
            if not is_wanted.all():
                rows = rows.filter(pa.array(is_wanted))
            if rows.num_rows:
                yield rows

    def _read_singly(self, batches: Iterable[Batch]) -> Iterator[pa.RecordBatch]:
        """Read the records of several batches one by one."""
        records: list[Record] = []
        types: list[TimestampType] = []
        size = 0
        for batch in batches:
            for record in batch.records(self._decompressed_bytes_max):
                if not self._start_offset <= record.offset < self._end_offset:
                    continue
                records.append(record)
                types.append(batch.timestamp_type)
                size += len(record.key or b"") + len(record.value or b"")
                if len(records) == ROWS_MAX or size > GROUP_BYTES_MAX:
                    yield self._rows(records, types)
                    records, types, size = [], [], 0
        if records:
            yield self._rows(records, types)

    def _rows(self, records: list[Record], types: list[TimestampType]) -> pa.RecordBatch:
        offsets, timestamps, keys, values, headers = zip(*records, strict=True)
        check_timestamps(min(timestamps), max(timestamps))
        columns = [
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            same_column(self._topic, len(records)),
            same_column(self._partition, len(records)),
            pa.array(offsets, pa.int64()),
            timestamp_column(np.array(timestamps, np.int64)),
            pa.array(types, pa.int32()),
        ]
        if self._include_headers:
            columns.append(headers_of_records(headers))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    @property
    def _schema(self) -> pa.Schema:
        return schema(include_headers=self._include_headers)


class _Group:
    """Several batches, and where their records will be when all are put together."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.chunks: list[bytes | memoryview] = []
        self.spans: list[Span] = []
        self.size = 0

    def add(self, batch: Batch, records: bytes | memoryview) -> None:
        begin = self.size
        self.size += len(records)
        self.batches.append(batch)
        self.chunks.append(records)
        self.spans.append(Span(begin, self.size, batch.record_count or 0))


class _Described:
    """What the headers of several batches say about their records."""

    def __init__(self, group: _Group) -> None:
        headers = [batch for batch in group.batches if isinstance(batch, RecordBatch)]
        if len(headers) < len(group.batches):
            raise Unusual
        for begin, end, count in group.spans:
            # Nothing is allocated for records that cannot be there.
            if not 0 <= count <= (end - begin) // RECORD_SIZE_MIN:
                raise Unusual
        self.batch_of = np.repeat(
            np.arange(len(headers)), [span.record_count for span in group.spans]
        )
        self.base_offsets = np.array([batch.base_offset for batch in headers], np.int64)
        self._base_timestamps = np.array([batch.base_timestamp for batch in headers], np.int64)
        self._append_times = np.array([batch.max_timestamp for batch in headers], np.int64)
        self._types = np.array([batch.timestamp_type for batch in headers], np.int32)
        self._has_append_time = self._types == TimestampType.LOG_APPEND_TIME
        for bases in (self.base_offsets, self._base_timestamps):
            if bases.min() < -_BASE_MAX or bases.max() > _BASE_MAX:
                raise Unusual

    def timestamps(self, batch_of: Ints, deltas: Ints) -> Ints:
        """Return the timestamps of records of these batches, with these deltas."""
        times = self._base_timestamps[batch_of] + deltas
        if self._has_append_time.any():
            append_times = self._append_times[batch_of]
            times = np.where(self._has_append_time[batch_of], append_times, times)
        return times

    def timestamp_types(self, batch_of: Ints) -> pa.Array:
        """Return the column of types, of records of these batches."""
        if (self._types == self._types[0]).all():
            return same_column(int(self._types[0]), len(batch_of))
        return pa.array(self._types[batch_of])
