"""The map of keys (compaction 5)."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.storage.cleaning.key_map import NOT_FOUND, KeyMap
from tests.storage.logs import property_test

SECRET = bytes(range(32))


def small(keys: int) -> KeyMap:
    return KeyMap(int(keys * 24.04 * 8 / 7) + 2, 1.0, SECRET)


@property_test(80)
@given(
    st.lists(st.lists(st.binary(max_size=3), max_size=40), max_size=8),
    st.sampled_from([600, 4_000, 40_000, 1 << 20]),
    st.booleans(),
)
def test_it_is_a_dict_until_it_is_full(
    batches: list[list[bytes]], bytes_max: int, may_hold_up: bool
) -> None:
    """Whether the keys are few enough for a real dict or not."""
    found, model, offset = (
        KeyMap(bytes_max, 0.9, SECRET, may_hold_up=may_hold_up),
        dict[bytes, int](),
        0,
    )
    for keys in batches:
        offsets = list(range(offset, offset + len(keys)))
        offset += len(keys)
        taken = found.put_all(keys, offsets)
        for number in range(taken):
            model[keys[number]] = offsets[number]
        if taken < len(keys):
            assert keys[taken] not in model
            assert len(found) == found.keys_max == len(model)
    asked = [key for keys in batches for key in keys] + [b"unknown", None]
    expected = [NOT_FOUND if key is None else model.get(key, NOT_FOUND) for key in asked]
    assert found.get_all(asked) == expected
    assert len(found) == len(model)


def test_it_stays_within_its_memory_with_few_bytes_a_key() -> None:
    """Compaction 16.12: at most 32 bytes a key when it is full, however long the keys are."""
    found = KeyMap(1 << 18, 0.9, SECRET)
    keys = [b"%d" % number + b"." * (number % 50) for number in range(20_000)]
    assert found.put_all(keys, range(20_000)) == found.keys_max
    assert found.memory_bytes <= 1 << 18
    assert found.memory_bytes / len(found) <= 32
    assert found.get_all(keys[:100]) == list(range(100))


def test_it_stays_within_its_memory_at_any_moment() -> None:
    """Also while the keys move from the dict to the table."""
    bytes_max = 4 << 20
    keys = KeyMap(bytes_max, 0.9, SECRET)
    tracemalloc.start()
    try:
        for start in range(0, 60_000, 100):
            numbers = range(start, start + 100)
            keys.put_all([b"%016d" % number for number in numbers], numbers)
        assert tracemalloc.get_traced_memory()[1] < bytes_max * 1.05
    finally:
        tracemalloc.stop()
    assert keys.memory_bytes > bytes_max // 2


def test_known_keys_still_fit_into_a_full_map() -> None:
    found = small(2)
    assert found.put_all([b"a", b"b", b"a", b"c"], [0, 1, 2, 3]) == 3
    assert found.put_all([b"b"], [7]) == 1
    assert found.get_all([b"a", b"b", b"c"]) == [2, 7, NOT_FOUND]
    assert found.utilization == 1.0


def test_too_little_memory_for_one_key_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        KeyMap(20, 0.9, SECRET)


def put_many(found: KeyMap, first: int, count: int, padding: int = 0) -> int:
    """Put new keys, as many at a time as a batch has; return how many were taken."""
    taken = 0
    for start in range(first, first + count, 100):
        numbers = range(start, start + 100)
        some = found.put_all([b"%d" % number + bytes(padding) for number in numbers], numbers)
        taken += some
        if some < 100:
            break
    return taken


def test_if_all_that_may_come_fits_keys_stay_as_they_are() -> None:
    """Dicts are three times as fast as the table, and may use all of the memory then."""
    bytes_max = 16 << 20
    found = KeyMap(bytes_max, 0.9, SECRET, records_max=100_000)
    assert put_many(found, 0, 100_000) == 100_000
    assert bytes_max // 2 < found.memory_bytes < bytes_max
    assert len(found) == 100_000
    assert found.get_all([b"0", b"99999", b"100000", None]) == [0, 99_999, NOT_FOUND, NOT_FOUND]
    found.clear()


@pytest.mark.parametrize("count", [60_000, 100_000])
def test_one_dict_stays_within_the_memory_while_it_grows(count: int) -> None:
    """Compaction 16.12: with no thread to hold up there is one, as long as it fits."""
    bytes_max = 16 << 20
    found = KeyMap(bytes_max, 0.9, SECRET, records_max=count, may_hold_up=True)
    tracemalloc.start()
    try:
        assert put_many(found, 0, count) == count
        assert tracemalloc.get_traced_memory()[1] < bytes_max * 1.05
    finally:
        tracemalloc.stop()
    last = b"%d" % (count - 1)
    assert found.get_all([b"0", last, b"x", None]) == [0, count - 1, NOT_FOUND, NOT_FOUND]
    found.clear()


def test_keys_that_are_longer_than_expected_end_the_map_before_its_memory_does() -> None:
    bytes_max = 16 << 20
    found = KeyMap(bytes_max, 0.9, SECRET, records_max=100_000)
    assert put_many(found, 0, 50_000) == 50_000
    more = put_many(found, 50_000, 50_000, padding=1_000)
    assert more < 50_000
    assert found.memory_bytes <= bytes_max
    assert len(found) == 50_000 + more
    assert found.get_all([b"0", b"49999"]) == [0, 49_999]


def test_many_keys_move_on_to_the_table_if_more_may_come() -> None:
    found = KeyMap(64 << 20, 0.9, SECRET, records_max=10_000_000)
    assert put_many(found, 0, 100_000) == 100_000
    assert found.memory_bytes == pytest.approx(56 << 20, rel=0.01)
    assert found.get_all([b"0", b"50000", b"99999", b"x"]) == [0, 50_000, 99_999, NOT_FOUND]
    found.clear()
