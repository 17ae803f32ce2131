"""Many records are read at once: what producers write is, and what is found is right."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from dohle.records.batch import HEADER_SIZE, RecordBatch
from dohle.records.builder import BatchBuilder
from dohle.records.columnar.fields import (
    PADDING,
    FieldSlices,
    Memory,
    Span,
    Unusual,
    read_fields,
    read_headers,
    read_varints,
    record_starts,
)
from dohle.records.record import Record
from dohle.records.varint import encode_varint, read_varint
from tests.records.framing import framed

NOW_MS = 1_700_000_000_000

Write = Callable[[list[Record]], bytes]

thorough = settings(max_examples=100)

#: Numbers around those at which varints become a byte wider.
bounds = st.builds(
    lambda bits, near, sign: sign * (1 << bits) + near,
    bits=st.integers(0, 30),
    near=st.integers(-2, 2),
    sign=st.sampled_from([-1, 1]),
)


@given(numbers=st.lists(bounds | st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=50))
@thorough
def test_varints_of_all_widths_are_read(numbers: list[int]) -> None:
    encoded = [encode_varint(number) for number in numbers]
    ends = np.cumsum([len(each) for each in encoded])
    starts = ends - [len(each) for each in encoded]
    values, behind = read_varints(Memory(b"".join((*encoded, PADDING))), starts)
    assert values.tolist() == numbers
    assert behind.tolist() == ends.tolist()


@pytest.mark.parametrize("number", [2**55 - 1, -(2**55)])
def test_varlongs_are_read_up_to_eight_bytes(number: int) -> None:
    at = np.zeros(1, np.int64)
    values, behind = read_varints(Memory(encode_varint(number) + PADDING), at, 64)
    assert (values[0], behind[0]) == (number, 8)
    with pytest.raises(Unusual):
        read_varints(Memory(encode_varint(number * 2 + 1) + PADDING), at, 64)


@pytest.mark.parametrize(
    "data", [b"\xff" * 8, b"\x80\x80\x80\x80\x80\x00", b"\xff\xff\xff\xff\x7f"]
)
def test_what_is_no_varint_of_32_bits_is_not_read(data: bytes) -> None:
    with pytest.raises(Unusual):
        read_varints(Memory(data + PADDING), np.zeros(1, np.int64))


def test_nothing_is_read_behind_the_memory() -> None:
    for data, at in ((PADDING, len(PADDING)), (PADDING, 1 << 40), (b"\x80" + PADDING, 2)):
        with pytest.raises(Unusual):
            read_varints(Memory(data), np.array([0, at]))


sizes = st.lists(
    st.tuples(st.sampled_from([0, 6, 62, 63, 64, 65, 8190, 8191, 8192]), st.integers(1, 40))
    | st.tuples(st.integers(0, 200), st.just(1)),
    min_size=1,
    max_size=12,
)


@given(batches=st.lists(sizes, min_size=1, max_size=5))
@thorough
def test_lengths_are_followed_through_all_batches(batches: list[list[tuple[int, int]]]) -> None:
    data = bytearray()
    spans: list[Span] = []
    expected: list[int] = []
    for runs in batches:
        begin, first = len(data), len(expected)
        for size, times in runs:
            for _ in range(times):
                expected.append(len(data))
                data += encode_varint(size) + bytes([0xFF]) * size
        spans.append(Span(begin, len(data), len(expected) - first))
    records = bytes(data + PADDING)
    assert record_starts(records, spans).tolist() == expected
    begin, end, count = spans[-1]
    for wrong in (Span(begin, end, count + 1), Span(begin, end - 1, count)):
        with pytest.raises(Unusual):
            record_starts(records, [*spans[:-1], wrong])


@pytest.mark.parametrize(
    "length",
    [b"\x0b", b"\x81\x01", encode_varint(-(2**20)), encode_varint(2**20), b"\xff" * 6],
    ids=["negative", "two bytes", "three bytes", "too long", "endless"],
)
@pytest.mark.parametrize("before", [0, 1, 3, 30])
@pytest.mark.parametrize("size", [0, 5, 62, 64, 66])
def test_a_length_that_cannot_be_is_not_followed(length: bytes, before: int, size: int) -> None:
    good = encode_varint(5) + bytes(5)
    data = good * before + length + bytes(size)
    for count in (before + 1, before + 2, before + 1 + size):
        with pytest.raises(Unusual):
            record_starts(data + PADDING, [Span(0, len(data), count)])


def test_a_length_that_leads_back_is_not_followed() -> None:
    inner = encode_varint(6) + bytes(2)  # it spans what is left of its record and all of the next
    outer = encode_varint(len(inner) + 1) + b"\x00" + inner
    back = b"\x8b\x80\x00"
    assert len(outer + back) + read_varint(back, 0)[0] == outer.index(inner)
    data = outer + back + bytes(1)
    with pytest.raises(Unusual):
        record_starts(data + PADDING, [Span(0, len(data), 3)])


GOOD = b"\x00\x00\x00\x02k\x02v\x00"
WITH_HEADER = b"\x00\x00\x00\x02k\x02v\x02\x02h\x01"


@pytest.mark.parametrize(
    "body",
    [
        GOOD + b"!",
        GOOD[:-1],
        b"\x00\x00\x00\x02k\x20v\x00",
        b"\x00\x00\x00" + encode_varint(2**31 - 1) + b"\x02v\x00",
        b"\x00\x00\x00\x02k" + encode_varint(2**31 - 1) + b"\x00",
        b"\x00\x00\x00\x02k\x02v\x01",
        b"\x00\x00\x00\x02k\x02v" + encode_varint(2**31 - 1),
        # What follows is taken for its value and its headers.
        b"\x00\x00\x00\x02k" + encode_varint(len(WITH_HEADER) - 3),
    ],
    ids=[
        "a byte too many",
        "a byte too few",
        "a value beyond its end",
        "a huge key",
        "a huge value",
        "a negative number of headers",
        "very many headers",
        "headers of the next",
    ],
)
@pytest.mark.parametrize("is_last", [False, True])
def test_a_record_that_breaks_the_format_is_not_read(body: bytes, is_last: bool) -> None:
    bodies = [GOOD, body] if is_last else [GOOD, body, WITH_HEADER]
    data = b"".join(framed(each) for each in bodies)
    starts = record_starts(data + PADDING, [Span(0, len(data), len(bodies))])
    with pytest.raises(Unusual):
        read_fields(Memory(data + PADDING), starts, np.append(starts[1:], len(data)))


@pytest.mark.parametrize(
    "headers",
    [b"\x02\x02h\x01!", b"\x02\x04h\x01", b"\x02\x02h\x02", b"\x04\x01\x02h\x01", b"\x02\x03\x02"],
    ids=["a byte too many", "too long a key", "too long a value", "no key", "a key behind itself"],
)
def test_headers_that_break_the_format_are_not_read(headers: bytes) -> None:
    data = framed(WITH_HEADER) + framed(GOOD[:-1] + headers) + framed(WITH_HEADER)
    memory = Memory(data + PADDING)
    starts = record_starts(memory.data, [Span(0, len(data), 3)])
    fields = read_fields(memory, starts, np.append(starts[1:], len(data)))
    with pytest.raises(Unusual):
        read_headers(memory, fields)


def samples() -> list[Record]:
    rng = random.Random(3)
    many = tuple((f"h{n}", None if n % 3 else b"x" * n) for n in range(64))
    return [
        Record(0, NOW_MS, b"key", b"value"),
        Record(1, NOW_MS - 5, None, b"no key", (("trace", b"\x00\x01"), ("trace", b"again"))),
        Record(2, NOW_MS + 2**48, b"tombstone", None, (("größe-鍵", None),)),
        Record(3, 0, None, None, (("", b""),)),
        Record(4, NOW_MS, b"", b"", many),
        Record(5, NOW_MS, b"k" * 10_000, rng.randbytes(3 << 20)),
        *(Record(n, NOW_MS + n, b"%d" % n, b"value %d" % n) for n in range(6, 9000)),
    ]


def of(data: bytes, slices: FieldSlices) -> list[bytes | None]:
    return [
        None if length < 0 else data[at : at + length]
        for at, length in zip(slices.at.tolist(), slices.lengths.tolist(), strict=True)
    ]


def dohle_writes(records: list[Record]) -> bytes:
    builder = BatchBuilder()
    for record in records:
        builder.append(*record[1:])
    return bytes(builder.build())


def aiokafka_writes(records: list[Record]) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 16 << 20)
    for offset, timestamp, key, value, headers in records:
        builder.append(offset, timestamp, key, value, list(headers))
    return bytes(builder.build())


@pytest.mark.parametrize("write", [dohle_writes, aiokafka_writes])
def test_what_producers_write_is_read_together(write: Write) -> None:
    expected = samples()
    batch = RecordBatch(memoryview(write(expected)))
    data = bytes(batch.buffer[HEADER_SIZE:]) + PADDING
    end = len(data) - len(PADDING)
    memory = Memory(data)
    starts = record_starts(data, [Span(0, end, batch.record_count)])
    fields = read_fields(memory, starts, np.append(starts[1:], end))
    headers = read_headers(memory, fields)
    assert fields.offset_deltas.tolist() == [record.offset for record in expected]
    timestamps = fields.timestamp_deltas + batch.base_timestamp
    assert timestamps.tolist() == [record.timestamp for record in expected]
    assert of(data, fields.keys) == [record.key for record in expected]
    assert of(data, fields.values) == [record.value for record in expected]
    assert fields.header_counts.tolist() == [len(record.headers) for record in expected]
    keys = [name.encode() for record in expected for name, _ in record.headers]
    values = [value for record in expected for _, value in record.headers]
    assert (of(data, headers.keys), of(data, headers.values)) == (keys, values)
