from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.storage.segment.index import (
    MAX_RELATIVE_OFFSET,
    CorruptIndex,
    OffsetIndex,
    OffsetPosition,
    TimeIndex,
    TimestampOffset,
)
from dohle.testing.simulation.files import SimulatedFileSystem
from tests.storage.logs import property_test

BASE = 1000
PATH = "/00000000000000001000.index"

#: Offsets and positions as a segment has them: both rise strictly.
STEPS = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 5000)), max_size=40)


def disk(content: bytes | None = None) -> SimulatedFileSystem:
    fs = SimulatedFileSystem()
    if content is not None:
        fs.put(PATH, content)
    return fs


def offset_index(fs: SimulatedFileSystem, size_max: int = 1 << 20) -> OffsetIndex:
    return OffsetIndex(fs, PATH, BASE, size_max)


def time_index(fs: SimulatedFileSystem, size_max: int = 1 << 20) -> TimeIndex:
    return TimeIndex(fs, PATH, BASE, size_max)


def offset_entries(steps: list[tuple[int, int]]) -> list[OffsetPosition]:
    offsets = accumulate((step[0] for step in steps), initial=BASE - 1)
    positions = accumulate((step[1] for step in steps), initial=0)
    return list(map(OffsetPosition, offsets, positions))[1:]


def time_entries(steps: list[tuple[int, int]]) -> list[TimestampOffset]:
    return [TimestampOffset(position, offset) for offset, position in offset_entries(steps)]


def filled_offset_index(
    entries: list[OffsetPosition], fs: SimulatedFileSystem | None = None
) -> OffsetIndex:
    index = offset_index(fs or disk())
    index.create()
    for entry in entries:
        index.append(*entry)
    return index


def filled_time_index(
    entries: list[TimestampOffset], fs: SimulatedFileSystem | None = None
) -> TimeIndex:
    index = time_index(fs or disk())
    index.create()
    for entry in entries:
        index.maybe_append(*entry)
    return index


# Lookups


@property_test()
@given(STEPS)
def test_an_offset_lookup_equals_a_linear_scan(steps: list[tuple[int, int]]) -> None:
    entries = offset_entries(steps)
    index = filled_offset_index(entries)
    for offset in range(BASE - 2, BASE + 400, 3):
        below = [entry for entry in entries if entry.offset <= offset]
        assert index.lookup(offset) == (below[-1] if below else OffsetPosition(BASE, 0))
    assert index.entries() == entries
    assert index.last_entry == (entries[-1] if entries else OffsetPosition(BASE, 0))


@property_test()
@given(STEPS, st.lists(st.integers(0, 100_000), max_size=20))
def test_a_position_lookup_equals_a_linear_scan(
    steps: list[tuple[int, int]], positions: list[int]
) -> None:
    entries = offset_entries(steps)
    index = filled_offset_index(entries)
    for position in [*positions, *[entry.position for entry in entries]]:
        behind = [entry.offset for entry in entries if entry.position >= position]
        assert index.first_offset_at_or_after(position) == (behind[0] if behind else None)


@property_test()
@given(STEPS, st.lists(st.integers(-1, 100_000), max_size=20))
def test_a_timestamp_lookup_equals_a_linear_scan(
    steps: list[tuple[int, int]], timestamps: list[int]
) -> None:
    entries = time_entries(steps)
    index = filled_time_index(entries)
    for timestamp in [*timestamps, *[entry.timestamp for entry in entries]]:
        below = [entry for entry in entries if entry.timestamp <= timestamp]
        assert index.lookup(timestamp) == (below[-1] if below else TimestampOffset(-1, BASE))
    assert index.entries() == entries
    assert index.last_entry == (entries[-1] if entries else TimestampOffset(-1, BASE))


# Appending


def test_offsets_must_rise() -> None:
    index = filled_offset_index([OffsetPosition(BASE + 5, 100)])
    for offset in (BASE + 5, BASE + 4):
        with pytest.raises(ValueError, match="does not follow"):
            index.append(offset, 200)
    assert len(index) == 1


def test_a_timestamp_that_does_not_grow_makes_no_entry() -> None:
    index = filled_time_index([TimestampOffset(50, BASE + 5)])
    index.maybe_append(50, BASE + 9)
    index.maybe_append(49, BASE + 9)
    assert index.entries() == [TimestampOffset(50, BASE + 5)]
    index.maybe_append(51, BASE + 9)
    assert index.entries() == [TimestampOffset(50, BASE + 5), TimestampOffset(51, BASE + 9)]
    with pytest.raises(ValueError, match="below"):
        index.maybe_append(60, BASE + 8)


