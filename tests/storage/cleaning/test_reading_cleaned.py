"""Reading a log with gaps and empty batches (compaction 11)."""

from __future__ import annotations

import pytest

from dohle.records.batch import batches
from dohle.storage.log import Log
from dohle.storage.log_read import find_by_timestamp, find_max_timestamp, read
from tests.storage.cleaning.cleaning import clean, compacted, put, shapes
from tests.storage.logs import NOW_MS, Node

PID = 5


def with_empty_batch(timestamp: int) -> Log:
    """A log whose first batch is empty, and had this timestamp; the others have none so large."""
    log = Node(compacted()).log
    put(log, (b"a", b"1"), pid=PID, sequence=0, timestamps=(timestamp,))
    put(log, (b"a", b"2"), timestamps=(NOW_MS + 1,))
    put(log, (b"b", b"1"), timestamps=(NOW_MS + 2,))
    log.roll()
    put(log, (b"z", b""), timestamps=(NOW_MS,))
    clean(log)
    assert shapes(log)[0] == (0, 0, [], False)
    return log


def test_a_lookup_by_time_skips_empty_batches() -> None:
    """Compaction 11: although their largest timestamp matches."""
    log = with_empty_batch(NOW_MS + 2)
    for timestamp, offset in ((NOW_MS, 1), (NOW_MS + 1, 1), (NOW_MS + 2, 2)):
        found = find_by_timestamp(log, timestamp)
        assert found is not None
        assert found.offset == offset
    assert find_by_timestamp(log, NOW_MS + 3) is None


def test_a_lookup_by_time_finds_nothing_if_only_an_empty_batch_matches() -> None:
    """Compaction 11."""
    log = with_empty_batch(NOW_MS + 9)
    assert find_by_timestamp(log, NOW_MS + 3) is None


def test_the_largest_timestamp_of_an_empty_batch_is_of_no_record() -> None:
    """Compaction 11: -3 finds the batch by its largest timestamp, and answers none if it is empty.

    As in Kafka, which does not look for the next largest.
    """
    assert find_max_timestamp(with_empty_batch(NOW_MS + 9)) is None
    found = find_max_timestamp(with_empty_batch(NOW_MS))
    assert found is not None
    assert (found.timestamp, found.offset) == (NOW_MS + 2, 2)


def with_gaps() -> Log:
    """A log with gaps: within the batch 0 to 2, between batches at 3, and at a segment's end."""
    log = Node(compacted(350)).log
    put(log, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    put(log, (b"c", b"1"))
    put(log, (b"d", b"1"))
    put(log, (b"c", b"2"), (b"e", b"1"))
    log.roll()
    put(log, (b"a", b"3"), (b"f", bytes(100)))
    log.roll()
    put(log, (b"f", bytes(100)), (b"g", bytes(100)))
    log.roll()
    put(log, (b"z", b""))
    clean(log)
    assert shapes(log) == [
        (0, 2, [1], False),
        (4, 4, [4], False),
        (5, 6, [5, 6], False),
        (7, 8, [7], False),
        (9, 10, [9, 10], False),
        (11, 11, [11], False),
    ]
    return log


@pytest.mark.parametrize(
    ("offset", "first", "records"),
    [
        (0, 0, [1]),
        # The batch comes, and nothing of it is behind the offset: the position becomes 3.
        (2, 0, []),
        (3, 4, [4]),
        (6, 5, [6]),
        # Its only record was removed, but the batch still covers the offset.
        (8, 7, []),
        (9, 9, [9, 10]),
    ],
)
def test_a_seek_into_a_gap_returns_from_the_first_batch_that_ends_behind_it(
    offset: int, first: int, records: list[int]
) -> None:
    """Compaction 11: it may begin below the offset, and have no record at or behind it."""
    piece = read(with_gaps(), offset, 1, min_one_batch=True).slice
    assert piece is not None
    batch = next(batches(piece.read()))
    assert batch.base_offset == first
    assert [record.offset for record in batch if record.offset >= offset] == records


def test_a_seek_behind_the_last_batch_of_a_segment_goes_on_in_the_next() -> None:
    """Compaction 11: and if there is nothing up to the bound, it is no error and no data."""
    log = Node(compacted()).log
    put(log, (b"a", b"1"))
    put(log, (b"b", b"1"))
    log.roll()
    put(log, (b"b", b"2"))
    log.roll()
    put(log, (b"b", b"3"), pid=PID, sequence=0)
    log.roll()
    before = log.log_end_offset
    clean(log)
    assert [shape[:3] for shape in shapes(log)] == [(0, 0, [0]), (3, 3, [3])]
    # The segment ends with offset 0, and the next offset that is there is 3.
    piece = read(log, 1, 1_000).slice
    assert piece is not None
    assert next(batches(piece.read())).base_offset == 3
    assert log.log_end_offset == before == 4
    at_end = read(log, 4, 1_000)
    assert at_end.slice is None
