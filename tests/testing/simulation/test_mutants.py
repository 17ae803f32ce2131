"""Deliberate defects of the broker, each of which the simulator must find within a few seeds.

Ids are those of the list of mutants that a checker of Kafka should know; the clean broker passes
the same seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dohle.core.steps import PlainSteps
from dohle.server.coordinators import loading
from dohle.server.quorum.metadata_log import METADATA_PARTITION
from dohle.storage import log_read
from dohle.storage.flush import FlushJob
from dohle.storage.log import Log
from dohle.storage.producers import append
from dohle.storage.producers.entry import ProducerEntry
from dohle.testing.checking.checks import check
from dohle.testing.checking.history import History, Outcome
from dohle.testing.simulation.faults import FaultPlan, Kind
from dohle.testing.simulation.machine import DiskSettings
from dohle.testing.simulation.network import NetworkSettings
from dohle.testing.simulation.run import Run

_SEEDS = range(1, 31)

Patch = Callable[[pytest.MonkeyPatch], None]


def plan(*kinds: Kind, sync_each: bool = False) -> FaultPlan:
    """Return a plan of some faults, each of which strikes often."""
    network = NetworkSettings(delay_mean_ns=2_000_000)
    return FaultPlan(kinds, 8, network, DiskSettings(), sync_each)


def m20_no_deduplication(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProducerEntry, "find_duplicate", lambda self, batch: None)
    patch.setattr(append, "_check_sequence", lambda *about: None)


def m16_open_transactions_are_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Log, "last_stable_offset", property(lambda self: self.high_watermark))


def m21_aborted_transactions_are_not_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(log_read, "aborted_transactions", lambda segments, start_offset, upper: [])


def m26_nothing_is_synced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FlushJob, "run", lambda self: None)


def m23_coordinators_forget_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    def forget(*args: Any, **options: Any) -> PlainSteps[int]:
        yield
        return 0

    patch.setattr(loading, "replay_log", forget)


def m26_metadata_is_not_synced(patch: pytest.MonkeyPatch) -> None:
    prepare_flush = Log.prepare_flush

    def prepare(log: Log, up_to: int | None = None) -> FlushJob | None:
        is_metadata = log.partition == METADATA_PARTITION
        return None if is_metadata else prepare_flush(log, up_to)

    patch.setattr(Log, "prepare_flush", prepare)


_MUTANTS = [
    pytest.param(m20_no_deduplication, plan(Kind.RESET), {"J2", "J9"}, id="M20"),
    pytest.param(m26_nothing_is_synced, plan(Kind.POWER, sync_each=True), {"J5"}, id="M26"),
    pytest.param(m23_coordinators_forget_at_a_restart, plan(Kind.KILL), {"G7"}, id="M23"),
]

#: Those that only one kind of client can notice.
_MUTANTS_BY_ROLE = [
    pytest.param(m16_open_transactions_are_read, plan(), {"J3", "T5"}, "consume", id="M16"),
    pytest.param(m21_aborted_transactions_are_not_told, plan(), {"J3"}, "consume", id="M21"),
    pytest.param(
        m26_metadata_is_not_synced, plan(Kind.POWER), {"A1"}, "administer", id="M26, metadata"
    ),
    pytest.param(
        m23_coordinators_forget_at_a_restart, plan(Kind.KILL), {"G7"}, "join", id="M23, KIP-848"
    ),
]


def first_found(faults: FaultPlan, checks: set[str], role: str | None) -> int | None:
    """Return the first seed in which one of the checks finds something."""
    for seed in _SEEDS:
        result = Run(seed, plan=faults, active_s=4, role=role, is_cleaned=False).go()
        if checks & {problem.split()[0] for problem in result.problems}:
            return seed
    return None


@pytest.mark.parametrize(("mutate", "faults", "checks"), _MUTANTS)
def test_a_deliberate_defect_is_found(
    mutate: Patch, faults: FaultPlan, checks: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    judge(mutate, faults, checks, None, monkeypatch)


@pytest.mark.parametrize(("mutate", "faults", "checks", "role"), _MUTANTS_BY_ROLE)
def test_a_deliberate_defect_is_found_by_whom_it_harms(
    mutate: Patch, faults: FaultPlan, checks: set[str], role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge(mutate, faults, checks, role, monkeypatch)


def judge(
    mutate: Patch,
    faults: FaultPlan,
    checks: set[str],
    role: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        mutate(patch)
        seed = first_found(faults, checks, role)
    assert seed is not None
    assert Run(seed, plan=faults, active_s=4, role=role, is_cleaned=False).go().problems == ()


def read_history() -> History:
    """Return what clients have seen of a node to which nothing happened."""
    run = Run(2, plan=plan(), active_s=4, role="consume", is_cleaned=False)
    assert run.go().problems == ()
    return run.history


def m29_a_record_is_not_given(history: History) -> None:
    reading = max(history.readings, key=lambda each: len(each.records))
    del reading.records[1]


def m29_two_records_are_given_the_other_way_round(history: History) -> None:
    records = max(history.readings, key=lambda each: len(each.records)).records
    records[1], records[2] = records[2], records[1]


def m29_an_acknowledged_record_is_not_there(history: History) -> None:
    records = max(history.final.values(), key=len)
    del records[len(records) // 2]


def m29_what_failed_counts_as_done(history: History) -> None:
    aborted = [each for each in history.transactions if each.outcome is Outcome.FAILED]
    aborted[0].outcome = Outcome.OK


def m29_what_was_done_counts_as_failed(history: History) -> None:
    done = [each for each in history.sends if each.transaction is None and each.offset is not None]
    done[0].outcome = Outcome.FAILED


@pytest.mark.parametrize(
    ("damage", "checks"),
    [
        pytest.param(m29_a_record_is_not_given, {"J6"}, id="dropped"),
        pytest.param(m29_two_records_are_given_the_other_way_round, {"J7"}, id="swapped"),
        pytest.param(m29_an_acknowledged_record_is_not_there, {"J5"}, id="lost"),
        pytest.param(m29_what_failed_counts_as_done, {"J5"}, id="aborted"),
        pytest.param(m29_what_was_done_counts_as_failed, {"J3"}, id="relabelled"),
    ],
)
def test_one_wrong_value_in_a_clean_history_is_found(
    damage: Callable[[History], None], checks: set[str]
) -> None:
    """M29: mutants of the checker's input, as a client that tells lies would make it."""
    history = read_history()
    damage(history)
    assert checks <= {str(each).split()[0] for each in check(history)}
