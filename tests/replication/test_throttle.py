"""The rate of throttled replication over windows of time (F18), and whose it is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dohle.replication.throttle import UNLIMITED, ReplicationQuota, ThrottledReplicas

WINDOWS, WINDOW_MS = 11, 1000


def quota(bytes_per_second: int) -> ReplicationQuota:
    made = ReplicationQuota(WINDOWS, WINDOW_MS)
    made.bytes_per_second = bytes_per_second
    return made


def test_the_first_window_counts_as_a_whole_one() -> None:
    made = quota(1000)
    made.record(1000, 0)
    assert (made.rate(0), made.is_exceeded(0)) == (1000.0, False)
    made.record(1, 0)
    assert made.is_exceeded(0)
    assert not made.is_exceeded(1001)


def test_what_was_copied_at_once_is_waited_for_until_the_average_is_met() -> None:
    made = quota(100)
    made.record(500, 10_000)
    assert made.is_exceeded(14_999)
    assert not made.is_exceeded(15_000)


def test_windows_go_out_of_sight() -> None:
    made = quota(1)
    made.record(1_000_000, 0)
    assert made.is_exceeded(WINDOWS * WINDOW_MS - 1)
    assert not made.is_exceeded(WINDOWS * WINDOW_MS)
    assert made.rate(WINDOWS * WINDOW_MS) == 0


def test_without_a_limit_nothing_is_held_back() -> None:
    made = quota(UNLIMITED)
    made.record(1 << 62, 0)
    assert made.wait_ms(0) == 0


def test_a_rate_of_zero_holds_all_back_that_has_ever_begun() -> None:
    made = quota(0)
    assert made.wait_ms(0) == 0
    made.record(1, 0)
    assert made.wait_ms(0) == WINDOW_MS


@given(rate=st.integers(1, 10_000), sizes=st.lists(st.integers(0, 50_000), max_size=60))
def test_who_waits_as_told_keeps_to_the_rate(rate: int, sizes: list[int]) -> None:
    """However large the pieces are: what came in the windows before each was not too much."""
    made, now_ms = quota(rate), 0
    copied: list[tuple[int, int]] = []
    for size in sizes:
        for _ in range(2 * WINDOWS):
            wait_ms = made.wait_ms(now_ms)
            if not wait_ms:
                break
            assert 0 < wait_ms <= WINDOW_MS
            now_ms += wait_ms
        assert not made.is_exceeded(now_ms), "it ends when all windows have gone"
        recent = sum(size for at, size in copied if now_ms - at < (WINDOWS - 1) * WINDOW_MS)
        assert recent <= rate * (WINDOWS + 1) * WINDOW_MS / 1000
        made.record(size, now_ms)
        copied.append((now_ms, size))


def test_replicas_are_named_one_by_one_or_all_at_once() -> None:
    some = ThrottledReplicas.of(["0:1", "0:2", "3:1"])
    assert some.has(0, 2)
    assert some.has(3, 1)
    assert not some.has(3, 2)
    assert ThrottledReplicas.of(["*"]).has(99, 7)
    assert not ThrottledReplicas.of([]).has(0, 0)
