"""When a log's flush is due, and where its recovery point is: the account alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dohle.storage.config import NEVER
from dohle.storage.flush_state import FlushState
from tests.storage.logs import property_test


def test_nothing_is_due_while_all_is_on_the_disk() -> None:
    state = FlushState(10)
    state.start_timer(10, 1_000, now_ms=5)
    assert state.due_ms is None


def test_a_flush_is_due_flush_ms_after_the_timer_was_started() -> None:
    state = FlushState(10)
    state.start_timer(12, 1_000, now_ms=5)
    assert state.due_ms == 1_005
    assert state.due_up_to(15, now_ms=1_004) == 10
    assert state.due_up_to(15, now_ms=1_005) == 15


def test_without_flush_ms_only_a_roll_makes_a_flush_due() -> None:
    state = FlushState(10)
    due: list[int | None] = []
    state.start_timer(12, NEVER, now_ms=5)
    due.append(state.due_ms)
    state.rolled(12, now_ms=7)
    due.append(state.due_ms)
    assert state.due_up_to(20, now_ms=7) == 12
    state.flushed_up_to(12)
    due.append(state.due_ms)
    assert due == [None, 7, None]


def test_a_flush_that_ends_late_does_not_move_the_recovery_point_back() -> None:
    state = FlushState(10)
    state.flushed_up_to(30)
    state.flushed_up_to(20)
    assert state.recovery_point == 30


@property_test(100)
@given(flushed=st.integers(0, 50), rolled=st.integers(0, 50), end=st.integers(0, 50))
def test_after_a_truncation_nothing_behind_the_log_end_counts_or_is_wanted(
    flushed: int, rolled: int, end: int
) -> None:
    state = FlushState(0)
    state.rolled(rolled, now_ms=1)
    state.flushed_up_to(flushed)
    assert state.truncated_to(end) is (flushed > end)
    assert state.recovery_point == min(flushed, end)
    assert state.due_up_to(end, now_ms=1) <= end
