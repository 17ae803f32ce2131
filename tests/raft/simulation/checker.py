"""What must hold at all times. Rules R1-R20 are those of the catalogue of invariants.

The checker remembers what no node knows: which records are committed, who was elected, who voted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dohle.core.errors import ErrorCode
from dohle.protocol.messages import fetch, vote
from dohle.protocol.schema import Request, Response
from dohle.raft import effects as do
from dohle.raft.leader import Leader
from dohle.raft.machine import Raft
from dohle.raft.membership import Membership
from dohle.raft.values import ReplicaKey
from dohle.raft.voters import VoterSet, key_of
from dohle.raft.wire import only_partition, read_response
from tests.raft.simulation.model_log import digest_behind

if TYPE_CHECKING:
    from tests.raft.simulation.world import SimulatedNode, World


class Violation(AssertionError):
    """An invariant does not hold; the text begins with its number."""


class Checker:
    """The invariants of the quorum."""

    def __init__(self, world: World) -> None:
        self._world = world
        #: Digests of the committed log, by end offset.
        self.committed: dict[int, int] = {0: 0}
        self.committed_end = 0
        #: Where each epoch's committed end was first known, and by which leader.
        self._leaders: dict[int, int] = {}
        self._leading: dict[int, int] = {}
        self._votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}
        self._logs: dict[tuple[int, int], int] = {}
        self._epochs: dict[ReplicaKey, int] = {}
        self._watermarks: dict[tuple[int, int], int] = {}
        self._told: dict[tuple[int, int], int] = {}
        self._checked: dict[tuple[int, int], tuple[int, int]] = {}
        self._contacts: dict[tuple[int, int], dict[int, float]] = {}
        #: Nodes that were formatted anew: they have told their offsets before.
        self.wiped: list[SimulatedNode] = []
        self.admin_answers: dict[int, Response] = {}

    def _require(self, holds: bool, text: Callable[[], str]) -> None:
        if not holds:
            raise Violation(f"{text()} (at {self._world.now_ms:.0f} ms)")

    # A node's life

    def started(self, node: SimulatedNode) -> None:
        self._leading.pop(node.id, None)
        state = node.quorum_state
        epoch = self._epochs.get(node.config.key, 0)
        self._require(
            (0 if state is None else state.epoch) == epoch,
            lambda: f"R2: node {node.id} starts with another epoch than it had",
        )

    def stepped(self, node: SimulatedNode, raft: Raft) -> None:
        state = raft.replica.state
        if isinstance(state, Leader):
            self._elect(state.epoch, node.id)
            if not self._knows(node, state.epoch):
                self._check_new_leader(node, state)
            self._check_contact(node, state)

    def executed(self, node: SimulatedNode, raft: Raft) -> None:
        """Check what holds when a node has done all that followed from an event."""
        persisted = node.quorum_state
        self._require(
            persisted is not None and persisted == raft.replica.state.election,
            lambda: (
                f"R2: node {node.id} has {persisted} on disk and {raft.replica.state} in memory"
            ),
        )
        self._check_log(node)
        self._check_snapshots(node)
        state = raft.replica.state
        if isinstance(state, Leader) and not raft.replica.is_voter:
            is_open = node.log.memberships.latest_offset >= (state.high_watermark or 0)
            self._require(is_open, lambda: f"R18: {node.id} leads though it is removed")

    def executing(self, node: SimulatedNode, effect: do.Effect) -> None:
        leading = self._leading.get(node.id)
        match effect:
            case do.Persist(state):
                before = self._epochs.get(node.config.key, 0)
                self._require(
                    state.epoch >= before, lambda: f"R2: node {node.id} goes back to {state}"
                )
                self._epochs[node.config.key] = state.epoch
                if state.leader_id is not None:
                    self._elect(state.epoch, state.leader_id)
                if state.voted is not None:
                    self._vote(node, state.epoch, state.voted)
            case do.AppendControlBatch():
                self._check_change(node, effect)
            case do.Truncate() | do.InstallSnapshot():
                self._require(
                    leading is None, lambda: f"R9: leader {node.id} overwrites its log: {effect}"
                )
            case do.LeaderChanged(_, epoch, start) if start is not None:
                self._leading[node.id] = epoch
            case do.LeadershipLost():
                del self._leading[node.id]
            case do.HighWatermarkMoved(offset) if leading is not None:
                self._commit(node, leading, offset)

    # Elections

    def _elect(self, epoch: int, leader_id: int) -> None:
        known = self._leaders.setdefault(epoch, leader_id)
        self._require(known == leader_id, lambda: f"R4: {known} and {leader_id} lead epoch {epoch}")

    def _knows(self, node: SimulatedNode, epoch: int) -> bool:
        return (node.id, epoch) in self._contacts

    def _check_new_leader(self, node: SimulatedNode, state: Leader) -> None:
        self._contacts[node.id, state.epoch] = {}
        # A candidate that was slow to count its votes need not have what came after it.
        ends = [end for (_, epoch), end in self._watermarks.items() if epoch < state.epoch]
        end = max(ends, default=0)
        found = node.log.digest_at(end)
        self._require(
            end < node.log.start_offset
            or (found in (self.committed.get(end), None) and end <= node.log.end_offset),
            lambda: (
                f"R11: leader {node.id} of epoch {state.epoch} lacks what is committed below {end}"
            ),
        )

    def _check_contact(self, node: SimulatedNode, state: Leader) -> None:
        """Kafka's check-quorum: a leader knows that a majority is there, or resigns."""
        contacts, now_ms = self._contacts[node.id, state.epoch], self._world.now_ms
        needed = len(state.voters) // 2 + (node.id not in state.voters)
        if not needed:
            # Whoever decides alone misses nobody; that counts from the second voter on.
            contacts[-1] = now_ms
        begin = contacts.setdefault(-1, now_ms)
        others = [max(contacts.get(id, begin), begin) for id in state.voters if id != node.id]
        if needed and others:
            others.sort(reverse=True)
            silent_ms = now_ms - others[min(needed, len(others)) - 1]
            limit_ms = 3 * node.config.fetch_timeout_ms + 1_000
            self._require(
                silent_ms <= limit_ms, lambda: f"L1: {node.id} leads for {silent_ms} ms alone"
            )

    # Logs

    def _check_log(self, node: SimulatedNode) -> None:
        """Two entries with the same offset and epoch have the same log before them."""
        log = node.log
        start, end = log.start_offset, log.end_offset
        seen = self._checked.get((node.id, node.incarnation))
        last = log.entries[-1] if log.entries else None
        if seen is not None and seen == (end, last.digest if last else 0):
            return
        first = start if seen is None else max(start, min(seen[0], end) - 1)
        for offset in range(first, end):
            entry = log.entries[offset - start]
            known = self._logs.setdefault((offset, entry.epoch), entry.digest)
            before = log.digest_at(offset)
            is_next = before is None or entry.digest == digest_behind(before, entry)
            if known != entry.digest or not is_next:
                raise Violation(f"R10: node {node.id} has another log up to {offset}")
        self._checked[node.id, node.incarnation] = (end, last.digest if last else 0)

    def _check_snapshots(self, node: SimulatedNode) -> None:
        log = node.log
        if log.kept:
            self._require(log.start_offset <= log.kept[0].id.offset, lambda: f"R5: node {node.id}")
        if log.start_offset:
            is_there = bool(log.kept) and log.kept[0].id.offset == log.start_offset
            self._require(is_there, lambda: f"R5: node {node.id} has no snapshot at its start")

    def installed(self, node: SimulatedNode) -> None:
        snapshot = node.log.kept[-1]
        self._check_committed(node, snapshot.id.offset, snapshot.digest, "R7")

    def loaded_snapshot(self, node: SimulatedNode) -> None:
        assert node.raft is not None
        state = node.raft.replica.state
        is_active = isinstance(state, Leader) and node.applied_offset > state.epoch_start_offset
        self._require(not is_active, lambda: f"R6: leader {node.id} loads a snapshot")

    def applied(self, node: SimulatedNode) -> None:
        self._check_committed(node, node.applied_offset, node.applied_digest, "R12")

    def _check_committed(self, node: SimulatedNode, offset: int, digest: int, rule: str) -> None:
        self._require(
            offset <= self.committed_end,
            lambda: f"{rule}: {node.id} has {offset} that is not committed",
        )
        known = self.committed.get(offset)
        self._require(
            known is None or known == digest,
            lambda: f"{rule}: node {node.id} differs below {offset}",
        )

    # Commits

    def _commit(self, node: SimulatedNode, epoch: int, offset: int) -> None:
        log = node.log
        known = self._watermarks.get((node.id, epoch), -1)
        self._require(
            offset > known, lambda: f"R1: the high watermark of {node.id} falls to {offset}"
        )
        self._watermarks[node.id, epoch] = offset
        last = log.entries[offset - 1 - log.start_offset]
        self._require(last.epoch == epoch, lambda: f"R15: {node.id} commits {last} by counting")
        self._check_majority(node, offset, last.digest)
        if offset > self.committed_end:
            for end in range(self.committed_end + 1, offset + 1):
                digest = log.digest_at(end)
                if digest is not None:
                    self.committed[end] = digest
            self._require(
                log.digest_at(self.committed_end) in (None, self.committed[self.committed_end]),
                lambda: f"R7: {node.id} commits another log",
            )
            self.committed_end = offset
        elif offset in self.committed:
            self._require(
                last.digest == self.committed[offset], lambda: f"R7: {node.id} at {offset}"
            )

    def _check_majority(self, node: SimulatedNode, offset: int, digest: int) -> None:
        """What is committed is on the disks of a majority (R3, R14, R19, R17)."""
        log = node.log
        sets = [log.memberships.latest, log.memberships.at(offset - 1)]
        holders: list[ReplicaKey] = []
        for each in (*self._world.nodes.values(), *self.wiped):
            found = each.log.durable_digest_at(offset)
            is_beyond = each.log.start_offset >= offset
            if found == digest or is_beyond:
                holders.append(each.config.key)
        for membership in sets:
            voters = _voter_set(node, membership)
            has = sum(any(key_of(v).fits(key) for key in holders) for v in voters.voters)
            if has >= voters.majority:
                return
        self._require(
            False, lambda: f"R3: {node.id} commits {offset}, which only {holders} have on disk"
        )

    def _check_change(self, node: SimulatedNode, batch: do.AppendControlBatch) -> None:
        """One voter at a time, the last change committed, and a record of this epoch (R17)."""
        old = node.log.memberships.latest
        new = old.after(batch.records)
        keys, new_keys = set(map(key_of, old.voters)), set(map(key_of, new.voters))
        if not old.kraft_version or keys == new_keys:
            return
        self._require(
            len(keys ^ new_keys) == 1, lambda: f"R17: {node.id} goes from {keys} to {new_keys}"
        )
        watermark = self._watermarks.get((node.id, batch.epoch), -1)
        self._require(
            node.log.memberships.latest_offset < watermark,
            lambda: f"R17: {node.id} changes its voters while the last change is open",
        )

    # Messages

    def sent(self, node: SimulatedNode, request: Request) -> None:
        raft = node.raft
        assert raft is not None
        if not hasattr(request, "topics"):
            return
        asked = only_partition(request)
        assert asked is not None
        epoch = max(
            getattr(asked, name, -1)
            for name in ("replica_epoch", "leader_epoch", "current_leader_epoch")
        )
        persisted = self._epochs.get(node.config.key, 0)
        self._require(
            epoch <= persisted, lambda: f"R16: node {node.id} speaks of epoch {epoch} too early"
        )

    def replied(
        self, node: SimulatedNode, to: SimulatedNode, request: Request, response: Response
    ) -> None:
        if not hasattr(response, "responses") and not hasattr(response, "topics"):
            return
        answer = read_response(response, "CONTROLLER")
        self._require(answer.top_error == 0, lambda: f"R20: {node.id} refuses: {response}")
        self._require(
            answer.error != ErrorCode.INVALID_REQUEST, lambda: f"R20: {node.id}: {response}"
        )
        self._require(
            answer.epoch <= self._epochs.get(node.config.key, 0),
            lambda: f"R16: {node.id}: {response}",
        )
        if answer.leader_id is not None:
            self._elect(answer.epoch, answer.leader_id)
        if isinstance(request, vote.VoteRequest):
            self._check_vote(node, only_partition(request), answer.partition)
        if isinstance(response, fetch.FetchResponse) and answer.error == 0:
            assert answer.partition is not None
            self._require(
                answer.leader_id == node.id, lambda: f"R20: {node.id} serves without leading"
            )
            self._check_told_watermark(node, to, answer.epoch, answer.partition)
            is_valid = answer.partition.diverging_epoch.epoch < 0
            if is_valid and answer.partition.snapshot_id.epoch < 0:
                self._note_contact(node, to, answer.epoch)

    def _check_told_watermark(
        self, node: SimulatedNode, to: SimulatedNode, epoch: int, told: Any
    ) -> None:
        """What would end a Kafka follower: a high watermark that falls, a cut below it (14.4)."""
        receiver = to.raft
        if receiver is None or receiver.leader.epoch != epoch:
            return
        known = -1 if receiver.high_watermark is None else receiver.high_watermark
        is_cut = told.diverging_epoch.epoch >= 0 and told.diverging_epoch.end_offset < known
        self._require(not is_cut, lambda: f"R20: {node.id} cuts what {to.id} knows as committed")
        last = self._told.get((to.id, to.incarnation), -1)
        self._require(
            told.high_watermark in (-1, max(last, told.high_watermark)),
            lambda: f"R20: {node.id} tells {to.id} {told.high_watermark} after {last}",
        )
        self._told[to.id, to.incarnation] = max(last, told.high_watermark)

    def _note_contact(self, node: SimulatedNode, to: SimulatedNode, epoch: int) -> None:
        self._contacts.setdefault((node.id, epoch), {})[to.id] = self._world.now_ms

    def _check_vote(self, node: SimulatedNode, asked: Any, answered: Any) -> None:
        """Check a vote when its answer leaves the node; pre-votes bind nobody."""
        if asked.pre_vote or not answered.vote_granted:
            return
        epoch = asked.replica_epoch
        candidate = ReplicaKey(asked.replica_id, asked.replica_directory_id)
        self._vote(node, epoch, candidate)
        disk = node.quorum_state
        self._require(
            disk is not None and disk.epoch == epoch and disk.voted == candidate,
            lambda: f"R13: node {node.id} answers a vote before it is on its disk",
        )

    def _vote(self, node: SimulatedNode, epoch: int, candidate: ReplicaKey) -> None:
        known = self._votes.setdefault((node.config.key, epoch), candidate)
        self._require(
            known == candidate,
            lambda: f"R13: node {node.id} votes twice in {epoch}: {known}, {candidate}",
        )

    def told_admin(self, token: int, response: Response) -> None:
        self.admin_answers[token] = response


def _voter_set(node: SimulatedNode, membership: Membership) -> VoterSet:
    if membership.kraft_version:
        return VoterSet(membership.voters)
    return VoterSet(node.config.static_voters)
