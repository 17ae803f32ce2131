from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.core.ids import ProducerId
from dohle.storage.files import OsFileSystem
from dohle.storage.open_files import OpenFiles
from dohle.storage.segment.index import CorruptIndex
from dohle.storage.segment.transaction_index import AbortedTransaction, TransactionIndex

FS = OsFileSystem()
BASE_OFFSET = 100


def aborted(
    producer_id: int, first_offset: int, last_offset: int, last_stable_offset: int | None = None
) -> AbortedTransaction:
    if last_stable_offset is None:
        last_stable_offset = last_offset + 1
    return AbortedTransaction(
        ProducerId(producer_id), first_offset, last_offset, last_stable_offset
    )


FOUR = [
    aborted(0, 100, 110, 102),
    aborted(1, 105, 120, 102),
    aborted(2, 102, 130),
    aborted(0, 140, 150),
]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / f"{BASE_OFFSET:020d}.txnindex")


def index_at(path: str, entries: list[AbortedTransaction]) -> TransactionIndex:
    index = TransactionIndex(FS, path, BASE_OFFSET, OpenFiles())
    for entry in entries:
        index.append(entry)
    return index


def test_the_file_is_made_by_the_first_abort_only(path: str) -> None:
    index = TransactionIndex(FS, path, BASE_OFFSET, OpenFiles())
    assert index.entries() == []
    assert index.is_empty
    assert index.collect_aborted(0, 1000) == ([], False)
    index.truncate_to(0)
    index.reset()
    index.sync()
    index.sanity_check()
    index.close()
    assert not FS.exists(path)
    index.append(FOUR[0])
    assert FS.exists(path)
    assert not index.is_empty


def test_an_entry_has_the_34_bytes_that_kafka_writes(path: str) -> None:
    index_at(path, [aborted(7, 101, 110, 105)]).close()
    assert FS.read(path) == struct.pack(">hqqqq", 0, 7, 101, 110, 105)
    assert len(FS.read(path)) == TransactionIndex.ENTRY_SIZE == 34


def test_entries_are_found_again_after_closing(path: str) -> None:
    index = index_at(path, FOUR)
    index.sync()
    index.close()
    assert index.entries() == FOUR
    assert TransactionIndex(FS, path, BASE_OFFSET, OpenFiles()).entries() == FOUR
    assert TransactionIndex(FS, path, BASE_OFFSET, OpenFiles(), exists=True).entries() == FOUR


def test_a_file_said_not_to_exist_is_not_looked_for(path: str) -> None:
    index_at(path, FOUR).close()
    assert TransactionIndex(FS, path, BASE_OFFSET, OpenFiles(), exists=False).entries() == []


@pytest.mark.parametrize("reopen", [False, True])
def test_a_marker_that_does_not_follow_the_last_one_is_refused(path: str, reopen: bool) -> None:
    index = index_at(path, FOUR[:2])
    if reopen:
        index.close()
        index = TransactionIndex(FS, path, BASE_OFFSET, OpenFiles())
    for offset in (119, 120):
        with pytest.raises(ValueError, match="does not follow"):
            index.append(aborted(5, 110, offset))
    index.append(aborted(5, 110, 121))
    assert index.entries() == [*FOUR[:2], aborted(5, 110, 121)]


def test_a_search_returns_what_overlaps_the_fetch(path: str) -> None:
    index = index_at(path, FOUR)
    assert index.collect_aborted(100, 200) == (FOUR, False)
    assert index.collect_aborted(110, 200) == (FOUR, False)
    assert index.collect_aborted(111, 200) == (FOUR[1:], False)
    assert index.collect_aborted(131, 200) == (FOUR[3:], False)
    assert index.collect_aborted(151, 200) == ([], False)


def test_a_search_stops_where_everything_below_the_bound_was_decided(path: str) -> None:
    index = index_at(path, FOUR)
    # The first entry says that all below 102 is decided.
    assert index.collect_aborted(100, 102) == (FOUR[:1], True)
    # 103 was undecided at the second entry, so the third is needed.
    assert index.collect_aborted(100, 103) == ([FOUR[0], FOUR[2]], True)
    assert index.collect_aborted(100, 131) == (FOUR[:3], True)
    assert index.collect_aborted(100, 132) == (FOUR[:3], True)
    assert index.collect_aborted(100, 152) == (FOUR, False)


def test_truncation_drops_markers_at_the_offset_and_above(path: str) -> None:
    index = index_at(path, FOUR)
    index.truncate_to(151)
    assert index.entries() == FOUR
    index.truncate_to(150)
    assert index.entries() == FOUR[:3]
    index.truncate_to(111)
    assert index.entries() == FOUR[:1]
    index.append(aborted(9, 111, 112))
    assert index.entries() == [FOUR[0], aborted(9, 111, 112)]
    index.truncate_to(0)
    assert index.is_empty
    assert FS.stat(path).size == 0


def test_a_reset_index_takes_the_same_markers_again(path: str) -> None:
    index = index_at(path, FOUR)
    index.reset()
    assert index.entries() == []
    for entry in FOUR:
        index.append(entry)
    assert index.entries() == FOUR


def test_an_append_overwrites_what_a_torn_write_left(path: str) -> None:
    index_at(path, FOUR[:2]).close()
    with open(path, "ab") as file:
        file.write(b"\x00" * 20)
    index = TransactionIndex(FS, path, BASE_OFFSET, OpenFiles())
    assert index.entries() == FOUR[:2]
    index.append(FOUR[2])
    assert index.entries() == FOUR[:3]
    assert FS.stat(path).size == 3 * 34


