"""How many partitions clients may have created and deleted (facts: security.md, section 9)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.core.errors import ErrorCode, KafkaError
from dohle.quotas.entities import Bucket, Limit
from dohle.quotas.mutations import Buckets

RATE, WINDOW_S = 2.0, 11
LIMIT = Limit(Bucket("u", ""), RATE)
BURST = int(RATE * WINDOW_S)


class Now:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def __call__(self) -> int:
        return self.ms


def is_allowed(spend: Callable[[int], None], count: int) -> bool:
    try:
        spend(count)
    except KafkaError as error:
        if error.code is not ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            raise
        return False
    return True


def test_a_bucket_starts_full_and_may_be_overdrawn_once() -> None:
    """9, Controller mutations: accepted while tokens are not below 0; then 89 and the time."""
    now = Now()
    buckets = Buckets(WINDOW_S)
    one = buckets.spending(LIMIT, now, is_strict=True)
    assert is_allowed(one.spend, BURST)
    assert is_allowed(one.spend, 10)
    assert one.throttle_ms() == 0
    assert not is_allowed(one.spend, 1)
    # Ten tokens at two in a second; less by what has passed when it is told.
    assert one.throttle_ms() == 5_000
    now.ms += 2_000
    assert one.throttle_ms() == 3_000
    other = buckets.spending(LIMIT, now, is_strict=True)
    assert not is_allowed(other.spend, 1)
    now.ms += 3_000
    assert is_allowed(buckets.spending(LIMIT, now, is_strict=True).spend, 1)


def test_old_clients_are_served_and_wait_afterwards() -> None:
    """9, Controller mutations: older versions are done anyway, then muted."""
    now = Now()
    permissive = Buckets(WINDOW_S).spending(LIMIT, now, is_strict=False)
    assert is_allowed(permissive.spend, BURST)
    assert permissive.throttle_ms() == 0
    assert is_allowed(permissive.spend, 6)
    assert permissive.throttle_ms() == 3_000


def test_everybody_has_a_bucket_and_there_are_only_so_many() -> None:
    """9, Who shares one bucket."""
    now, buckets = Now(), Buckets(WINDOW_S, buckets_max=2)
    for name in ("a", "b"):
        spending = buckets.spending(Limit(Bucket(name, ""), RATE), now, is_strict=True)
        assert is_allowed(spending.spend, BURST + 1)
        assert not is_allowed(spending.spend, 1)
    buckets.spending(Limit(Bucket("c", ""), RATE), now, is_strict=True)
    forgotten = buckets.spending(Limit(Bucket("a", ""), RATE), now, is_strict=True)
    assert is_allowed(forgotten.spend, 1)


@given(st.lists(st.tuples(st.integers(0, 5_000), st.integers(1, 40)), max_size=60))
def test_in_the_long_run_there_are_no_more_than_the_rate(events: list[tuple[int, int]]) -> None:
    """9, Controller mutations: the burst, the rate, and the one that overdraws."""
    now, buckets = Now(), Buckets(WINDOW_S)
    begun, spent, largest = now.ms, 0, 0
    for pause_ms, count in events:
        now.ms += pause_ms
        spending = buckets.spending(LIMIT, now, is_strict=True)
        if is_allowed(spending.spend, count):
            spent += count
            largest = max(largest, count)
        else:
            # Who waits as told is served.
            now.ms += spending.throttle_ms()
            again = buckets.spending(LIMIT, now, is_strict=True)
            assert again.throttle_ms() == 0
    assert spent <= BURST + RATE * (now.ms - begun) / 1000 + largest + 1e-6


@pytest.mark.parametrize("is_strict", [True, False])
def test_who_has_not_spent_anything_does_not_wait(is_strict: bool) -> None:
    spending = Buckets(WINDOW_S).spending(LIMIT, Now(), is_strict=is_strict)
    assert spending.throttle_ms() == 0
