"""Three nodes in the simulator: they are killed, paused and cut off, and nothing is lost (T5).

``python -m tests.server.replicas --seeds 40-2039`` runs as many of the short ones as wanted.
"""

from __future__ import annotations

import gc

import pytest

from tests.seeds import chunks
from tests.server.replicas.failovers import TRANSACTIONS, Failovers

_CHUNK, _SEEDS = 4, 40
_LONG_CHUNK, _LONG_SEEDS = 25, 2_000
#: Of runs that go on for longer.
_SLOW_CHUNK = 4


def judge(seeds: range) -> None:
    """Run seeds whose clients and faults are drawn, and fail with what they have found."""
    found = []
    for seed in seeds:
        outcome = Failovers.drawn(seed).go()
        found += [f"seed {seed}: {problem}" for problem in outcome.problems]
    gc.collect()
    assert not found, "\n".join(found)


@pytest.mark.parametrize("first", range(0, _SEEDS, _CHUNK))
def test_a_cluster_keeps_what_it_has_promised(first: int) -> None:
    """P1-P17, G1-G8, T1-T7, L1-L8 and the J-checks: see ``failovers``."""
    judge(range(first, first + _CHUNK))


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", chunks(_SEEDS, _LONG_SEEDS, _LONG_CHUNK))
def test_a_cluster_keeps_what_it_has_promised_in_many_more_runs(first: int) -> None:
    judge(range(first, first + _LONG_CHUNK))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_nothing_that_was_acknowledged_is_lost(seed: int) -> None:
    """J-checks on the clients' history; P6: replicas are the same below the high watermark."""
    outcome = Failovers(seed, active_s=25).go()
    assert outcome.problems == []
    assert outcome.acknowledged > 20, "producers got on"


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", chunks(100, 40, _SLOW_CHUNK))
def test_nothing_that_was_acknowledged_is_lost_in_many_runs(first: int) -> None:
    """The same, with more seeds."""
    outcomes = [Failovers(seed).go() for seed in range(first, first + _SLOW_CHUNK)]
    assert [each for each in outcomes if each.problems] == []


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20, 22))
def test_transactions_and_groups_go_on_through_failovers(seed: int) -> None:
    """H1-H3, H6, H7: coordinators, leaders of partitions and producers on different brokers.

    The checks: readers of committed records see committed transactions whole and nothing of others
    (T), a copy by a group with transactions is exactly what was copied (J), no offset that was
    committed is lost (G); in the end no transaction is open any more.
    """
    outcome = Failovers(seed, active_s=20, roles=TRANSACTIONS).go()
    assert outcome.problems == []
    assert outcome.acknowledged > 100, "producers got on"


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", chunks(200, 40, _SLOW_CHUNK))
def test_transactions_and_groups_go_on_through_failovers_in_many_runs(first: int) -> None:
    """The same, with more seeds."""
    runs = range(first, first + _SLOW_CHUNK)
    outcomes = [Failovers(seed, active_s=30, roles=TRANSACTIONS).go() for seed in runs]
    assert [each for each in outcomes if each.problems] == []


def test_a_run_is_repeated_by_its_seed() -> None:
    runs = [Failovers(7, active_s=8, kinds=("kill",)).go() for _ in range(2)]
    assert runs[0] == runs[1]
    runs = [Failovers(7, active_s=5, kinds=("kill",), roles=TRANSACTIONS).go() for _ in range(2)]
    assert runs[0] == runs[1]
