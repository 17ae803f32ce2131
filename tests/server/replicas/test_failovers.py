"""Three nodes in the simulator: they are killed, paused and cut off, and nothing is lost (T5)."""

from __future__ import annotations

import pytest

from tests.server.replicas.failovers import Failovers


@pytest.mark.parametrize("seed", range(4))
def test_nothing_that_was_acknowledged_is_lost(seed: int) -> None:
    """J-checks on the clients' history; P6: replicas are the same below the high watermark."""
    outcome = Failovers(seed, active_s=25).go()
    assert outcome.problems == []
    assert outcome.acknowledged > 20, "producers got on"


@pytest.mark.long
@pytest.mark.parametrize("first", range(100, 160, 20))
def test_nothing_that_was_acknowledged_is_lost_in_many_runs(first: int) -> None:
    """The same, with more seeds."""
    outcomes = [Failovers(seed).go() for seed in range(first, first + 20)]
    assert [each for each in outcomes if each.problems] == []


def test_a_run_is_repeated_by_its_seed() -> None:
    runs = [Failovers(7, active_s=8, kinds=("kill",)).go() for _ in range(2)]
    assert runs[0] == runs[1]
