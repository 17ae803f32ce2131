"""From columns of rows to the records of batches, with Arrow and numpy instead of a loop over rows.

Each record is assembled from pieces: what comes before its key, the key, the length of its value,
the value, the headers. The numbers among them are varints, which are computed for all rows at once;
then Arrow joins the pieces of each row, and the memory of the joined column is the records of all
batches, one after the other.

Numbers pass between Arrow and numpy as memory: Arrow's own conversions import pandas, which would
double the start-up time of a worker process.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dohle.records.builder import encode_headers

Ints = npt.NDArray[np.int64]

_GROUP_BITS = 7
_MORE = 0x80
_NULL_LENGTH = -1
_M = np.uint32(0x5BD1E995)
_SEED = 0x9747B28C


def lengths_of(column: pa.Array) -> Ints:
    """Return the length of each value of a binary column, -1 for null."""
    return numbers_of(pc.binary_length(column), _NULL_LENGTH)


def numbers_of(column: pa.Array, for_null: int = 0) -> Ints:
    """Return the numbers of an integer or boolean column, as a read-only array."""
    column = column.cast(pa.int64())
    rows = len(column)
    if not rows:
        return np.zeros(0, dtype=np.int64)
    found = np.frombuffer(column.buffers()[1], dtype=np.int64)[column.offset : column.offset + rows]
    if column.null_count:
        found = np.where(numbers_of(pc.is_null(column)), for_null, found)
    return found


def column_of(numbers: Ints) -> pa.Array:
    """Return numbers as a column."""
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def _text(value: bytes) -> pa.Scalar:
    offsets = np.array([0, len(value)], dtype=np.int32)
    return pa.Array.from_buffers(
        pa.binary(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(value)]
    )[0]


_EMPTY = _text(b"")
_NO_HEADERS = _text(b"\x00")


def encode_records(
    keys: pa.Array | None,
    values: pa.Array,
    timestamps: Ints,
    headers: pa.Array | None,
    starts: Ints,
) -> tuple[memoryview, Ints]:
    """Return the records of batches that begin at these rows, and where each row's record begins.

    The list of positions has one more entry: where the last record ends.
    """
    rows = len(values)
    sizes = np.diff(np.append(starts, rows))
    first = np.repeat(starts, sizes)
    pieces: list[Any] = []
    before_key = [timestamps - timestamps[first], np.arange(rows, dtype=np.int64) - first]
    value_lengths = lengths_of(values)
    if keys is None:
        before_key += [np.full(rows, _NULL_LENGTH, dtype=np.int64), value_lengths]
        key_lengths = None
    else:
        key_lengths = lengths_of(keys)
        before_key.append(key_lengths)
    numbers = [_zigzag(each) for each in before_key]
    body = 1 + sum(_varint_sizes(each) for each in numbers) + np.maximum(value_lengths, 0)
    if key_lengths is not None:
        body += np.maximum(key_lengths, 0) + _varint_sizes(_zigzag(value_lengths))
    if headers is None:
        body += 1
    else:
        body += lengths_of(headers)
    attributes = np.zeros(rows, dtype=np.uint64)
    pieces.append(_varints(_zigzag(body), attributes, *numbers))
    if key_lengths is not None:
        pieces += [keys, _varints(_zigzag(value_lengths))]
    pieces += [values, _NO_HEADERS if headers is None else headers]
    joined = pc.binary_join_element_wise(
        *pieces, _EMPTY, null_handling="replace", null_replacement=b""
    )
    _, offsets, data = joined.buffers()
    places = np.frombuffer(offsets, dtype=np.int32)[joined.offset : joined.offset + rows + 1]
    return memoryview(data), places.astype(np.int64)


def encode_header_column(column: pa.Array) -> pa.Array:
    """Encode each row's headers, in a loop over the rows that have some."""
    encoded = [
        b"\x00"
        if not headers
        else encode_headers((each["key"], each["value"]) for each in headers if each is not None)
        for headers in column.to_pylist()
    ]
    return pa.array(encoded, pa.binary())


