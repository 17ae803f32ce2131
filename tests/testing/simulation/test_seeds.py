"""A node, three clients and whatever may happen to them: seeds of the simulator.

A failure prints the command that repeats it.
"""

from __future__ import annotations

import gc

import pytest

from dohle.testing.simulation.run import Run

_CHUNK, _SEEDS = 5, 50
_LONG_CHUNK, _LONG_SEEDS = 25, 1_000


def judge(seeds: range) -> None:
    """Run seeds, and fail with what they have found and how to see it again."""
    found = []
    for seed in seeds:
        result = Run(seed).go()
        if result.problems:
            found += [f"\n{result}\nto repeat: {result.command}", *result.problems]
    # What is left of the killed must go without a word, and here.
    gc.collect()
    assert not found, "\n".join(found)


@pytest.mark.parametrize("first", range(1, _SEEDS + 1, _CHUNK))
def test_clients_get_what_they_were_promised(first: int) -> None:
    judge(range(first, first + _CHUNK))


@pytest.mark.long
@pytest.mark.parametrize("first", range(_SEEDS + 1, _SEEDS + _LONG_SEEDS + 1, _LONG_CHUNK))
def test_clients_get_what_they_were_promised_in_many_more_runs(first: int) -> None:
    judge(range(first, first + _LONG_CHUNK))
