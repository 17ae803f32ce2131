"""Partitions move between four nodes in the simulator while these fail, and nothing is lost."""

from __future__ import annotations

import pytest

from tests.seeds import chunks
from tests.server.replicas.failovers import TRANSACTIONS
from tests.server.replicas.reassigning import Reassigning

_CHUNK = 4


@pytest.mark.parametrize("seed", range(3))
def test_nothing_that_was_acknowledged_is_lost_while_partitions_move(seed: int) -> None:
    """J-checks on the clients' history, P6, and L8: every reassignment ends."""
    run = Reassigning(seed, active_s=25)
    outcome = run.go()
    assert outcome.problems == []
    assert outcome.acknowledged > 20, "producers got on"
    assert run.begun > 3, "and so did the reassignments"


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", chunks(200, 40, _CHUNK))
def test_nothing_is_lost_in_many_runs(first: int) -> None:
    """The same, with more seeds."""
    outcomes = [Reassigning(seed).go() for seed in range(first, first + _CHUNK)]
    assert [each for each in outcomes if each.problems] == []


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", chunks(1000, 20, _CHUNK))
def test_transactions_and_groups_go_on_while_all_partitions_move(first: int) -> None:
    """Their coordinators move too, and all fail meanwhile."""
    runs = range(first, first + _CHUNK)
    outcomes = [Reassigning(seed, active_s=20, roles=TRANSACTIONS).go() for seed in runs]
    assert [each for each in outcomes if each.problems] == []
