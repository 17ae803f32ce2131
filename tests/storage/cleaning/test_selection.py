"""How much of a log may be cleaned now (compaction 3)."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from dohle.storage.cleaning.selection import LogToClean, choose, look_at
from dohle.storage.config import LogConfig
from tests.storage.logs import BATCH_SIZE, NOW_MS, Node, append, append_transactional, data

HOUR_MS = 3_600_000


class SegmentView(NamedTuple):
    base_offset: int
    size: int
    largest_timestamp: int = -1
    first_batch_timestamp: int = -1


def view(*segments: SegmentView, lso: int = 1_000, start: int = 0, end: int = 1_000) -> LogToClean:
    closed = segments[:-1]
    return LogToClean(
        [one.base_offset for one in segments],
        [one.size for one in closed],
        start,
        end,
        lso,
        [one.largest_timestamp for one in closed],
        [one.first_batch_timestamp for one in closed],
    )


def segments(*bases: int, size: int = 10) -> tuple[SegmentView, ...]:
    return tuple(SegmentView(base, size) for base in bases)


LOG = view(*segments(0, 100, 200, 300))


def test_a_log_without_a_checkpoint_is_dirty_from_its_start_on() -> None:
    """Compaction 3.2 and 3.6: everything but the active segment."""
    found = choose(LOG, None, NOW_MS)
    assert (found.first_dirty_offset, found.first_uncleanable_offset) == (0, 300)
    assert (found.clean_bytes, found.cleanable_bytes, found.ratio) == (0, 30, 1.0)
    assert found.is_eligible
    assert not found.checkpoint_is_wrong


def test_a_checkpoint_outside_the_log_is_reset_to_the_log_start() -> None:
    """Compaction 3.2: below the log start, or behind the log end."""
    for checkpoint in (50, 1_001):
        found = choose(replace(LOG, log_start_offset=120), checkpoint, NOW_MS)
        assert (found.first_dirty_offset, found.checkpoint_is_wrong) == (120, True)
    for checkpoint in (120, 1_000):
        assert not choose(
            replace(LOG, log_start_offset=120), checkpoint, NOW_MS
        ).checkpoint_is_wrong


def test_a_segment_with_an_undecided_transaction_is_left_out_as_a_whole() -> None:
    """Compaction 3.3 and 3.4."""
    found = choose(replace(LOG, last_stable_offset=250), None, NOW_MS)
    assert (found.first_uncleanable_offset, found.cleanable_bytes) == (200, 20)
    assert choose(replace(LOG, last_stable_offset=200), None, NOW_MS) == found
    assert choose(replace(LOG, last_stable_offset=300), None, NOW_MS).cleanable_bytes == 30


def test_the_first_segment_that_is_too_young_ends_the_cleanable_part() -> None:
    """Compaction 3.3: ``min.compaction.lag.ms``, by the largest timestamp, on dirty segments."""
    young = [
        SegmentView(base, 10, largest_timestamp=NOW_MS - age)
        for base, age in ((0, 10), (100, HOUR_MS), (200, HOUR_MS - 1), (300, 0))
    ]
    lagging = replace(view(*young), min_compaction_lag_ms=HOUR_MS)
    assert choose(lagging, None, NOW_MS).first_uncleanable_offset == 0
    assert not choose(lagging, None, NOW_MS).is_eligible
    found = choose(lagging, 100, NOW_MS)
    assert (found.first_uncleanable_offset, found.cleanable_bytes) == (200, 10)


def test_a_segment_with_the_first_dirty_offset_counts_as_clean_and_as_dirty() -> None:
    """Compaction 3.5."""
    found = choose(LOG, 150, NOW_MS)
    assert (found.clean_bytes, found.cleanable_bytes) == (20, 20)


def test_the_ratio_must_be_above_the_configured_one() -> None:
    """Compaction 3.6 and 3.7: strictly."""
    found = choose(LOG, 150, NOW_MS)
    assert (found.ratio, found.is_eligible) == (0.5, False)
    assert choose(replace(LOG, min_cleanable_dirty_ratio=0.49), 150, NOW_MS).is_eligible


def test_a_log_that_is_clean_up_to_its_active_segment_is_left_alone() -> None:
    for checkpoint in (300, 310, 1_000):
        found = choose(LOG, checkpoint, NOW_MS)
        assert (found.cleanable_bytes, found.is_eligible) == (0, False)
    empty = choose(view(SegmentView(0, 0), end=0, lso=0), None, NOW_MS)
    assert (empty.ratio, empty.is_eligible) == (0.0, False)


def test_an_overdue_log_is_eligible_whatever_its_ratio() -> None:
    """Compaction 3.7: ``max.compaction.lag.ms`` by the first batch of each dirty segment."""
    old = [
        SegmentView(base, 10, first_batch_timestamp=time)
        for base, time in ((0, NOW_MS - 9 * HOUR_MS), (100, NOW_MS - HOUR_MS - 7), (200, -1))
    ]
    lagging = replace(
        view(*old, SegmentView(300, 10)), max_compaction_lag_ms=HOUR_MS, min_cleanable_dirty_ratio=1
    )
    assert choose(lagging, 100, NOW_MS).overdue_ms == 7
    assert choose(lagging, 100, NOW_MS).is_eligible
    assert choose(lagging, 100, NOW_MS - 7).overdue_ms == 0
    assert not choose(lagging, 200, NOW_MS).is_eligible
    # Nothing of it may be cleaned.
    assert not choose(replace(lagging, last_stable_offset=0), None, NOW_MS).is_eligible


def test_a_real_log_is_looked_at() -> None:
    config = LogConfig(
        cleanup_policy=frozenset({"compact"}),
        segment_bytes=2 * BATCH_SIZE,
        min_compaction_lag_ms=HOUR_MS,
        max_compaction_lag_ms=9 * HOUR_MS,
    )
    node = Node(config)
    log = node.log
    for hours in (10, 10, 9, 9, 8, 8, 0, 0, 0):
        append(log, data(timestamp=NOW_MS - hours * HOUR_MS))
    found = look_at(log, None, NOW_MS)
    assert (found.first_dirty_offset, found.first_uncleanable_offset) == (0, 6)
    assert (found.cleanable_bytes, found.overdue_ms) == (6 * BATCH_SIZE, HOUR_MS)
    assert look_at(log, 2, NOW_MS).clean_bytes == 2 * BATCH_SIZE
    append_transactional(log, 7, 0)
    log.update_high_watermark(log.log_end_offset)
    assert look_at(log, None, NOW_MS + 2 * HOUR_MS).first_uncleanable_offset == 8