def partitions_of_keys(keys: pa.Array, partitions: int) -> Ints:
    """Return the partition that Kafka's producers choose for each key; any number for null."""
    return (murmur2_of(keys) & 0x7FFFFFFF).astype(np.int64) % partitions


def murmur2_of(keys: pa.Array) -> npt.NDArray[np.uint32]:
    """Return the hash of each value of a binary column, unsigned."""
    _, offset_buffer, data_buffer = keys.buffers()
    rows = len(keys)
    if not rows:
        return np.zeros(0, dtype=np.uint32)
    offsets = np.frombuffer(offset_buffer, dtype=np.int32)[keys.offset : keys.offset + rows + 1]
    begin = offsets[:-1].astype(np.int64)
    length = np.diff(offsets).astype(np.int64)
    # Three bytes more, so that the last word of a key can be read whole.
    data = np.zeros(int(offsets[-1]) + 4, dtype=np.uint8)
    if data_buffer is not None:
        data[:-4] = np.frombuffer(data_buffer, dtype=np.uint8, count=int(offsets[-1]))
    hashes: npt.NDArray[np.uint32] = np.uint32(_SEED) ^ length.astype(np.uint32)
    words = length >> 2
    for word in range(int(words.max())):
        has_it = np.flatnonzero(words > word)
        k = _word_at(data, begin[has_it] + 4 * word) * _M
        k = (k ^ (k >> np.uint32(24))) * _M
        hashes[has_it] = (hashes[has_it] * _M) ^ k
    rest = length & 3
    has_rest = np.flatnonzero(rest)
    left = rest[has_rest]
    mask = ((np.uint64(1) << (8 * left).astype(np.uint64)) - np.uint64(1)).astype(np.uint32)
    tail = _word_at(data, begin[has_rest] + 4 * words[has_rest]) & mask
    hashes[has_rest] = (hashes[has_rest] ^ tail) * _M
    hashes = (hashes ^ (hashes >> np.uint32(13))) * _M
    return hashes ^ (hashes >> np.uint32(15))


def _word_at(data: npt.NDArray[np.uint8], places: Ints) -> npt.NDArray[np.uint32]:
    word = data[places].astype(np.uint32)
    for byte in (1, 2, 3):
        word |= data[places + byte].astype(np.uint32) << np.uint32(8 * byte)
    return word


def _zigzag(numbers: Ints) -> npt.NDArray[np.uint64]:
    return ((numbers << 1) ^ (numbers >> 63)).astype(np.uint64)


def _varint_sizes(numbers: npt.NDArray[np.uint64]) -> Ints:
    sizes = np.ones(len(numbers), dtype=np.int64)
    largest = int(numbers.max(initial=0))
    for bits in range(_GROUP_BITS, largest.bit_length(), _GROUP_BITS):
        sizes += numbers >= (1 << bits)
    return sizes


def _varints(*columns: npt.NDArray[np.uint64]) -> pa.Array:
    """Return for each row the varints of all columns, joined."""
    rows = len(columns[0])
    fields: list[npt.NDArray[np.uint8]] = []
    masks: list[npt.NDArray[np.bool_]] = []
    total = np.zeros(rows, dtype=np.int64)
    for numbers in columns:
        sizes = _varint_sizes(numbers)
        total += sizes
        for byte in range(int(sizes.max(initial=1))):
            low = ((numbers >> np.uint64(_GROUP_BITS * byte)) & np.uint64(0x7F)).astype(np.uint8)
            fields.append(np.where(sizes > byte + 1, low | _MORE, low).astype(np.uint8))
            masks.append(sizes > byte)
    matrix = np.column_stack(fields)
    flat = matrix[np.column_stack(masks)] if int(total.sum()) != matrix.size else matrix.ravel()
    offsets = np.zeros(rows + 1, dtype=np.int32)
    np.cumsum(total, out=offsets[1:])
    return pa.Array.from_buffers(
        pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(flat.tobytes())]
    )
