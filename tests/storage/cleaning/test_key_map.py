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
)
def test_it_is_a_dict_until_it_is_full(batches: list[list[bytes]], bytes_max: int) -> None:
    """Whether the keys are few enough for a real dict or not."""
    found, model, offset = KeyMap(bytes_max, 0.9, SECRET), dict[bytes, int](), 0
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
