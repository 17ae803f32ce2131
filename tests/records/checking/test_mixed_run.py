"""Small records of mixed sizes, which are followed by expressions: as decoding sees them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dohle.records.checking.mixed_run import scan_mixed_run
from dohle.records.checking.one_by_one import follow_singly
from dohle.records.errors import InvalidRecord
from dohle.records.varint import encode_varint
from tests.records.checking.mixed_records import mixed_records
from tests.records.checking.scanned import NOW_MS, assert_is_scanned_as_decoded, scan_records


@settings(max_examples=150)
@given(
    seed=st.integers(0, 1 << 30),
    count=st.integers(20, 600),
    key_sizes=st.sampled_from([(-1, -1), (0, 0), (3, 3), (-1, 5), (1, 30), (40, 60)]),
    step=st.sampled_from([0, 1, 50, -40, -5000, 1 << 20]),
    value_sizes=st.sampled_from([(-1, 3), (0, 12), (0, 60), (40, 70)]),
    damage=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=2),
    cut=st.sampled_from([0, 0, 1, 9]),
    more=st.sampled_from([0, 0, 1, -1]),
)
def test_mixed_records_are_seen_as_decoding_sees_them(
    seed: int,
    count: int,
    key_sizes: tuple[int, int],
    step: int,
    value_sizes: tuple[int, int],
    damage: list[tuple[int, int]],
    cut: int,
    more: int,
) -> None:
    data = bytearray(mixed_records(seed, count, key_sizes, step, value_sizes))
    for place, byte in damage:
        data[place % len(data)] = byte
    assert_is_scanned_as_decoded(bytes(data[: len(data) - cut]), count + more)


@settings(max_examples=100)
@given(seed=st.integers(0, 1 << 30), place=st.integers(0, 1 << 20), byte=st.integers(0, 255))
def test_a_wrong_byte_is_seen_where_offset_deltas_grow(seed: int, place: int, byte: int) -> None:
    data = bytearray(mixed_records(seed, 8_300, (-1, -1), 0, (0, 4)))
    # Near record 8192, from which on they take a byte more.
    data[len(data) - 1 - place % 2_000] = byte
    assert_is_scanned_as_decoded(bytes(data), 8_300)


@pytest.mark.parametrize("key_sizes", [(-1, -1), (0, 0), (-1, 9)])
@pytest.mark.parametrize("step", [0, -60, -8_000])
def test_mixed_records_are_found_in_a_run(key_sizes: tuple[int, int], step: int) -> None:
    data = mixed_records(1, 3_000, key_sizes, step)
    position, index, _, _, _, _, last, _, _ = follow_singly(data, 0, len(data), 0, 68)
    found, behind, deltas, has_null_key = scan_mixed_run(
        data, position, len(data), last, index, 3_000
    )
    if step > -64:
        assert found > 500
        assert set(deltas) <= set(range(-60, 61))
        assert has_null_key is (key_sizes[0] < 0)
    # What was found ends where a record begins.
    for _ in range(found):
        position += 1 + (data[position] >> 1)
    assert position == behind


def test_offsets_that_do_not_count_up_end_a_run() -> None:
    pieces = []
    for index in range(2_000):
        value = b"v" * (index % 7)
        offset = index if index != 1_500 else 1_499
        body = b"\x00\x00" + encode_varint(offset) + b"\x01" + encode_varint(len(value)) + value
        pieces.append(encode_varint(len(body) + 1) + body + b"\x00")
    data = b"".join(pieces)
    assert not scan_records(data, 2_000, NOW_MS).is_consecutive
    assert_is_scanned_as_decoded(data, 2_000)


def test_a_length_that_is_not_the_sum_of_what_the_record_holds_is_refused() -> None:
    data = bytearray(mixed_records(1, 600, (0, 9), 0))
    _, _, _, _, _, _, last, _, _ = follow_singly(bytes(data), 0, len(data), 0, 300)
    place, size = last[:2]
    behind = place + size
    # Together they are as long as before.
    data[place] += 2
    data[behind] -= 2
    with pytest.raises(InvalidRecord):
        scan_records(bytes(data), 600, NOW_MS)
    assert_is_scanned_as_decoded(bytes(data), 600)
