"""What a batch and its records become (compaction 7a, 7b)."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from dohle.records.record_columns import RecordColumns
from dohle.storage.cleaning.keeping import BatchFate, Kept, LastRecord, fate_of, kept_records
from tests.storage.logs import NOW_MS, property_test


@dataclass
class Header:
    producer_id: int = 7
    producer_epoch: int = 2
    last_offset: int = 9
    is_control: bool = False
    delete_horizon_ms: int | None = None


def fate(
    header: Header, *, discard: bool = False, last: LastRecord | None = None, end: bool = False
) -> BatchFate:
    return fate_of(header, may_discard=discard, last_record=last, is_last=end, now_ms=NOW_MS)


def test_aborted_data_is_discarded_unseen() -> None:
    assert fate(Header(), discard=True) == (False, True, False)
    assert fate(Header()) == (False, False, False)


def test_a_marker_goes_when_its_horizon_has_passed() -> None:
    assert fate(Header(is_control=True)) == (False, False, False)
    for horizon, goes in ((None, False), (NOW_MS + 1, False), (NOW_MS, True)):
        header = Header(is_control=True, delete_horizon_ms=horizon)
        assert fate(header, discard=True) == (False, goes, True)
        assert not fate(header).discards_records


def test_the_header_stays_at_the_end_and_for_an_active_producer() -> None:
    assert fate(Header(), end=True).keeps_header
    assert fate(Header(), last=LastRecord(2, 9)).keeps_header
    assert not fate(Header(), last=LastRecord(2, 8)).keeps_header
    # Without data, all markers of the epoch are taken for the last one.
    assert fate(Header(is_control=True), last=LastRecord(2, None)).keeps_header
    assert not fate(Header(is_control=True), last=LastRecord(3, None)).keeps_header
    assert not fate(Header(), last=LastRecord(2, None)).keeps_header


def columns(*records: tuple[bytes | None, bytes | None]) -> RecordColumns:
    return RecordColumns(
        [key for key, _ in records],
        range(len(records)),
        range(len(records) + 1),
        [number for number, (_, value) in enumerate(records) if value is None],
        any(key is None for key, _ in records),
    )


RECORDS = columns((b"a", b""), (b"b", None), (None, b""), (b"c", b""))


def test_records_that_are_not_the_last_of_their_key_go() -> None:
    """7b.2 and 7b.3: equal and unknown stay, no key goes."""
    kept = kept_records(RECORDS, 100, [100, -1, -1, 104], 200)
    assert kept == Kept([0, 1], 1, 1)


def test_records_behind_the_map_stay() -> None:
    """7b.1: null keys too."""
    kept = kept_records(RECORDS, 100, [300, -1, -1, -1], 100, tombstones_due_below=101)
    assert kept == Kept([1, 2, 3], 0, 1)
    assert kept_records(RECORDS, 100, [-1] * 4, 99, tombstones_due_below=100).records is None


def test_tombstones_go_when_they_are_due() -> None:
    """7b.4."""
    kept = kept_records(RECORDS, 100, [-1] * 4, 200, tombstones_due_below=200)
    assert kept == Kept([0, 3], 1, 0)
    kept = kept_records(RECORDS, 100, [-1] * 4, 200, tombstones_due_below=101)
    assert kept == Kept([0, 1, 3], 1, 1)


@property_test(200)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"a", b"b", b"c"]),
            st.sampled_from([b"", b"", b"", None]),
            st.booleans(),
        ),
        min_size=1,
        max_size=8,
    ),
    st.lists(st.integers(-1, 20), min_size=8, max_size=8),
    st.integers(0, 20),
    st.integers(0, 20),
    st.booleans(),
)
def test_each_record_is_decided_by_itself(
    drawn: list[tuple[bytes, bytes | None, bool]],
    latest: list[int],
    map_end: int,
    due_below: int,
    has_gaps: bool,
) -> None:
    """7b.1 to 7b.4, whatever the others are: most batches are decided without a loop."""
    records = columns(*((key, value) for key, value, _ in drawn))
    deltas = [2 * number if has_gaps else number for number in range(len(drawn))]
    records = records._replace(offset_deltas=deltas)
    if any(is_null for *_, is_null in drawn[:1]):
        records = records._replace(keys=[None, *records.keys[1:]], has_null_key=True)
    base = 5

    def stays(number: int) -> bool:
        offset = base + deltas[number]
        if number in records.null_values and offset < due_below and records.keys[number]:
            # Below what was seen before, so below the end of the map.
            return False
        if offset > map_end:
            return True
        return records.keys[number] is not None and offset >= latest[number]

    due_below = min(due_below, map_end + 1)
    found = kept_records(
        records, base, latest[: len(drawn)], map_end, tombstones_due_below=due_below
    )
    kept = [number for number in range(len(drawn)) if stays(number)]
    assert found.records == (None if len(kept) == len(drawn) else kept)
    assert found.tombstones == sum(number in records.null_values for number in kept)