def test_the_largest_relative_offset_fits() -> None:
    fs = disk()
    last = BASE + MAX_RELATIVE_OFFSET
    index = filled_offset_index([OffsetPosition(last, 2**31 - 1)], fs)
    index.write_out()
    assert fs.read(PATH) == b"\x7f\xff\xff\xff\x7f\xff\xff\xff"
    assert offset_index(fs).lookup(last) == OffsetPosition(last, 2**31 - 1)


@property_test()
@given(STEPS)
def test_filling_equals_appending_one_by_one(steps: list[tuple[int, int]]) -> None:
    by_offset = offset_index(disk())
    by_offset.create()
    by_offset.fill(offset_entries(steps))
    assert by_offset.entries() == filled_offset_index(offset_entries(steps)).entries()
    # A scan hands in the largest timestamp so far for every entry, grown or not.
    repeated = [entry for entry in time_entries(steps) for _ in range(2)]
    by_time = time_index(disk())
    by_time.create()
    by_time.fill(repeated)
    assert by_time.entries() == filled_time_index(repeated).entries()


# Room


@pytest.mark.parametrize(("size_max", "entries"), [(8, 1), (24, 3), (31, 3), (32, 4)])
def test_an_offset_index_is_full_when_no_entry_fits(size_max: int, entries: int) -> None:
    index = offset_index(disk(), size_max)
    index.create()
    for number in range(entries):
        assert index.entries_left > 0
        index.append(BASE + number, number * 100 + 1)
    assert index.entries_left <= 0
    # It takes one all the same: an append that was begun in a segment is ended in it.
    index.append(BASE + entries, 10_000)
    assert index.entries_left <= 0
    assert index.last_entry == OffsetPosition(BASE + entries, 10_000)


@pytest.mark.parametrize(("size_max", "entries"), [(24, 1), (36, 2), (47, 2), (48, 3)])
def test_a_time_index_keeps_its_last_slot_for_closing(size_max: int, entries: int) -> None:
    fs = disk()
    index = time_index(fs, size_max)
    index.create()
    for number in range(entries):
        assert index.entries_left > 0
        index.maybe_append(number, BASE + number)
    assert index.entries_left <= 0
    index.maybe_append(100, BASE + 100)
    assert index.last_entry == TimestampOffset(100, BASE + 100)
    index.write_out()
    assert len(fs.read(PATH)) == (entries + 1) * 12 <= size_max


# Truncation


@property_test()
@given(STEPS, st.integers(BASE - 1, BASE + 200), st.booleans())
def test_truncation_drops_the_entries_from_an_offset_on(
    steps: list[tuple[int, int]], offset: int, written: bool
) -> None:
    fs = disk()
    index = filled_offset_index(offset_entries(steps), fs)
    times = filled_time_index(time_entries(steps))
    if written:
        index.write_out()
    index.truncate_to(offset)
    times.truncate_to(offset)
    kept = [entry for entry in offset_entries(steps) if entry.offset < offset]
    assert index.entries() == kept
    assert times.entries() == [entry for entry in time_entries(steps) if entry.offset < offset]
    index.write_out()
    assert offset_index(fs).entries() == kept
    index.append(BASE + 5000, 10**6)
    index.write_out()
    assert offset_index(fs).entries() == [*kept, OffsetPosition(BASE + 5000, 10**6)]


def test_creating_an_index_anew_empties_its_file() -> None:
    fs = disk(bytes(16))
    index = offset_index(fs)
    index.create()
    assert fs.read(PATH) == b""
    assert index.entries() == []


# Files


def test_an_offset_index_file_has_eight_big_endian_bytes_an_entry() -> None:
    fs = disk()
    index = filled_offset_index(
        [OffsetPosition(BASE, 77), OffsetPosition(BASE + 258, 0x01020304)], fs
    )
    assert fs.read(PATH) == b""
    index.write_out()
    assert fs.read(PATH) == bytes.fromhex("00000000 0000004d 00000102 01020304")


def test_a_time_index_file_has_twelve_big_endian_bytes_an_entry() -> None:
    fs = disk()
    index = filled_time_index(
        [TimestampOffset(1, BASE), TimestampOffset(0x0102030405060708, BASE + 258)], fs
    )
    index.write_out()
    assert fs.read(PATH) == bytes.fromhex("0000000000000001 00000000 0102030405060708 00000102")


