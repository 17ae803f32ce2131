"""The columns of Spark's Kafka source as Arrow arrays.

Spark accepts only the plain types, no views into a buffer, so keys and values are copied once: the
whole buffer is viewed as one array that alternates between them and the bytes in between, and every
other element is taken. That is one call, and about as fast as copying memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dohle.records.columnar.fields import FieldSlices, Headers, Ints
from dohle.records.errors import InvalidRecord
from dohle.records.record import Header
from dohle.records.varint import INT64_MAX, INT64_MIN

_US_PER_MS = 1000

HEADER_TYPE = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
#: Spark gives the elements of an array this name, and compares schemas by it.
HEADERS_TYPE = pa.list_(pa.field("element", HEADER_TYPE))
TIMESTAMP_TYPE = pa.timestamp("us", tz="UTC")

SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", TIMESTAMP_TYPE),
        pa.field("timestampType", pa.int32()),
    ]
)
SCHEMA_WITH_HEADERS = SCHEMA.append(pa.field("headers", HEADERS_TYPE))


def binary_column(buffer: pa.Buffer, slices: FieldSlices) -> pa.Array:
    """Copy fields out of a buffer that holds them in order."""
    size = len(slices.at)
    is_null = slices.lengths < 0
    nulls = int(np.count_nonzero(is_null))
    if nulls == size:
        return pa.nulls(size, pa.binary())
    offsets = np.empty(size * 2, np.int32)
    offsets[::2] = slices.at
    np.add(slices.at, np.maximum(slices.lengths, 0), out=offsets[1::2], casting="same_kind")
    whole = pa.Array.from_buffers(
        pa.binary(), size * 2 - 1, [None, pa.py_buffer(offsets), buffer], 0
    )
    column = whole.take(pa.array(np.arange(0, size * 2, 2, dtype=np.int32)))
    if nulls:
        _, offsets_buffer, values = column.buffers()
        column = pa.Array.from_buffers(
            pa.binary(), size, [_bitmap(~is_null), offsets_buffer, values], nulls
        )
    return column


def int_column(values: Ints) -> pa.Array:
    """Turn 64-bit numbers into a column, without copying them."""
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)], 0)


def timestamp_column(milliseconds: Ints) -> pa.Array:
    """Turn Kafka's timestamps into Spark's, which are in microseconds."""
    check_timestamps(int(milliseconds.min(initial=0)), int(milliseconds.max(initial=0)))
    microseconds = pa.py_buffer(milliseconds * _US_PER_MS)
    return pa.Array.from_buffers(TIMESTAMP_TYPE, len(milliseconds), [None, microseconds], 0)


def check_timestamps(*milliseconds: int) -> None:
    """Refuse timestamps that Spark cannot hold, as its own Kafka source does."""
    for timestamp in milliseconds:
        if not INT64_MIN <= timestamp * _US_PER_MS <= INT64_MAX:
            raise InvalidRecord(f"the timestamp {timestamp} is too large in microseconds")


def headers_column(buffer: pa.Buffer, headers: Headers, counts: Ints) -> pa.Array:
    """Copy the headers out of a buffer; ArrowInvalid if a key is not UTF-8."""
    size = len(counts)
    has_headers = counts > 0
    if not has_headers.any():
        return pa.nulls(size, HEADERS_TYPE)
    keys = binary_column(buffer, headers.keys).cast(pa.string())
    values = binary_column(buffer, headers.values)
    elements = pa.StructArray.from_arrays([keys, values], fields=list(HEADER_TYPE))
    offsets = np.zeros(size + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pa.Array.from_buffers(
        HEADERS_TYPE,
        size,
        [_bitmap(has_headers), pa.py_buffer(offsets)],
        children=[elements],
    )


def headers_of_records(headers: Sequence[tuple[Header, ...]]) -> pa.Array:
    """Turn the headers of records that were read one by one into a column."""
    rows = [[{"key": key, "value": value} for key, value in row] or None for row in headers]
    return pa.array(rows, HEADERS_TYPE)


def same_column(value: str | int, size: int) -> pa.Array:
    """Make a column that repeats one text or 32-bit number."""
    type = pa.string() if isinstance(value, str) else pa.int32()
    return pa.repeat(pa.scalar(value, type), size)


def _bitmap(is_valid: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(is_valid, bitorder="little"))
