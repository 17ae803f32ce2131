"""The simulation finds deliberate defects of the machine: each within 500 seeds.

The numbers M5, M6, ... are those of the catalogue of mutants (checking.md 4.6), not rules M of
replication.md; R and L are invariants (checking.md 3), not rules of raft.md. A defect is put in by
replacing one function or one method. The invariant that is to find it must do so: other errors do
not count. The seed that finds it finds nothing without the defect.

M26, a rename that is not synced, needs real files: tests/server/quorum/test_simulated_quorum.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from dohle.core.errors import ErrorCode
from dohle.raft import changes, election, following, replica, serving
from dohle.raft.leader import Leader
from dohle.raft.log_view import LogView
from dohle.raft.membership import Membership
from dohle.raft.positions import Mismatch
from dohle.raft.states import Prospective, Unattached
from dohle.raft.values import ElectionState, OffsetAndEpoch, ReplicaKey
from tests.raft.simulation import model_log
from tests.raft.simulation.checker import Violation
from tests.raft.simulation.model_log import Entry, ModelLog, Snapshot
from tests.raft.simulation.scenario import Run
from tests.raft.simulation.world import SimulatedNode

Patch = pytest.MonkeyPatch
SEEDS_MAX = 500


def m5_divergence_without_epochs(patch: Patch) -> None:
    def find_mismatch(log: LogView, offset: int, last_epoch: int) -> Mismatch | None:
        if offset < log.start_offset:
            return Mismatch(snapshot=log.snapshots[-1])
        if offset > log.end_offset:
            return Mismatch(diverging=OffsetAndEpoch(log.end_offset, log.last_epoch))
        return None

    patch.setattr(serving, "find_mismatch", find_mismatch)


def m6_vote_not_on_disk(patch: Patch) -> None:
    persist = replica.Replica.persist

    def without_votes(self: replica.Replica) -> None:
        if not isinstance(self.state, Unattached | Prospective) or self.state.voted is None:
            persist(self)

    patch.setattr(replica.Replica, "persist", without_votes)


def m6_two_votes(patch: Patch) -> None:
    vote = election._vote

    def again(node: replica.Replica, candidate: ReplicaKey, *, is_up_to_date: bool) -> bool:
        if isinstance(node.state, Unattached | Prospective):
            node.state.voted = None
        return vote(node, candidate, is_up_to_date=is_up_to_date)

    patch.setattr(election, "_vote", again)


def m7_votes_for_short_logs(patch: Patch) -> None:
    patch.setattr(OffsetAndEpoch, "is_up_to_date_with", lambda self, other: True)


def m8_old_epochs_committed_by_counting(patch: Patch) -> None:
    def advance(self: Leader, own_offset: int) -> bool:
        offset = self.majority_offset(own_offset)
        if offset <= (self.high_watermark or 0):
            return False
        self.high_watermark = offset
        return True

    patch.setattr(Leader, "advance", advance)


def m9_leader_without_majority(patch: Patch) -> None:
    patch.setattr(replica.Replica, "check_quorum_ms", 1e12)


def m10_two_changes_at_once(patch: Patch) -> None:
    def check(node: replica.Replica, leader: Leader) -> Membership:
        if not node.log.memberships.latest.kraft_version:
            raise changes.Refused(ErrorCode.UNSUPPORTED_VERSION, "")
        return node.log.memberships.latest

    patch.setattr(changes, "_check_open_to_change", check)


def m25_snapshot_with_a_wrong_end(patch: Patch) -> None:
    take = ModelLog.take_snapshot

    def too_far(self: ModelLog, offset: int) -> None:
        take(self, offset)
        wrong = self.digest_at(offset - 1)
        if self.kept[-1].id.offset == offset and wrong is not None:
            self.kept[-1] = Snapshot(self.kept[-1].id, wrong, self.kept[-1].membership)

    patch.setattr(ModelLog, "take_snapshot", too_far)


def leader_counts_what_its_disk_lacks(patch: Patch) -> None:
    patch.setattr(replica.Replica, "durable_offset", property(lambda self: self.log.end_offset))


def follower_fetches_before_it_syncs(patch: Patch) -> None:
    patch.setattr(following, "_may_fetch", lambda node: node.installing is None)


def leader_goes_on_after_a_restart(patch: Patch) -> None:
    restored = replica.Replica._restored

    def as_candidate(self: replica.Replica, found: ElectionState) -> replica.State:
        if found.leader_id == self.key.id:
            return restored(self, ElectionState(found.epoch, None, self.key))
        return restored(self, found)

    patch.setattr(replica.Replica, "_restored", as_candidate)


def new_leader_keeps_its_watermark(patch: Patch) -> None:
    become = replica.Replica.become_leader

    def with_watermark(self: replica.Replica, granting: Any) -> None:
        become(self, granting)
        assert isinstance(self.state, Leader)
        self.state.high_watermark = self.log.end_offset

    patch.setattr(replica.Replica, "become_leader", with_watermark)


def removed_leader_never_resigns(patch: Patch) -> None:
    patch.setattr(serving, "_is_removed", lambda node, leader: False)


def node_goes_on_after_a_failed_sync(patch: Patch) -> None:
    patch.setattr(SimulatedNode, "sync_failed", SimulatedNode.handle)


def start_goes_on_behind_a_damaged_batch(patch: Patch) -> None:
    def undamaged(found: list[Entry | None]) -> list[Entry]:
        return [entry for entry in found if entry is not None]

    patch.setattr(model_log, "whole", undamaged)


class Mutant(NamedTuple):
    """A defect, and the invariants that find it."""

    put_in: Callable[[Patch], None]
    found_by: tuple[str, ...]


MUTANTS = [
    Mutant(m5_divergence_without_epochs, ("R10",)),
    Mutant(m6_vote_not_on_disk, ("R13",)),
    Mutant(m6_two_votes, ("R13", "R4")),
    Mutant(m7_votes_for_short_logs, ("R11",)),
    Mutant(m8_old_epochs_committed_by_counting, ("R15",)),
    Mutant(m9_leader_without_majority, ("L1",)),
    Mutant(m10_two_changes_at_once, ("R17",)),
    Mutant(m25_snapshot_with_a_wrong_end, ("R7", "R12")),
    Mutant(leader_counts_what_its_disk_lacks, ("R3",)),
    Mutant(follower_fetches_before_it_syncs, ("R3",)),
    Mutant(leader_goes_on_after_a_restart, ("R20",)),
    Mutant(new_leader_keeps_its_watermark, ("R12",)),
    Mutant(removed_leader_never_resigns, ("R18",)),
    Mutant(node_goes_on_after_a_failed_sync, ("R3",)),
    Mutant(start_goes_on_behind_a_damaged_batch, ("R10",)),
]


def broken_by(seed: int) -> str | None:
    """Return the number of the invariant that does not hold in a run."""
    try:
        Run(seed).run()
    except Violation as violation:
        return str(violation).partition(":")[0]
    except Exception as error:
        return type(error).__name__
    return None


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.put_in.__name__)
def test_a_defect_is_found_by_the_invariant_that_should_find_it(
    mutant: Mutant, monkeypatch: Patch
) -> None:
    with monkeypatch.context() as patch:
        mutant.put_in(patch)
        found = next(
            (seed for seed in range(SEEDS_MAX) if broken_by(seed) in mutant.found_by), None
        )
    assert found is not None, f"{SEEDS_MAX} runs have not found it"
    assert broken_by(found) is None, "and without the defect nothing is found"