@property_test()
@given(STEPS, st.integers(0, 40))
def test_what_was_written_out_is_what_is_loaded(steps: list[tuple[int, int]], first: int) -> None:
    fs, times_fs = disk(), disk()
    index = filled_offset_index(offset_entries(steps)[:first], fs)
    times = filled_time_index(time_entries(steps)[:first], times_fs)
    index.write_out()
    times.write_out()
    # Only what is new is written the second time.
    for entry in offset_entries(steps)[first:]:
        index.append(*entry)
    for time_entry in time_entries(steps)[first:]:
        times.maybe_append(*time_entry)
    index.write_out()
    times.write_out()
    assert len(fs.read(PATH)) == 8 * len(steps)
    assert len(times_fs.read(PATH)) == 12 * len(steps)
    assert offset_index(fs).entries() == offset_entries(steps)
    assert time_index(times_fs).entries() == time_entries(steps)
    assert offset_index(fs).last_entry == index.last_entry
    assert time_index(times_fs).last_entry == times.last_entry


def test_an_index_that_was_synced_survives_a_power_cut() -> None:
    fs = disk(b"")
    index = offset_index(fs)
    index.load()
    index.append(BASE + 3, 500)
    index.write_out()
    index.sync()
    fs.power_loss_everything_unsynced_lost()
    assert offset_index(fs).entries() == [OffsetPosition(BASE + 3, 500)]


def test_a_loaded_index_goes_on_where_its_file_ends() -> None:
    fs = disk(bytes.fromhex("00000001 00000064"))
    index = offset_index(fs)
    assert index.last_entry == OffsetPosition(BASE + 1, 100)
    index.load()
    index.append(BASE + 9, 900)
    index.write_out()
    assert fs.read(PATH) == bytes.fromhex("00000001 00000064 00000009 00000384")


def test_an_index_given_back_is_read_again_when_it_is_needed() -> None:
    fs = disk()
    entries = offset_entries([(2, 100), (3, 100), (1, 100)])
    index = filled_offset_index(entries, fs)
    index.unload()
    # Not everything is in the file yet: nothing may be forgotten.
    assert index.entries() == entries
    index.write_out()
    index.unload()
    assert index.memory_bytes == 0
    assert index.lookup(BASE + 4) == entries[1]
    assert index.entries() == entries


# Damage


@pytest.mark.parametrize("size", [1, 7, 9, 15, 23])
def test_an_offset_index_of_odd_size_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptIndex, match=f"{size} bytes"):
        offset_index(disk(b"\x01" * size)).lookup(BASE)


@pytest.mark.parametrize("size", [1, 8, 11, 13, 32])
def test_a_time_index_of_odd_size_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptIndex, match=f"{size} bytes"):
        time_index(disk(b"\x01" * size)).lookup(0)
    with pytest.raises(CorruptIndex, match=f"{size} bytes"):
        assert time_index(disk(b"\x01" * size)).last_entry


@pytest.mark.parametrize(
    "content",
    [
        "00000005 00000064 00000000 00000000",
        "00000005 00000064 ffffffff 00000164",
        "80000000 00000000",
    ],
    ids=["zeros behind", "negative offset behind", "negative offset"],
)
def test_an_offset_index_whose_last_offset_cannot_be_is_corrupt(content: str) -> None:
    with pytest.raises(CorruptIndex):
        offset_index(disk(bytes.fromhex(content))).lookup(BASE)
    with pytest.raises(CorruptIndex):
        assert offset_index(disk(bytes.fromhex(content))).last_entry


@pytest.mark.parametrize(
    "content",
    [
        "0000000000000064 00000003 0000000000000000 00000000",
        "0000000000000064 00000003 0000000000000063 00000009",
        "0000000000000064 00000003 0000000000000065 ffffffff",
    ],
    ids=["zeros behind", "an older timestamp behind", "negative offset behind"],
)
def test_a_time_index_whose_last_entry_cannot_be_is_corrupt(content: str) -> None:
    with pytest.raises(CorruptIndex):
        time_index(disk(bytes.fromhex(content))).lookup(0)
    with pytest.raises(CorruptIndex):
        assert time_index(disk(bytes.fromhex(content))).last_entry


def test_an_empty_index_file_is_a_good_one() -> None:
    assert offset_index(disk(b"")).entries() == []
    assert time_index(disk(b"")).entries() == []


def test_a_missing_index_file_is_told_as_such() -> None:
    with pytest.raises(FileNotFoundError):
        offset_index(disk()).lookup(BASE)
