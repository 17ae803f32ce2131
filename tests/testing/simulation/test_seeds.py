"""A node, three clients and whatever may happen to them: seeds of the simulator.

A failure prints the command that repeats it.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from random import Random

import pytest

from dohle.testing.simulation.faults import FaultPlan, Kind, draw_plan
from dohle.testing.simulation.run import Run
from tests.seeds import chunks

_CHUNK, _SEEDS = 5, 50
_LONG_CHUNK, _LONG_SEEDS = 25, 1_000
_CLEANED_SEEDS = 500
_RESTARTS = (Kind.KILL, Kind.KILL_IN_WRITE, Kind.STOP, Kind.POWER)


def judge(seeds: range) -> None:
    """Run seeds, and fail with what they have found and how to see it again."""
    report(Run(seed) for seed in seeds)


def report(runs: Iterable[Run]) -> None:
    found = []
    for run in runs:
        result = run.go()
        if result.problems:
            found += [f"\n{result}\nto repeat: {result.command}", *result.problems]
    # What is left of the killed must go without a word, and here.
    gc.collect()
    assert not found, "\n".join(found)


@pytest.mark.parametrize("first", range(1, _SEEDS + 1, _CHUNK))
def test_clients_get_what_they_were_promised(first: int) -> None:
    judge(range(first, first + _CHUNK))


@pytest.mark.long
@pytest.mark.parametrize("first", chunks(_SEEDS + 1, _LONG_SEEDS, _LONG_CHUNK))
def test_clients_get_what_they_were_promised_in_many_more_runs(first: int) -> None:
    judge(range(first, first + _LONG_CHUNK))


def power_cuts_and_restarts(seed: int) -> FaultPlan:
    """Draw a plan in which the node loses its power, also with records that were not synced."""
    rng = Random(f"power/{seed}")
    others = {kind for kind in _RESTARTS if rng.random() < 0.5}
    kinds = tuple(kind for kind in _RESTARTS if kind in others | {Kind.POWER})
    drawn = draw_plan(rng)
    return FaultPlan(kinds, rng.randint(2, 6), drawn.network, drawn.disk, rng.random() < 0.3)


@pytest.mark.long
@pytest.mark.parametrize("first", chunks(1, _CLEANED_SEEDS, _LONG_CHUNK))
def test_logs_are_cleaned_beside_power_cuts_and_restarts(first: int) -> None:
    """The command of a failure does not repeat it: the plan is drawn here."""
    report(
        Run(seed, plan=power_cuts_and_restarts(seed), is_cleaned=True)
        for seed in range(first, first + _LONG_CHUNK)
    )
