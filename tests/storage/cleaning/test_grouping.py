"""Which segments are cleaned into one (compaction 6)."""

from __future__ import annotations

from dohle.storage.cleaning.grouping import SEGMENTS_MAX, SegmentSize, group_segments

LIMIT = 2**31 - 1


def sizes(*log_bytes: int, index: int = 0) -> list[SegmentSize]:
    return [SegmentSize(10 * n, size, index, index) for n, size in enumerate(log_bytes)]


def test_neighbours_are_grouped_as_long_as_they_fit() -> None:
    assert group_segments(sizes(40, 60, 1, 99, 50), 100, 100, 100) == [2, 2, 1]
    assert group_segments([], 0, 100, 100) == []


def test_a_segment_that_is_too_large_is_on_its_own() -> None:
    assert group_segments(sizes(500, 10, 10), 100, 100, 100) == [1, 2]
    assert group_segments(sizes(10, 500, 10), 100, 100, 100) == [1, 1, 1]


def test_indexes_have_a_limit_too() -> None:
    assert group_segments(sizes(1, 1, 1, 1, index=50), 100, 100, 100) == [2, 2]
    only_time = [SegmentSize(n, 1, 0, 60) for n in range(3)]
    assert group_segments(only_time, 10, 100, 100) == [1, 1, 1]


def test_a_group_has_a_limited_number_of_segments() -> None:
    assert group_segments(sizes(*[0] * (2 * SEGMENTS_MAX + 1)), 10_000, 100, 100) == [
        SEGMENTS_MAX,
        SEGMENTS_MAX,
        1,
    ]


def test_offsets_must_fit_into_an_index_entry() -> None:
    def sparse(second: int, third_bytes: int, end: int) -> list[int]:
        found = [
            SegmentSize(0, 1, 0, 0),
            SegmentSize(second, 1, 0, 0),
            SegmentSize(second + 1, third_bytes, 0, 0),
        ]
        return group_segments(found, end, 100, 100)

    assert sparse(LIMIT, 0, LIMIT + 9) == [3]
    assert sparse(LIMIT + 1, 1, LIMIT + 9) == [1, 2]
    assert sparse(5, 1, LIMIT + 1) == [3]
    assert sparse(5, 1, LIMIT + 2) == [2, 1]
