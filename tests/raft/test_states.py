"""What a node keeps when it goes from one state to another, and what is on its disk meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dohle.core.ids import BrokerId
from dohle.protocol.messages import begin_quorum_epoch as begin
from dohle.protocol.messages.fetch import FetchRequest
from dohle.protocol.messages.vote import VoteRequest
from dohle.raft import effects as do
from dohle.raft import events
from dohle.raft.states import Candidate, Prospective, Resigned, Unattached
from dohle.raft.values import ElectionState
from tests.raft.scripted import (
    Scripted,
    begin_request,
    fetch_answer,
    key,
    log_of,
    members,
    partition_of,
    vote_answer,
    vote_request,
)

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
#: The end of a log that is behind everybody's: nobody votes for it.
BEHIND = (0, 0)


def unattached() -> Scripted:
    return Scripted(log=log_of(4))


def prospective() -> Scripted:
    node = unattached()
    node.wait_for("Prospective")
    return node


def candidate() -> Scripted:
    node = prospective()
    node.answer(node.take(VoteRequest, 2), vote_answer(4, True))
    return node


def leader() -> Scripted:
    node = unattached()
    node.elect()
    return node


def resigned() -> Scripted:
    node = leader()
    node.step(events.Resign(5))
    return node


def follower() -> Scripted:
    node = unattached()
    node.follow(2, epoch=5)
    return node


def election_deadline(node: Scripted) -> float:
    assert isinstance(node.state, Unattached | Prospective | Candidate | Resigned)
    return node.state.election_deadline_ms


class TestElectionTimer:
    """Rule R21: what a higher epoch without a leader does to it."""

    @pytest.mark.parametrize("begin_as", [unattached, prospective, candidate, resigned])
    def test_who_waits_for_an_election_waits_no_longer_for_the_next(
        self, begin_as: Callable[[], Scripted]
    ) -> None:
        node = begin_as()
        deadline = election_deadline(node)
        node.wait(300)
        assert partition_of(node.receive(vote_request(3, 9, BEHIND))).vote_granted is False
        assert node.is_a == "Unattached 9"
        assert election_deadline(node) == deadline, "the remaining time, not a fresh one"
        node.wait(deadline - node.now_ms)
        assert node.is_a == "Prospective 9"

    @pytest.mark.parametrize("begin_as", [follower, leader])
    def test_who_did_not_wait_for_one_begins_to(self, begin_as: Callable[[], Scripted]) -> None:
        node = begin_as()
        node.wait(700)
        node.receive(vote_request(3, 9, BEHIND))
        assert node.is_a == "Unattached 9"
        assert 1_000 <= election_deadline(node) - node.now_ms < 2_000

    def test_who_was_refused_draws_a_new_one(self) -> None:
        """R26: a lost pre-vote is over at once, so the next epoch finds it Unattached."""
        node = prospective()
        refused = election_deadline(node)
        for id in (2, 3):
            node.answer(node.take(VoteRequest, id), vote_answer(4, False))
        assert node.is_a == "Unattached 4"
        fresh = election_deadline(node)
        assert fresh != refused
        node.receive(vote_request(3, 9, BEHIND))
        assert election_deadline(node) == fresh

    def test_who_grants_a_vote_waits_anew(self) -> None:
        """R42.6: the candidate gets its time."""
        node = unattached()
        before = election_deadline(node)
        node.wait(before - 100)
        assert partition_of(node.receive(vote_request(3, 9, (1, 4)))).vote_granted is True
        assert election_deadline(node) - node.now_ms >= 1_000

    def test_an_observer_waits_for_none(self) -> None:
        node = Scripted(9, log=log_of(4), is_controller=False)
        node.receive(vote_request(3, 9, BEHIND))
        node.wait(60_000)
        assert node.is_a == "Unattached 9"


def begin_with(leader: int, epoch: int, *listeners: str) -> begin.BeginQuorumEpochRequest:
    endpoints = tuple(
        begin.LeaderEndpoint(name=name, host=f"node-{leader}", port=9000 + leader + 100 * number)
        for number, name in enumerate(listeners)
    )
    return begin_request(leader, epoch, to=1).replace(leader_endpoints=endpoints)


class TestEndpoints:
    """Rule R33."""

    def test_a_leader_with_more_endpoints_is_followed_anew(self) -> None:
        node = Scripted()
        node.receive(begin_with(2, 3, "CONTROLLER"))
        before = node.state
        node.wait(1_900)
        node.receive(begin_with(2, 3, "CONTROLLER", "OTHER"))
        assert (node.is_a, node.raft.leader) == ("Follower 3", (2, 3))
        assert node.state is not before
        names = [each.listener for each in node.raft.replica.leader_endpoints]
        assert names == ["CONTROLLER", "OTHER"]
        node.wait(1_900)
        assert node.is_a == "Follower 3", "the fetch timer was restarted"

    @pytest.mark.parametrize("listeners", [("CONTROLLER",), ("OTHER",), ()])
    def test_one_with_no_more_than_before_is_not(self, listeners: tuple[str, ...]) -> None:
        node = Scripted()
        node.receive(begin_with(2, 3, "CONTROLLER"))
        before = node.state
        node.wait(1_900)
        node.receive(begin_with(2, 3, *listeners))
        assert node.state is before
        node.wait(400)
        assert node.is_a == "Prospective 3", "and its silence counts as before"


class TestBallot:
    """Rule R34: a majority is that of the voters at its beginning."""

    def test_voters_who_come_later_do_not_raise_the_majority(self) -> None:
        node = Scripted(dynamic=True)
        node.wait_for("Prospective")
        node.log.append(0, 0, tuple(members(1, 2, 3, 4, 5).control_records()))
        node.step(events.LogChanged())
        assert len(node.raft.voters.ids) == 5
        node.answer(node.take(VoteRequest, 2), vote_answer(0, True))
        assert node.is_a == "Candidate 1", "two of three"
        node.answer(node.take(VoteRequest, 2), vote_answer(1, True))
        assert node.is_a == "Candidate 1", "two of five: this ballot began with them"
        node.answer(node.take(VoteRequest, 5), vote_answer(1, True))
        assert node.is_a == "Leader 1"

    def test_voters_who_go_meanwhile_do_not_lower_it(self) -> None:
        node = Scripted(voters=(1, 2, 3, 4, 5), dynamic=True)
        node.wait_for("Prospective")
        node.log.append(0, 0, tuple(members(1, 2, 3).control_records()))
        node.step(events.LogChanged())
        node.answer(node.take(VoteRequest, 2), vote_answer(0, True))
        assert node.is_a == "Prospective 0", "two of five"
        node.answer(node.take(VoteRequest, 4), vote_answer(0, True))
        assert node.is_a == "Candidate 1"

    def test_a_pre_vote_may_be_answered_again(self) -> None:
        node = Scripted(voters=(1, 2, 3, 4, 5))
        node.wait_for("Prospective")
        state = node.state
        assert isinstance(state, Prospective)
        for granted in (False, True, True):
            state.ballot.record(TWO, granted=granted)
        assert state.ballot.granting == (ONE, TWO)
        assert not state.ballot.is_won
        state.ballot.record(BrokerId(9), granted=True)
        assert state.ballot.granting == (ONE, TWO), "a node without a vote does not count"


class TestOnDisk:
    """Rule R11: what quorum-state says in each state."""

    @pytest.mark.parametrize(
        ("begin_as", "expected"),
        [
            (unattached, ElectionState(4)),
            (prospective, ElectionState(4)),
            (candidate, ElectionState(5, None, key(1))),
            (leader, ElectionState(5, ONE)),
            (resigned, ElectionState(5, ONE)),
            (follower, ElectionState(5, TWO)),
        ],
    )
    def test_a_state_is_on_disk_as_kafka_writes_it(
        self, begin_as: Callable[[], Scripted], expected: ElectionState
    ) -> None:
        node = begin_as()
        assert node.persisted == expected == node.state.election

    def test_a_prospective_keeps_the_leader_and_the_vote_that_are_there(self) -> None:
        """R22, R23: and writes nothing; a vote that it grants is written."""
        node = follower()
        writes = len(node.all_of(do.Persist))
        node.wait_for("Prospective")
        assert node.state.election == ElectionState(5, TWO)
        assert len(node.all_of(do.Persist)) == writes
        voted = prospective()
        assert partition_of(voted.receive(vote_request(3, 5, (1, 4)))).vote_granted is True
        voted.wait_for("Prospective")
        assert voted.persisted == ElectionState(5, None, key(3)) == voted.state.election

    @pytest.mark.parametrize("state", ["Unattached", "Prospective"])
    def test_a_vote_is_kept_by_who_learns_of_the_epochs_leader(self, state: str) -> None:
        """R27: also if the vote was for another; nobody gets a second one."""
        node = unattached()
        assert partition_of(node.receive(vote_request(3, 5, (1, 4)))).vote_granted is True
        node.wait_for(state)
        node.receive(begin_request(2, 5, to=1))
        assert node.is_a == "Follower 5"
        assert node.persisted == ElectionState(5, TWO, key(3))
        assert partition_of(node.receive(vote_request(2, 5, (1, 4)))).vote_granted is False
        node.receive(begin_request(2, 6, to=1))
        assert node.persisted == ElectionState(6, TWO), "a vote is of its epoch"

    def test_a_vote_is_there_again_after_a_restart_as_follower(self) -> None:
        """R11, R13.4."""
        found = ElectionState(5, TWO, key(3))
        node = Scripted(log=log_of(4), state=found)
        assert node.is_a == "Follower 5"
        assert node.state.election == found
        assert node.all_of(do.Persist) == [], "nothing is new"


class TestHighWatermark:
    """Rule R14: it is not on disk."""

    def test_nobody_hears_of_what_is_in_the_log_before_a_leader_tells(self) -> None:
        node = Scripted(log=log_of(3, 3, 3), state=ElectionState(3, TWO))
        assert node.raft.high_watermark is None
        sent = node.take(FetchRequest, 2)
        assert partition_of(sent.request).high_watermark == -1
        node.answer(sent, fetch_answer(3, high_watermark=-1))
        assert node.all_of(do.HighWatermarkMoved) == [], "R72: a new leader does not know it"
        node.answer(node.take(FetchRequest, 2), fetch_answer(3, high_watermark=2))
        assert node.all_of(do.HighWatermarkMoved) == [do.HighWatermarkMoved(2)]

    def test_a_leader_finds_it_out_by_counting(self) -> None:
        """R71, R72."""
        node = Scripted(log=log_of(3, 3, 3))
        node.elect()
        assert node.raft.high_watermark is None
        assert node.all_of(do.HighWatermarkMoved) == []
