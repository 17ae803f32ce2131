"""Batches of a shape that is known: nothing passes that decoding would refuse or see otherwise."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from dohle.records.batch import HEADER_SIZE
from dohle.records.builder import BatchBuilder
from dohle.records.checking import layouts as shapes
from dohle.records.checking.record_scan import Summary
from tests.records.checking.scanned import NOW_MS, assert_is_scanned_as_decoded, scan_records

counts = st.integers(shapes.SAME_LAYOUT.start, shapes.SAME_LAYOUT.stop - 1)
key_sizes = st.sampled_from([-1, 0, 1, 20])
value_sizes = st.sampled_from([-1, 0, 7, 100])


def batch_of(
    count: int, key_size: int, value_size: int, deltas: Sequence[int], fill: bytes = b"v"
) -> bytes:
    builder = BatchBuilder()
    for number in range(count):
        builder.append(
            NOW_MS + deltas[number % len(deltas)],
            None if key_size < 0 else fill * key_size,
            None if value_size < 0 else fill * value_size,
        )
    return bytes(builder.build()[HEADER_SIZE:])


def learn(data: bytes, count: int) -> None:
    """Scan a batch until its shape is known."""
    shapes.forget_all()
    for _ in range(2):
        scan_records(data, count, NOW_MS)


@settings(max_examples=150, deadline=None)
@given(count=counts, key_size=key_sizes, value_size=value_sizes)
def test_a_batch_of_records_of_one_size_has_a_shape_from_the_second_time_on(
    count: int, key_size: int, value_size: int
) -> None:
    data = batch_of(count, key_size, value_size, [0])
    shapes.forget_all()
    scan_records(data, count, NOW_MS)
    assert shapes.find_layout(count, len(data)) is None
    scan_records(data, count, NOW_MS)
    shape = shapes.find_layout(count, len(data))
    assert shape is not None
    later = batch_of(count, key_size, value_size, [0, 5, 63, 2], b"w")
    assert shape.timestamp_deltas(later) == (0, 63 if count > 2 else 5)
    assert scan_records(later, count, NOW_MS) == Summary(NOW_MS, NOW_MS + 63, True, key_size < 0)
    assert shapes.find_layout(count, len(data)) is shape


@settings(max_examples=300, deadline=None)
@given(
    count=counts,
    key_size=key_sizes,
    value_size=value_sizes,
    changes=st.lists(
        st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), min_size=1, max_size=4
    ),
)
def test_a_batch_that_differs_anywhere_is_seen_as_decoding_sees_it(
    count: int, key_size: int, value_size: int, changes: list[tuple[int, int]]
) -> None:
    data = batch_of(count, key_size, value_size, [0])
    learn(data, count)
    changed = bytearray(data)
    for place, byte in changes:
        changed[place % len(changed)] = byte
    assert_is_scanned_as_decoded(bytes(changed), count)


@settings(max_examples=100, deadline=None)
@given(
    count=counts,
    deltas=st.lists(st.sampled_from([0, 1, 63, 64, -1, -64, 1000]), min_size=1, max_size=5),
)
def test_timestamps_of_any_distance_are_seen_as_decoding_sees_them(
    count: int, deltas: list[int]
) -> None:
    learn(batch_of(count, 3, 20, [0]), count)
    for data in (batch_of(count, 3, 20, deltas), batch_of(count, 3, 19, deltas)):
        assert_is_scanned_as_decoded(data, count)
        assert_is_scanned_as_decoded(data, count)


def test_two_shapes_of_one_size_are_told_apart() -> None:
    with_key, without = batch_of(5, 10, 20, [0]), batch_of(5, -1, 30, [0])
    assert len(with_key) == len(without)
    shapes.forget_all()
    for data, has_null_key in [(with_key, False), (without, True)] * 5:
        assert scan_records(data, 5, NOW_MS).has_null_key is has_null_key


def test_shapes_are_kept_of_a_limited_number_of_sizes() -> None:
    shapes.forget_all()
    for size in range(1, 2_000):
        data = batch_of(3, -1, size, [0])
        for _ in range(2):
            scan_records(data, 3, NOW_MS)
    assert shapes.number_of_layouts() <= shapes.LAYOUTS_MAX
