"""Deliberate defects of brokers and coordinators, each of which is found: by seeds, or a scenario.

A seed that finds a defect finds nothing without it. Where a defect needs more coincidences than
500 seeds bring about, a scenario brings them about: M13 a fetch that passes two elections, M14 a
question to a leader that was deposed, M15 a power cut of the last replica, M17 a marker of a
coordinator that was deposed, M18 the end of the transaction before. These are ids of mutants, not
rules M of replication.md.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable

import pytest

from dohle.testing.simulation.network import NetworkSettings
from dohle.testing.simulation.world import Stuck
from tests.server.replicas import cluster_mutants as mutants
from tests.server.replicas.cluster_mutants import MUTANTS, Mutant
from tests.server.replicas.failovers import Failovers, Outcome
from tests.server.replicas.history_scenarios import (
    all_are_asked_where_an_epoch_ends,
    the_last_replica_loses_its_power,
)
from tests.storage.producers.marker_scenarios import late_marker, marker_of_a_deposed_coordinator
from tests.storage.producers.producer_partition import Partition
from tests.txn.late_end import an_earlier_transaction_ends_late

SEEDS_MAX = 500
#: Found within a second or two.
_QUICK = ("M1", "M2", "M3", "M20", "M20, followers")


def run(mutant: Mutant, seed: int) -> Outcome:
    network = NetworkSettings(delay_mean_ns=round(mutant.delay_ms * 1e6))
    made = Failovers(
        seed,
        active_s=8,
        kinds=mutant.kinds,
        roles=mutant.roles,
        is_quick=True,
        network=network,
    )
    made.watch.stops = True
    return made.go()


def first_found(mutant: Mutant) -> int | None:
    """Return the first seed in which the defect is found by a check that should."""
    for seed in range(SEEDS_MAX):
        if any(problem.startswith(mutant.found_by) for problem in run(mutant, seed).problems):
            return seed
    return None


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in _QUICK else pytest.mark.long, id=name)
        for name in MUTANTS
    ],
)
def test_a_deliberate_defect_of_a_cluster_is_found(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant = MUTANTS[name]
    with monkeypatch.context() as patch:
        mutant.put_in(patch)
        seed = first_found(mutant)
    assert seed is not None
    with monkeypatch.context() as patch:
        if name == "M27":
            mutants.m27_damage_on_the_way(patch)
        assert run(mutant, seed).problems == []


def with_partition(scenario: Callable[[Partition], None]) -> Callable[[], None]:
    def in_a_folder() -> None:
        with tempfile.TemporaryDirectory() as folder:
            scenario(Partition(folder))

    return in_a_folder


@pytest.mark.parametrize(
    ("put_in", "scenario"),
    [
        pytest.param(mutants.m13_no_leader_epochs, all_are_asked_where_an_epoch_ends, id="M13"),
        pytest.param(
            mutants.m14_anybody_answers_as_a_leader, all_are_asked_where_an_epoch_ends, id="M14"
        ),
        pytest.param(
            mutants.m15_a_crash_counts_as_a_clean_stop,
            the_last_replica_loses_its_power,
            id="M15",
            marks=pytest.mark.long,
        ),
        pytest.param(
            mutants.m17_any_marker_is_taken,
            with_partition(marker_of_a_deposed_coordinator),
            id="M17",
        ),
        pytest.param(mutants.m17_any_marker_is_taken, with_partition(late_marker), id="M17, late"),
        pytest.param(mutants.m18_an_old_end_is_taken, an_earlier_transaction_ends_late, id="M18"),
    ],
)
def test_a_deliberate_defect_is_found_by_the_scenario_that_it_needs(
    put_in: Callable[[pytest.MonkeyPatch], None],
    scenario: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The scenarios are tests of their own, which pass."""
    put_in(monkeypatch)
    with pytest.raises((AssertionError, Stuck, pytest.fail.Exception)):
        scenario()
