"""Scanning records: it must see in a batch exactly what decoding sees."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dohle.records.batch import HEADER_SIZE
from dohle.records.builder import BatchBuilder
from dohle.records.checking.columns import offset_columns
from dohle.records.checking.record_scan import Summary
from dohle.records.errors import InvalidRecord
from dohle.records.varint import encode_varint, read_varint
from tests.records.checking.scanned import (
    NOW_MS,
    assert_is_scanned_as_decoded,
    decoded_summary,
    scan_records,
)

#: Records alike: how many, key size (-1 for none), value size, timestamp step, headers.
runs = st.tuples(
    st.integers(1, 90),
    st.integers(-1, 70),
    st.sampled_from([-1, 0, 1, 20, 61, 64, 200, 8200]),
    st.sampled_from([0, 1, -1, 40, 5000, 1 << 33]),
    st.booleans(),
)


def records_of(groups: list[tuple[int, int, int, int, bool]]) -> tuple[bytes, int]:
    builder = BatchBuilder()
    timestamp = NOW_MS
    for number, key, value, step, has_headers in groups:
        for _ in range(number):
            builder.append(
                timestamp,
                None if key < 0 else b"k" * key,
                None if value < 0 else b"v" * value,
                (("name", b"x"), ("ü", None)) if has_headers else (),
            )
            timestamp += step
    return bytes(builder.build()[HEADER_SIZE:]), builder.record_count


def starts_of(data: bytes) -> list[int]:
    starts, position = [], 0
    while position < len(data):
        starts.append(position)
        length, position = read_varint(data, position)
        position += length
    return starts


@given(groups=st.lists(runs, min_size=1, max_size=6))
def test_sound_records_are_summed_up_as_decoding_shows_them(
    groups: list[tuple[int, int, int, int, bool]],
) -> None:
    data, count = records_of(groups)
    assert decoded_summary(data, count, NOW_MS) is not None
    assert_is_scanned_as_decoded(data, count)


@given(
    groups=st.lists(runs, min_size=1, max_size=4),
    damage=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=3),
    more=st.integers(-2, 2),
    cut=st.integers(0, 3),
)
def test_damaged_records_are_refused_exactly_when_decoding_refuses_them(
    groups: list[tuple[int, int, int, int, bool]],
    damage: list[tuple[int, int]],
    more: int,
    cut: int,
) -> None:
    sound, count = records_of(groups)
    data = bytearray(sound)
    for position, byte in damage:
        data[position % len(data)] = byte
    damaged, count = bytes(data[: len(data) - cut]), max(1, count + more)
    assert_is_scanned_as_decoded(damaged, count)


@given(
    column=st.integers(-1, 12),  # -1 is the last byte of the record before
    row=st.integers(0, 299),
    byte=st.integers(0, 255),
    timestamp_step=st.sampled_from([0, 1, 100]),
)
def test_one_wrong_byte_in_a_long_run_is_seen(
    column: int, row: int, byte: int, timestamp_step: int
) -> None:
    data, count = records_of([(300, 4, 80, timestamp_step, False)])
    damaged = bytearray(data)
    damaged[starts_of(data)[row] + column] = byte
    assert_is_scanned_as_decoded(bytes(damaged), count)


@given(
    sizes=st.lists(st.tuples(st.integers(-1, 12), st.integers(1, 40)), min_size=1, max_size=8),
    padding=st.integers(0, 60),
)
def test_fields_that_lie_elsewhere_in_records_of_one_size_are_followed(
    sizes: list[tuple[int, int]], padding: int
) -> None:
    # A null key takes as many bytes as an empty one, so only keys and values move.
    total = 12 + padding
    groups = [(number, key, total - max(key, 0), 0, False) for key, number in sizes]
    assert_is_scanned_as_decoded(*records_of(groups))


#: Timestamp deltas by how many bytes they take; the widest two are scanned singly.
deltas_of_width = (
    st.integers(-64, 63),
    st.integers(64, 8191) | st.integers(-8192, -65),
    st.integers(8192, (1 << 20) - 1) | st.integers(-1 << 20, -8193),
    st.integers(1 << 33, (1 << 34) - 1) | st.integers(-1 << 34, (-1 << 33) - 1),
    st.integers(1 << 54, (1 << 55) - 1),
    st.integers(1 << 55, (1 << 62) - 1),
    st.integers(1 << 62, (1 << 63) - 1 - NOW_MS),
)


@st.composite
def timestamp_deltas(draw: st.DrawFn) -> list[int]:
    some = st.one_of(draw(st.lists(st.sampled_from(deltas_of_width), min_size=1, max_size=2)))
    return draw(st.lists(some, min_size=26, max_size=70))


@given(
    deltas=timestamp_deltas(),
    byte=st.none() | st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)),
)
def test_the_first_and_the_last_timestamp_are_found_wherever_they_stand(
    deltas: list[int], byte: tuple[int, int] | None
) -> None:
    data = bytearray()
    for index, delta in enumerate(deltas):
        body = b"\0" + encode_varint(delta) + encode_varint(index) + b"\x02k\x02v\0"
        data += encode_varint(len(body)) + body
    if byte is not None:
        data[byte[0] % len(data)] = byte[1]
    assert_is_scanned_as_decoded(bytes(data), len(deltas))


@cache
def many_small_records() -> tuple[bytes, list[int]]:
    data, _ = records_of([(65_600, -1, 0, 0, False)])
    return data, [*starts_of(data), len(data)]


def assert_a_changed_byte_is_seen(bound: int, row: int, column: int, byte: int, more: int) -> None:
    data, starts = many_small_records()
    count = bound + more
    damaged = bytearray(data[: starts[count]])
    damaged[(starts[bound + row] + column) % len(damaged)] = byte
    assert_is_scanned_as_decoded(bytes(damaged), count)


rows, columns, any_byte = st.integers(-30, 30), st.integers(-1, 8), st.integers(0, 255)


@pytest.mark.slow
@given(
    bound=st.sampled_from([64, 4096 + 64, 8192]),
    row=rows,
    column=columns,
    byte=any_byte,
    more=st.integers(31, 60),
)
def test_a_wrong_byte_is_seen_where_offset_deltas_or_runs_change(
    bound: int, row: int, column: int, byte: int, more: int
) -> None:
    assert_a_changed_byte_is_seen(bound, row, column, byte, more)


@pytest.mark.slow
@settings(max_examples=12)  # each decodes 65,600 records
@given(
    key=st.integers(-1, 70),
    value=st.sampled_from([-1, 0, 1, 61, 63, 64, 200, 8200]),
    has_headers=st.booleans(),
    places=st.lists(st.tuples(st.integers(0, 300), any_byte), max_size=2),
    cut=st.integers(0, 3),
)
def test_a_record_that_comes_alone_is_scanned_as_decoded_also_when_damaged(
    key: int, value: int, has_headers: bool, places: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(records_of([(1, key, value, 0, has_headers)])[0])
    for place, byte in places:
        data[place % len(data)] = byte
    for damaged in (bytes(data), bytes(data[: len(data) - cut]), bytes(data) + bytes(cut)):
        assert_is_scanned_as_decoded(damaged, 1)


@given(row=rows, column=columns, byte=any_byte)
def test_a_wrong_byte_is_seen_where_runs_end_for_good(row: int, column: int, byte: int) -> None:
    assert_a_changed_byte_is_seen(65_536, row, column, byte, 64)


@pytest.mark.parametrize(
    ("first", "count", "width"),
    [
        (0, 64, 1),
        (64, 8128, 2),
        (8192, 8192, 3),
        (16_300, 84, 3),
        ((1 << 20) - 5, 5, 3),
        (1 << 20, 8192, 4),
        ((1 << 27) - 100, 100, 4),
        (1 << 27, 8192, 5),
    ],
)
def test_the_columns_of_offset_deltas_are_those_of_their_varints(
    first: int, count: int, width: int
) -> None:
    rows = zip(*offset_columns(first, count, width), strict=True)
    assert [bytes(row) for row in rows] == [encode_varint(first + i) for i in range(count)]


@pytest.mark.parametrize("length", [8192, (1 << 20) - 5, 1 << 20])
def test_lengths_of_three_and_four_bytes_are_read(length: int) -> None:
    assert_is_scanned_as_decoded(*records_of([(3, -1, length, 1, False), (3, length, 1, 0, True)]))


@pytest.mark.parametrize("count", range(18, 34))
def test_few_records_are_scanned_like_many(count: int) -> None:
    data, _ = records_of([(count, 4, 900, 3, False)])
    assert scan_records(data, count, NOW_MS) == Summary(
        NOW_MS, NOW_MS + 3 * (count - 1), True, False
    )
    assert_is_scanned_as_decoded(data, count + 1)


def test_runs_are_followed_across_the_widths_of_offset_deltas() -> None:
    data, count = records_of([(70_000, 1, 3, 0, False)])
    assert scan_records(data, count, NOW_MS) == Summary(NOW_MS, NOW_MS, True, False)


def test_a_wider_offset_delta_does_not_hide_in_a_record_of_the_same_size() -> None:
    # The sizes differ up to the last four before the width changes, so that a run is tried there.
    before = [(1, 1, 5 + index % 2, 0, False) for index in range(60)]
    data, count = records_of([*before, (4, 1, 20, 0, False), (64, 1, 19, 0, False)])
    assert scan_records(data, count, NOW_MS) == Summary(NOW_MS, NOW_MS, True, False)


def test_offset_deltas_in_more_bytes_than_needed_are_read_like_others() -> None:
    data = b""
    for index in range(40):
        body = bytes((0, 0, index * 2 | 0x80, 0)) + b"\x02k\x02v\x00"
        data += encode_varint(len(body)) + body
    assert scan_records(data, 40, NOW_MS) == Summary(NOW_MS, NOW_MS, True, False)
    assert decoded_summary(data, 40, NOW_MS) == Summary(NOW_MS, NOW_MS, True, False)


def framed(*bodies: bytes) -> bytes:
    return b"".join(encode_varint(len(body)) + body for body in bodies)


def padded(value: int, width: int) -> bytes:
    """Encode a varint in more bytes than it needs."""
    short = encode_varint(value)
    more = bytes(byte | 0x80 for byte in short) + b"\x80" * (width - len(short))
    return more[:-1] + bytes((more[-1] & 0x7F,))


@pytest.mark.parametrize("width", range(2, 8))
def test_varints_may_take_all_the_bytes_they_are_allowed_and_no_more(width: int) -> None:
    data = b""
    for index in range(40):
        body = b"\0" + padded(-index, 2 * width) + padded(index, width)
        body += (padded(2, width) + b"kv") * 2 + b"\0"
        data += padded(len(body), width) + body
    assert (decoded_summary(data, 40, NOW_MS) is None) is (width > 5)
    assert_is_scanned_as_decoded(data, 40)


# Records that look framed alike column by column, though they read differently one by one


def test_a_timestamp_that_takes_the_offset_delta_for_its_end_is_not_cut_short() -> None:
    # Read as the others are: key of two bytes, value of four. With the longer timestamp the key's
    # length becomes the offset delta, 2; the key is empty, and the value has five bytes.
    bodies = [bytes((0, 0, index * 2, 4, 0, 10, 8)) + b"four\0" for index in range(60)]
    bodies[30] = b"\0\x80" + bodies[30][2:]
    data = framed(*bodies)
    expected = decoded_summary(data, 60, NOW_MS)
    assert expected is not None
    assert not expected.is_consecutive
    assert_is_scanned_as_decoded(data, 60)


def test_a_timestamp_that_ends_before_the_last_column_is_not_made_longer() -> None:
    # Read as the others are: no bytes of key, 50 of value. With the shorter timestamp its second
    # byte is the offset delta, and the offset delta says how long the key is.
    bodies = [bytes((0, 0x80, 2, index * 2, 0, 100)) + b"v" * 50 + b"\0" for index in range(60)]
    key_end = 4 + 30
    value = bytes((2 * (len(bodies[30]) - key_end - 2),))
    body = b"\0\x10" + bodies[30][2:]
    bodies[30] = body[:key_end] + value + body[key_end + 1 :]
    data = framed(*bodies)
    expected = decoded_summary(data, 60, NOW_MS)
    assert expected is not None
    assert not expected.is_consecutive
    assert_is_scanned_as_decoded(data, 60)


def test_a_null_key_is_not_taken_for_the_end_of_a_wider_offset_delta() -> None:
    # The sizes differ up to the last four before the width changes, so that a run is tried there.
    bodies = [bytes((0, 0, index * 2, 1, 8)) + b"four\0" for index in range(64)]
    bodies[:60] = [
        bytes((0, 0, index * 2, 1, 2 + index % 2 * 2)) + b"v" * (1 + index % 2) + b"\0"
        for index in range(60)
    ]
    bodies += [bytes((0, 0, index * 2 & 0x7F | 0x80, 1, 8)) + b"four\0" for index in range(64, 100)]
    assert_is_scanned_as_decoded(framed(*bodies), 100)


def test_a_timestamp_beyond_64_bits_is_refused() -> None:
    body = b"\x00\x02\x00\x01\x01\x00"
    with pytest.raises(InvalidRecord, match="not timestamps"):
        scan_records(encode_varint(len(body)) + body, 1, 2**63 - 1)
