"""When a warm-up is over; the clock and the server are simulated, nothing is measured."""

from __future__ import annotations

import json

import pytest
from bench.comparison.warm_up import (
    FULL,
    QUICK,
    TOLERANCE,
    WINDOWS,
    Limits,
    Phase,
    WarmUp,
    WarmUps,
    find_phase,
    has_settled,
    warm_up,
)
from hypothesis import given
from hypothesis import strategies as st

LIMITS = Limits(least_s=40.0, most_s=120.0, window_s=4.0)


class Simulated:
    """A server whose loads take what a list says, one after the other; the last one for ever."""

    def __init__(self, *times_s: float, idle_s: float = 0.0) -> None:
        self._times_s, self._idle_s = times_s, idle_s
        self.now_s, self.cost_s = 100.0, 7.0
        self.numbers: list[int] = []

    def load(self, number: int) -> None:
        self.numbers.append(number)
        took_s = self._times_s[min(number, len(self._times_s) - 1)]
        self.cost_s += took_s
        self.now_s += took_s + self._idle_s

    def warm_up(self, limits: Limits = LIMITS, cycle: int = 1) -> WarmUp:
        return warm_up(
            self.load, lambda: self.cost_s, limits, cycle=cycle, clock=lambda: self.now_s
        )


def test_a_full_warm_up_takes_at_least_40_and_at_most_120_seconds() -> None:
    assert (FULL.least_s, FULL.most_s, WINDOWS, TOLERANCE) == (40.0, 120.0, 3, 0.05)
    assert QUICK.most_s < FULL.least_s


@pytest.mark.parametrize(
    ("rates", "settled"),
    [
        ([], False),
        ([100.0, 100.0], False),
        ([100.0, 100.0, 100.0], True),
        ([100.0, 95.0, 97.0], True),
        ([100.0, 94.9, 97.0], False),
        ([10.0, 50.0, 96.0, 98.0, 100.0], True),
        ([96.0, 98.0, 100.0, 104.0], False),
        ([100.0, 100.0, 100.0, 60.0], False),
        ([0.0, 0.0, 0.0], False),
    ],
)
def test_a_rate_has_settled_when_the_last_three_windows_are_within_5_percent(
    rates: list[float], settled: bool
) -> None:
    assert has_settled(rates) is settled


def test_a_settled_rate_does_not_end_a_warm_up_before_its_least_time() -> None:
    steady = [50.0] * 9
    assert find_phase(LIMITS, 39.9, steady) is Phase.RUNNING
    assert find_phase(LIMITS, 40.0, steady) is Phase.SETTLED


def test_a_rate_that_never_settles_is_given_up_at_the_most_time() -> None:
    restless = [50.0, 80.0] * 9
    assert find_phase(LIMITS, 119.9, restless) is Phase.RUNNING
    assert find_phase(LIMITS, 120.0, restless) is Phase.GIVEN_UP
    assert find_phase(LIMITS, 120.0, [50.0] * 3) is Phase.SETTLED


def test_a_steady_server_is_warmed_up_for_the_least_time() -> None:
    found = Simulated(1.0).warm_up()
    assert (found.seconds, found.phase) == (40.0, Phase.SETTLED)
    assert found.rates == (1.0,) * 10


def test_a_server_that_gets_faster_is_warmed_up_until_it_no_longer_does() -> None:
    # Each window of four seconds is a tenth faster than the one before, until 60 s have passed.
    speeds = [1.1**window for window in range(15) for _ in range(round(4 * 1.1**window))]
    server = Simulated(*(1 / speed for speed in speeds))
    found = server.warm_up()
    assert found.is_settled
    assert 60 < found.seconds < 80
    assert server.numbers == list(range(len(server.numbers)))


def test_a_restless_server_is_given_up() -> None:
    found = Simulated(*([4.0] * 2 + [5.0] * 2) * 20).warm_up()
    assert found.phase is Phase.GIVEN_UP
    assert 120 <= found.seconds < 126
    assert str(found).endswith(" s (not settled: 20% apart)")


def test_windows_hold_whole_cycles_so_that_unlike_loads_do_not_look_restless() -> None:
    loads = [4.0, 5.0] * 100
    assert Simulated(*loads).warm_up(cycle=2).rates == pytest.approx((2 / 9,) * 4)
    assert Simulated(*loads).warm_up(cycle=1).phase is Phase.GIVEN_UP


def test_what_the_client_does_between_loads_does_not_count() -> None:
    assert Simulated(1.0, idle_s=1.0).warm_up().rates == (1.0,) * 10


def test_limits_must_leave_room() -> None:
    with pytest.raises(ValueError, match="40 to 30 s"):
        Limits(40, 30, 1)


@given(st.lists(st.floats(0.01, 3.0), min_size=1, max_size=60), st.integers(1, 4))
def test_every_warm_up_ends_within_its_limits(times_s: list[float], cycle: int) -> None:
    found = Simulated(*times_s).warm_up(Limits(5.0, 20.0, 1.0), cycle)
    assert 5.0 - 1e-6 <= found.seconds <= 20.0 + max(times_s) + 1e-6
    assert found.is_settled == has_settled(found.rates)


def test_warm_ups_are_told_in_one_line_and_survive_json() -> None:
    quick, slow = (WarmUp(s, (), Phase.SETTLED) for s in (40.2, 77.0))
    given_up = WarmUp(121.0, (), Phase.GIVEN_UP)
    found = WarmUps(LIMITS, (quick, quick, quick), (slow, given_up, slow))
    assert found.cells == (
        "40 to 120 s",
        "40 s (40–40)",
        "77 s (77–121), settled in 2 of 3 turns",
    )
    assert WarmUps.from_json(json.loads(json.dumps(found.to_json()))) == found
