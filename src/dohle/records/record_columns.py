"""The keys of a batch's records, and where each record is, without making record objects.

For who decides by keys and then copies records as they are: compaction. Records of one size, which
producers often send, are taken by columns (``checking.equal_run``), others one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from struct import iter_unpack
from typing import NamedTuple

from dohle.records.checking.equal_run import scan_equal_run
from dohle.records.checking.one_by_one import Template
from dohle.records.errors import InvalidRecord
from dohle.records.record import ONE_BYTE_VARINTS
from dohle.records.varint import encode_varint, read_varint, read_varlong

#: Trying a run costs as much as following some records singly.
_RUN_MIN = 24
#: How many records of one size in a row let a run be tried.
_ALIKE_MIN = 3
_NULL = 1


class RecordColumns(NamedTuple):
    """The records of a batch, by columns."""

    keys: list[bytes | None]
    offset_deltas: Sequence[int]
    #: Where each begins, and where the last ends.
    positions: Sequence[int]
    #: The numbers of those whose value is null.
    null_values: list[int]
    has_null_key: bool
    #: Whether all have the base timestamp of their batch.
    has_base_timestamp: bool = False


def _keys_of_run(
    run: memoryview, count: int, size: int, key_at: int, length: int
) -> Iterable[bytes | None]:
    """Return the keys of records of one size, each at the same place of its record."""
    if length <= 0:
        return [None if length < 0 else b""] * count
    form = f"{key_at}x{length}s{size - key_at - length}x"
    return chain.from_iterable(iter_unpack(form, run))


def record_columns(data: bytes, count: int) -> RecordColumns:
    """Read ``count`` records, which must fill ``data``; else InvalidRecord."""
    keys: list[bytes | None] = []
    deltas: list[int] = []
    positions: list[int] = []
    null_values: list[int] = []
    has_null_key, has_base_timestamp = False, True
    end = len(data)
    one_byte = ONE_BYTE_VARINTS
    index = position = size = alike = 0
    alike_min = 1
    try:
        while index < count:
            start = position
            if (length := one_byte[data[position]]) is None:
                length, position = read_varint(data, position)
            else:
                position += 1
            record_end = position + length
            if length < 0 or record_end > end:
                raise InvalidRecord(f"{length} bytes of record at byte {position} of {end}")
            timestamp_at = position = position + 1
            if data[position]:
                has_base_timestamp = False
                while data[position] >= 0x80:
                    position += 1
            position += 1
            offset_at = position
            if (delta := one_byte[data[position]]) is None:
                delta, position = read_varint(data, position)
            else:
                position += 1
            key_at = position
            if (length := one_byte[data[position]]) is None:
                length, position = read_varint(data, position)
            else:
                position += 1
            key_end = position
            if length >= 0:
                position += length
                keys.append(data[key_end:position])
            else:
                keys.append(None)
                has_null_key = True
            value_at = position
            if (value_length := one_byte[data[position]]) is None:
                value_length, position = read_varint(data, position)
            else:
                position += 1
            if value_length >= 0:
                value_end = position
                position += value_length
            else:
                value_end = position
                null_values.append(index)
            if position >= record_end:
                raise InvalidRecord(f"the record at byte {start} is longer than it says")
            headers, position = data[position], record_end
            deltas.append(delta)
            positions.append(start)
            index += 1
            if record_end - start != size:
                size, alike = record_end - start, 1
            else:
                alike += 1
            if alike < alike_min or headers or count - index < _RUN_MIN or delta != index - 1:
                continue
            template: Template = (
                start,
                size,
                timestamp_at,
                offset_at,
                key_at,
                key_end,
                value_at,
                value_end,
            )
            found, low, high = scan_equal_run(data, end, template, index, count, 0, 0)
            if not found:
                alike, alike_min = 0, alike_min * 2 + _ALIKE_MIN
                continue
            if low or high:
                has_base_timestamp = False
            alike, alike_min = 0, 1
            stop = position + found * size
            run = memoryview(data)[position:stop]
            keys += _keys_of_run(run, found, size, key_end - start, length)
            deltas += range(index, index + found)
            positions += range(position, stop, size)
            if value_length < 0:
                null_values += range(index, index + found)
            index += found
            position = stop
    except IndexError:
        raise InvalidRecord(f"a record runs past the end of {end} bytes of records") from None
    if position != end:
        raise InvalidRecord(f"{end - position} bytes follow the {count} records of a batch")
    positions.append(end)
    return RecordColumns(
        keys, deltas, positions, null_values, has_null_key, has_base_timestamp and count > 0
    )


def timestamp_deltas(data: bytes, positions: Sequence[int]) -> list[int]:
    """Return the timestamp deltas of the records that begin at some positions."""
    one_byte = ONE_BYTE_VARINTS
    deltas: list[int] = []
    for position in positions:
        while data[position] >= 0x80:
            position += 1
        # Behind the length, and the attributes.
        position += 2
        if (delta := one_byte[first := data[position]]) is None:
            if (second := data[position + 1]) < 0x80:
                delta = (first >> 1 & 0x3F | second << 6) ^ -(first & 1)
            else:
                delta, _ = read_varlong(data, position)
        deltas.append(delta)
    return deltas


def with_timestamp_delta(record: bytes, delta: int) -> bytes:
    """Return a record with another timestamp delta; the rest of it stays as it is."""
    _, position = read_varint(record, 0)
    attributes = record[position : position + 1]
    position += 1
    while record[position] >= 0x80:
        position += 1
    changed = encode_varint(delta)
    rest = record[position + 1 :]
    return encode_varint(1 + len(changed) + len(rest)) + attributes + changed + rest


def with_timestamp_deltas(
    data: bytes, positions: Sequence[int], numbers: Sequence[int], deltas: Sequence[int]
) -> list[bytes]:
    """Return the records of some numbers with other timestamp deltas, in pieces."""
    pieces: list[bytes] = []
    add = pieces.append
    encoded: dict[int, bytes] = {}
    for number, delta in zip(numbers, deltas, strict=True):
        start, end = positions[number], positions[number + 1]
        at = start
        while data[at] >= 0x80:
            at += 1
        # Behind the length, and the attributes.
        at += 2
        behind = at
        while data[behind] >= 0x80:
            behind += 1
        behind += 1
        if (changed := encoded.get(delta)) is None:
            changed = encoded[delta] = encode_varint(delta)
        if len(changed) == behind - at:
            add(data[start:at])
            add(changed)
            add(data[behind:end])
        else:
            # Then the record has another length, too.
            add(with_timestamp_delta(data[start:end], delta))
    return pieces
