"""What is copied, and what is deleted (T3, T7, T15a)."""

from __future__ import annotations

from dohle.tiering.cache import RemoteLogMetadataCache
from dohle.tiering.planning import DANGLING_MS, Extent, Limits, to_copy, to_expire
from dohle.tiering.segments import Epochs
from tests.tiering.values import DELETING, copied, segment, update

_NO_LIMITS = Limits(None, None)
_EPOCHS: Epochs = ((0, 0),)


def _extent(
    *bases: int, start: int = 0, stable: int | None = None, end: int | None = None
) -> Extent:
    end = bases[-1] + 10 if end is None else end
    return Extent(start, end if stable is None else stable, end, bases)


def _ids(
    cache: RemoteLogMetadataCache,
    limits: Limits,
    extent: Extent,
    *,
    local_only: int = 0,
    now_ms: int = 0,
    epochs: Epochs = _EPOCHS,
) -> tuple[list[int], int]:
    plan = to_expire(cache, extent, epochs, limits, local_only, now_ms)
    numbers = [int.from_bytes(each.id, "big") for each in plan.segments]
    return numbers, plan.log_start_offset


def test_closed_segments_below_the_last_stable_offset_are_copied_oldest_first() -> None:
    """T3.3: never the active one, nor one with an undecided transaction behind its start."""
    assert to_copy(_extent(0, 100, 200), -1) == [(0, 100), (100, 200)]
    assert to_copy(_extent(0, 100, 200, stable=150), -1) == [(0, 100)]
    assert to_copy(_extent(0, 100, 200, stable=0), -1) == []
    assert to_copy(_extent(0), -1) == []


def test_what_is_copied_is_not_copied_again_but_the_segment_that_has_the_rest_is() -> None:
    """T3.3: floor."""
    assert to_copy(_extent(0, 100, 200), 99) == [(100, 200)]
    assert to_copy(_extent(0, 100, 200), 120) == [(100, 200)]
    assert to_copy(_extent(0, 100, 200), 199) == []
    assert to_copy(_extent(0, 100, 200, start=150), -1) == [(100, 200)]


def test_segments_expire_by_their_largest_timestamp_until_the_first_that_stays() -> None:
    """T7.4: the walk stops there."""
    cache = copied(
        segment(1, 0, 99, max_timestamp_ms=10),
        segment(2, 100, 199, max_timestamp_ms=50),
        segment(3, 200, 299, max_timestamp_ms=5),
    )
    extent = _extent(300, end=400)
    assert _ids(cache, Limits(100, None), extent, now_ms=120) == ([1], 100)
    assert _ids(cache, Limits(100, None), extent, now_ms=150) == ([1, 2, 3], 300)


def test_segments_expire_by_the_size_of_both_tiers() -> None:
    """T7.3: only while the rest still is too large."""
    cache = copied(*(segment(n, 100 * n, 100 * n + 99) for n in range(3)))
    extent = _extent(300, end=400)
    assert _ids(cache, Limits(None, 300), extent) == ([], 0)
    assert _ids(cache, Limits(None, 300), extent, local_only=100) == ([0], 100)
    assert _ids(cache, Limits(None, 250), extent) == ([], 0)


def test_what_is_below_the_log_start_goes_without_moving_it() -> None:
    """T7.4, T15: after DeleteRecords."""
    cache = copied(segment(1, 0, 99), segment(2, 100, 199))
    assert _ids(cache, _NO_LIMITS, _extent(200, start=150), epochs=((0, 150),)) == ([1], 150)


def test_a_deletion_that_was_begun_is_made_again() -> None:
    """T7.4: state 2."""
    one = segment(1, 0, 99)
    cache = copied(one, segment(2, 100, 199))
    cache.apply(update(one, DELETING))
    assert _ids(cache, _NO_LIMITS, _extent(200))[0] == [1]


def test_segments_of_epochs_before_the_first_one_go() -> None:
    """T7.6: left-overs of unclean elections."""
    cache = copied(segment(1, 0, 99, ((0, 0),)), segment(2, 0, 99, ((3, 0),)))
    assert _ids(cache, _NO_LIMITS, _extent(200), epochs=((3, 0),)) == ([1], 0)


def test_segments_of_epochs_that_were_lost_with_their_file_stay() -> None:
    """T15a: what recovery found in the local segments alone is no lineage of the whole log."""
    cache = copied(segment(1, 0, 99, ((0, 0),)), segment(2, 100, 199, ((3, 100),)))
    assert _ids(cache, _NO_LIMITS, _extent(200), epochs=((3, 100),)) == ([], 0)


def test_nothing_is_deleted_behind_a_segment_that_is_being_copied() -> None:
    """T7.4."""
    one, two = segment(1, 0, 99), segment(2, 100, 199)
    cache = copied(two)
    cache.apply(one)
    plan = to_expire(
        cache, _extent(300), _EPOCHS, Limits(0, None), 0, 1000, copying=frozenset({one.id})
    )
    assert plan.segments == []


def test_a_copy_that_nobody_finished_goes_when_another_one_covers_it() -> None:
    """T15a: Kafka leaves it until it expires."""
    dangling = segment(1, 0, 99, event_ms=1_000)
    cache = copied(segment(2, 0, 99, event_ms=2_000))
    cache.apply(dangling)
    assert _ids(cache, _NO_LIMITS, _extent(200), now_ms=3_000)[0] == []
    assert _ids(cache, _NO_LIMITS, _extent(200), now_ms=1_000 + DANGLING_MS)[0] == [1]


def test_without_epochs_nothing_is_deleted() -> None:
    """T15a: the file may be lost; then nothing is known of the lineage."""
    cache = copied(segment(1, 0, 99, max_timestamp_ms=0))
    assert _ids(cache, Limits(0, 0), _extent(200), now_ms=9_999, epochs=()) == ([], 0)