def test_a_sound_file_passes_the_sanity_check(path: str) -> None:
    index = index_at(path, FOUR)
    index.sanity_check()
    index.reset()
    index.sanity_check()


@pytest.mark.parametrize(
    "entries",
    [
        [aborted(0, 90, BASE_OFFSET - 1)],
        [aborted(0, 100, 110), aborted(1, 100, 110)],
        [aborted(0, 100, 110), aborted(1, 100, 109)],
        [aborted(0, 111, 110)],
    ],
    ids=["marker below the segment", "same marker twice", "markers fall", "starts behind its end"],
)
def test_the_sanity_check_refuses_impossible_entries(
    path: str, entries: list[AbortedTransaction]
) -> None:
    with open(path, "wb") as file:
        for entry in entries:
            file.write(struct.pack(">hqqqq", 0, *entry))
    with pytest.raises(CorruptIndex):
        TransactionIndex(FS, path, BASE_OFFSET, OpenFiles()).sanity_check()


def test_a_transaction_may_begin_in_an_earlier_segment(path: str) -> None:
    index_at(path, [aborted(0, 3, 110)]).sanity_check()


def test_the_sanity_check_refuses_a_torn_file(path: str) -> None:
    index_at(path, FOUR).close()
    with open(path, "r+b") as file:
        file.truncate(34 * 4 - 1)
    with pytest.raises(CorruptIndex, match="multiple"):
        TransactionIndex(FS, path, BASE_OFFSET, OpenFiles()).sanity_check()


def test_an_entry_of_an_unknown_version_is_refused(path: str) -> None:
    index_at(path, FOUR).close()
    with open(path, "r+b") as file:
        file.seek(34)
        file.write(b"\x00\x01")
    index = TransactionIndex(FS, path, BASE_OFFSET, OpenFiles())
    for read in (index.entries, index.sanity_check, lambda: index.collect_aborted(0, 1000)):
        with pytest.raises(CorruptIndex, match="entry 1 has version 1"):
            read()


def test_a_renamed_index_goes_on_under_its_new_name(path: str) -> None:
    index = index_at(path, FOUR[:3])
    index.rename(path + ".deleted")
    assert not FS.exists(path)
    index.append(FOUR[3])
    index.close()
    assert index.entries() == FOUR
    assert TransactionIndex(FS, path + ".deleted", BASE_OFFSET, OpenFiles()).entries() == FOUR


def test_an_index_without_a_file_can_be_renamed(path: str) -> None:
    index = TransactionIndex(FS, path, BASE_OFFSET, OpenFiles())
    index.rename(path + ".swap")
    index.append(FOUR[0])
    assert FS.exists(path + ".swap")
    assert not FS.exists(path)


def test_a_deleted_index_is_empty_and_can_be_used_again(path: str) -> None:
    index = index_at(path, FOUR)
    assert index.delete()
    assert not FS.exists(path)
    assert not index.delete()
    assert index.entries() == []
    index.append(FOUR[0])
    assert index.entries() == FOUR[:1]


def test_a_large_index_is_searched_as_a_small_one(path: str) -> None:
    entries = [aborted(i % 7, BASE_OFFSET + 2 * i, BASE_OFFSET + 2 * i + 1) for i in range(5000)]
    with open(path, "wb") as file:
        file.write(b"".join(struct.pack(">hqqqq", 0, *entry) for entry in entries))
    index = TransactionIndex(FS, path, BASE_OFFSET, OpenFiles())
    index.sanity_check()
    assert index.entries() == entries
    assert index.collect_aborted(BASE_OFFSET, 10**9) == (entries, False)
    fetch_offset = BASE_OFFSET + 6001
    assert index.collect_aborted(fetch_offset, fetch_offset + 100) == (entries[3000:3051], True)


@given(
    gaps=st.lists(
        st.tuples(st.integers(1, 5), st.integers(0, 12), st.integers(0, 12)), max_size=12
    ),
    fetch_offset=st.integers(90, 170),
    length=st.integers(1, 60),
    cut=st.integers(90, 170),
)
def test_searches_and_truncation_agree_with_a_plain_list(
    tmp_path_factory: pytest.TempPathFactory,
    gaps: list[tuple[int, int, int]],
    fetch_offset: int,
    length: int,
    cut: int,
) -> None:
    path = str(tmp_path_factory.mktemp("index") / "00000000000000000100.txnindex")
    entries: list[AbortedTransaction] = []
    marker = BASE_OFFSET
    for gap, before, undecided in gaps:
        marker += gap
        entries.append(aborted(gap, marker - before, marker, marker + 1 - undecided))
    index = index_at(path, entries)

    upper = fetch_offset + length
    expected: list[AbortedTransaction] = []
    complete = False
    for entry in entries:
        if entry.last_offset >= fetch_offset and entry.first_offset < upper:
            expected.append(entry)
        if entry.last_stable_offset >= upper:
            complete = True
            break
    assert index.collect_aborted(fetch_offset, upper) == (expected, complete)

    index.truncate_to(cut)
    index.close()
    kept = [entry for entry in entries if entry.last_offset < cut]
    assert TransactionIndex(FS, path, BASE_OFFSET, OpenFiles()).entries() == kept
