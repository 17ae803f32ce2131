"""Scanning records: it must see in a batch exactly what decoding sees."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.records.batch import HEADER_SIZE
from dohle.records.builder import BatchBuilder
from dohle.records.errors import InvalidRecord
from dohle.records.record import decode_records
from dohle.records.scan import Summary, scan_frames, scan_records
from dohle.records.varint import encode_varint, read_varint

NOW_MS = 1_700_000_000_000

#: Records alike: how many, key size (-1 for none), value size, timestamp step, headers.
runs = st.tuples(
    st.integers(1, 90),
    st.integers(-1, 70),
    st.sampled_from([-1, 0, 1, 20, 61, 64, 200]),
    st.sampled_from([0, 1, -1, 40, 5000]),
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


def decoded_summary(data: bytes, count: int, base_timestamp: int) -> Summary | None:
    try:
        records = list(decode_records(data, count, 0, base_timestamp, None))
    except InvalidRecord:
        return None
    timestamps = [record.timestamp for record in records]
    return Summary(
        min(timestamps),
        max(timestamps),
        [record.offset for record in records] == list(range(count)),
        any(record.key is None for record in records),
    )


def scanned_summary(data: bytes, count: int, base_timestamp: int) -> Summary | None:
    try:
        return scan_records(data, count, base_timestamp)
    except InvalidRecord:
        return None


def followed_lengths(data: bytes, count: int) -> int | None:
    """Where the last record starts, by the plainest of loops."""
    position = start = 0
    for _ in range(count):
        start = position
        try:
            length, position = read_varint(data, position)
        except InvalidRecord:
            return None
        position += length
        if length < 0 or position > len(data):
            return None
    return start if position == len(data) else None


def scanned_frames(data: bytes | memoryview, count: int) -> int | None:
    try:
        return scan_frames(data, count)
    except InvalidRecord:
        return None


@given(groups=st.lists(runs, min_size=1, max_size=6))
def test_sound_records_are_summed_up_as_decoding_shows_them(
    groups: list[tuple[int, int, int, int, bool]],
) -> None:
    data, count = records_of(groups)
    expected = decoded_summary(data, count, NOW_MS)
    assert expected is not None
    assert scan_records(data, count, NOW_MS) == expected
    last = followed_lengths(data, count)
    assert last is not None
    assert scan_frames(data, count) == scan_frames(memoryview(data), count) == last


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
    assert scanned_summary(damaged, count, NOW_MS) == decoded_summary(damaged, count, NOW_MS)
    assert scanned_frames(damaged, count) == followed_lengths(damaged, count)
    assert scanned_frames(memoryview(damaged), count) == followed_lengths(damaged, count)


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
    starts, position = [], 0
    while position < len(data):
        starts.append(position)
        length, position = read_varint(data, position)
        position += length
    damaged = bytearray(data)
    damaged[starts[row] + column] = byte
    assert scanned_summary(bytes(damaged), count, NOW_MS) == decoded_summary(
        bytes(damaged), count, NOW_MS
    )


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


def test_a_timestamp_beyond_64_bits_is_refused() -> None:
    body = b"\x00\x02\x00\x01\x01\x00"
    with pytest.raises(InvalidRecord, match="not timestamps"):
        scan_records(encode_varint(len(body)) + body, 1, 2**63 - 1)
