"""Records of mixed sizes with lengths of two bytes, which are read by heads: as in decoding."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dohle.records.batch import HEADER_SIZE
from dohle.records.builder import BatchBuilder
from dohle.records.checking.one_by_one import follow_singly
from dohle.records.checking.sized_run import scan_sized_run
from dohle.records.varint import encode_varint, read_varint
from tests.records.checking.mixed_records import mixed_records
from tests.records.checking.scanned import NOW_MS, assert_is_scanned_as_decoded, scan_records

#: The head of a record with deltas of two bytes, and what goes before and behind.
_HEAD_BYTES = 12


def starts_of(data: bytes) -> list[int]:
    starts, position = [], 0
    while position < len(data):
        starts.append(position)
        length, position = read_varint(data, position)
        position += length
    return starts


@settings(max_examples=200)
@given(
    seed=st.integers(0, 1 << 30),
    count=st.sampled_from([2, 6, 7, 16, 20, 21, 64, 65, 100, 300]),
    key_sizes=st.sampled_from([(-1, -1), (-1, -1), (0, 0), (1, 30), (-1, 5), (50, 70)]),
    step=st.sampled_from([0, 1, 50, -40, -5000, 1 << 20]),
    value_sizes=st.sampled_from([(70, 200), (900, 1100), (50, 80), (8100, 8200), (-1, 300)]),
    damage=st.lists(
        st.tuples(
            st.integers(0, 400),
            st.integers(-2, _HEAD_BYTES),
            st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0x81, 0xFF]) | st.integers(0, 255),
        ),
        max_size=3,
    ),
    cut=st.sampled_from([0, 0, 0, 1, 9, 100]),
    more=st.sampled_from([0, 0, 0, 1, -1]),
)
def test_large_records_are_seen_as_decoding_sees_them(
    seed: int,
    count: int,
    key_sizes: tuple[int, int],
    step: int,
    value_sizes: tuple[int, int],
    damage: list[tuple[int, int, int]],
    cut: int,
    more: int,
) -> None:
    """With wrong bytes in the heads and at the ends of records."""
    data = bytearray(mixed_records(seed, count, key_sizes, step, value_sizes))
    starts = starts_of(bytes(data))
    for number, place, byte in damage:
        data[(starts[number % count] + place) % len(data)] = byte
    assert_is_scanned_as_decoded(bytes(data[: len(data) - cut]), count + more)


@settings(max_examples=200)
@given(
    seed=st.integers(0, 1 << 30),
    number=st.integers(1, 29),
    shifts=st.tuples(*[st.sampled_from([0, 0, -2, 2])] * 4),
)
def test_lengths_that_do_not_add_up_are_refused(
    seed: int, number: int, shifts: tuple[int, int, int, int]
) -> None:
    """Those of two neighbours, and of their values: they may add up to what they were before."""
    data = bytearray(mixed_records(seed, 30, (-1, -1), 0, (100, 300)))
    starts = starts_of(bytes(data))
    one, other = starts[number - 1], starts[number]
    # Length (2), attributes, timestamp, offset, key, value (2).
    for place, shift in zip((one, one + 6, other, other + 6), shifts, strict=True):
        data[place] = data[place] + shift & 0xFF
    assert_is_scanned_as_decoded(bytes(data), 30)


@pytest.mark.parametrize("key_sizes", [(-1, -1), (0, 0), (0, 40)])
@pytest.mark.parametrize("step", [0, -60, 70])
@pytest.mark.parametrize("followed", [1, 70])
def test_large_records_are_found_in_a_run(
    key_sizes: tuple[int, int], step: int, followed: int
) -> None:
    count = 200
    data = mixed_records(1, count, key_sizes, step, (100, 2_000))
    # The first delta of two bytes, if they grow.
    first = max(followed, 2) if step > 0 else followed
    position, index, _, _, _, _, last, _, _ = follow_singly(data, 0, len(data), 0, first)
    found, behind, deltas, has_null_key = scan_sized_run(
        data, position, len(data), last, index, count
    )
    # A run ends where offset deltas, or timestamp deltas, take a byte more.
    expected = {1: 64, 70: 118 if step > 0 else count}[followed]
    assert index + found == expected
    assert behind == [*starts_of(data), len(data)][expected]
    assert has_null_key is (key_sizes == (-1, -1))
    if step > 0:
        assert (min(deltas), max(deltas)) == (index * step, (expected - 1) * step)
    else:
        assert set(deltas) <= set(range(step, 1 - step))


def test_a_record_with_headers_ends_a_run() -> None:
    builder = BatchBuilder()
    rng = random.Random(1)
    for number in range(40):
        headers = (("name", b"x"),) if number == 25 else ()
        builder.append(NOW_MS, None, rng.randbytes(rng.randint(100, 200)), headers)
    data = bytes(builder.build()[HEADER_SIZE:])
    position, index, _, _, _, _, last, _, _ = follow_singly(data, 0, len(data), 0, 1)
    found, behind, _, _ = scan_sized_run(data, position, len(data), last, index, 40)
    assert (index + found, behind) == (25, starts_of(data)[25])
    assert_is_scanned_as_decoded(data, 40)


def test_offsets_that_do_not_count_up_end_a_run() -> None:
    pieces = []
    for index in range(150):
        value = b"v" * (100 + index % 7)
        offset = index if index != 100 else 99
        body = b"\x00\x00" + encode_varint(offset) + b"\x01" + encode_varint(len(value)) + value
        pieces.append(encode_varint(len(body) + 1) + body + b"\x00")
    data = b"".join(pieces)
    assert not scan_records(data, 150, NOW_MS).is_consecutive
    assert_is_scanned_as_decoded(data, 150)
