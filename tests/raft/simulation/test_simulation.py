"""Clusters of raft machines under faults; what must hold after every step is in checker.py."""

from __future__ import annotations

import pytest

from tests.raft.simulation.scenario import Run
from tests.seeds import chunks


@pytest.mark.parametrize("first", range(0, 100, 10))
def test_a_quorum_keeps_its_promises_whatever_fails(first: int) -> None:
    run_seeds(first, 10)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", chunks(100, 1_900, 100))
def test_a_quorum_keeps_its_promises_in_many_more_runs(first: int) -> None:
    run_seeds(first, 100)


def run_seeds(first: int, count: int) -> None:
    for seed in range(first, first + count):
        run = Run(seed)
        try:
            run.run()
        except Exception as error:
            raise AssertionError(f"seed {seed}, {run.shape}: {error}") from error
