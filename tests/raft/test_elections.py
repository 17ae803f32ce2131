"""Elections, from the start of a node to leadership and its end."""

from __future__ import annotations

from typing import Any

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId
from dohle.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from dohle.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from dohle.protocol.messages.fetch import FetchRequest
from dohle.protocol.messages.vote import VoteRequest
from dohle.raft import effects as do
from dohle.raft import events
from dohle.raft.values import ElectionState
from tests.raft.scripted import (
    Scripted,
    begin_request,
    end_answer,
    end_request,
    fetch_answer,
    fetch_request,
    key,
    log_of,
    partition_of,
    vote_answer,
    vote_request,
)
from tests.raft.simulation.world import directory

TWO, THREE = BrokerId(2), BrokerId(3)


class TestStart:
    """Rule R13: the first that applies."""

    def test_without_a_file_it_knows_nothing(self) -> None:
        node = Scripted()
        assert node.is_a == "Unattached 0"
        assert node.persisted == ElectionState(0)

    def test_a_log_that_is_ahead_of_the_file_gives_the_epoch(self) -> None:
        node = Scripted(log=log_of(4, 7), state=ElectionState(5, None, key(2)))
        assert node.is_a == "Unattached 7"
        assert node.persisted == ElectionState(7)

    def test_who_has_led_resigns_and_tells_everybody(self) -> None:
        """R13.2, R45: with empty lists, so that followers begin at once."""
        node = Scripted(log=log_of(5), state=ElectionState(5, BrokerId(1)))
        assert node.is_a == "Resigned 5"
        assert sorted(node.has_sent(EndQuorumEpochRequest)) == [2, 3]
        told = partition_of(node.take(EndQuorumEpochRequest).request)
        assert (told.preferred_candidates, told.preferred_successors) == ((), ())

    def test_who_has_voted_for_itself_goes_on_in_the_same_epoch(self) -> None:
        node = Scripted(log=log_of(5), state=ElectionState(6, None, key(1)))
        assert node.is_a == "Candidate 6"
        assert sorted(node.has_sent(VoteRequest)) == [2, 3]

    def test_an_election_that_somebody_else_has_won_is_over(self) -> None:
        """The candidate of an epoch whose records it has must not ask for votes in it again."""
        node = Scripted(log=log_of(6), state=ElectionState(6, TWO, key(1)))
        assert node.is_a == "Follower 6"
        assert node.state.election == ElectionState(6, TWO, key(1))

    def test_a_known_leader_is_followed(self) -> None:
        node = Scripted(log=log_of(5), state=ElectionState(5, TWO))
        assert (node.is_a, node.has_sent(FetchRequest)) == ("Follower 5", [2])

    def test_a_leader_nobody_can_reach_stays_known(self) -> None:
        node = Scripted(log=log_of(5), state=ElectionState(5, BrokerId(9)))
        assert node.is_a == "Unattached 5"
        assert node.raft.leader == (9, 5)
        answer = partition_of(node.receive(vote_request(2, 5, (1, 4))))
        assert (answer.vote_granted, answer.leader_id) == (False, -1), "R40: nobody is sent there"

    def test_a_vote_is_kept(self) -> None:
        node = Scripted(log=log_of(5), state=ElectionState(6, None, key(2)))
        granted = [
            partition_of(node.receive(vote_request(id, 6, (1, 5)))).vote_granted for id in (3, 2)
        ]
        assert granted == [False, True]

    @pytest.mark.parametrize("state", [None, ElectionState(4, BrokerId(1)), ElectionState(4, TWO)])
    def test_the_only_voter_leads_a_new_epoch_at_once(self, state: ElectionState | None) -> None:
        """R15, R61: and commits what its disk has."""
        node = Scripted(voters=(1,), log=log_of(3, 3), state=state, syncs=False)
        epoch = 5 if state else 4
        assert node.is_a == f"Leader {epoch}"
        assert node.persisted == ElectionState(epoch, BrokerId(1))
        kinds = [type(each) for each in node.done]
        assert kinds.index(do.Persist) < kinds.index(do.AppendControlBatch)
        assert node.all_of(do.HighWatermarkMoved) == []
        node.step(events.Synced(3, epoch))
        assert node.raft.high_watermark == 3


class TestPreVote:
    def test_an_election_begins_with_a_question_that_changes_nothing(self) -> None:
        """R22, R43: pre-votes in the same epoch; nothing is written."""
        node = Scripted(log=log_of(4, 4))
        writes = len(node.all_of(do.Persist))
        node.wait(2_001)
        assert node.is_a == "Prospective 4"
        assert len(node.all_of(do.Persist)) == writes
        asked = partition_of(node.take(VoteRequest, 2).request)
        assert (asked.pre_vote, asked.replica_epoch) == (True, 4)
        assert (asked.last_offset, asked.last_offset_epoch) == (2, 4)
        assert asked.replica_directory_id == directory(1)

    def test_a_majority_of_pre_votes_makes_a_candidate_of_the_next_epoch(self) -> None:
        """R24, R28: it votes for itself, on disk, then asks; a majority makes it the leader."""
        node = Scripted()
        node.wait(2_001)
        node.answer(node.take(VoteRequest, 2), vote_answer(0, True))
        assert node.is_a == "Candidate 1"
        assert node.persisted == ElectionState(1, None, key(1))
        node.answer(node.take(VoteRequest, 3), vote_answer(1, True))
        assert node.is_a == "Leader 1"
        assert node.persisted == ElectionState(1, BrokerId(1))
        assert sorted(node.has_sent(BeginQuorumEpochRequest)) == [2, 3]
        assert node.all_of(do.LeaderChanged)[-1] == do.LeaderChanged(1, 1, 0)

    def test_a_peer_without_pre_votes_is_asked_for_a_real_one(self) -> None:
        """R25."""
        node = Scripted()
        node.wait(2_001)
        node.fail(node.take(VoteRequest, 2), ErrorCode.UNSUPPORTED_VERSION)
        assert node.is_a == "Candidate 1"

    def test_who_would_not_win_goes_back_to_its_leader(self) -> None:
        """R23, R26: the leader is kept meanwhile."""
        node = Scripted()
        node.follow(2, epoch=3)
        node.wait(2_201)
        assert (node.is_a, node.raft.leader) == ("Prospective 3", (2, 3))
        for id in (2, 3):
            node.answer(node.take(VoteRequest, id), vote_answer(3, False))
        assert (node.is_a, node.raft.leader) == ("Follower 3", (2, 3))

    def test_followers_do_not_miss_their_leader_at_the_same_moment(self) -> None:
        """Two that stand at once vote for themselves, and nobody wins."""
        node = Scripted()
        moments = set()
        for epoch in range(1, 11):
            node.follow(2, epoch)
            begun, silent = node.now_ms, 0.0
            while node.is_a.startswith("Follower"):
                node.wait(10)
                silent = node.now_ms - begun
            assert 2_000 <= silent <= 2_210, "the fetch timeout, and up to a tenth more"
            moments.add(silent)
        assert len(moments) > 5

    def test_without_a_leader_it_looks_for_one_and_asks_again(self) -> None:
        """R26: by the election timer."""
        node = Scripted()
        node.wait(2_001)
        node.wait(20_000)
        assert node.state.epoch == 0, "an isolated voter does not raise its epoch (R133)"

    def test_a_candidate_without_a_majority_asks_anew_in_the_same_epoch(self) -> None:
        """R29, R30: its vote is kept."""
        node = Scripted()
        node.wait(2_001)
        node.answer(node.take(VoteRequest, 2), vote_answer(0, True))
        node.outbox.clear()
        node.wait(2_001)
        assert node.is_a == "Prospective 1"
        assert node.state.election.voted == key(1)

    def test_a_higher_epoch_ends_the_election(self) -> None:
        """R20: in an answer, with its leader or without."""
        node = Scripted()
        node.wait(2_001)
        error = ErrorCode.FENCED_LEADER_EPOCH
        node.answer(node.take(VoteRequest, 2), vote_answer(7, False, error=error))
        assert node.is_a == "Unattached 7"
        assert node.persisted == ElectionState(7)
        node.wait_for("Prospective")
        node.answer(node.take(VoteRequest, 3), vote_answer(8, False, leader=2, error=error))
        assert (node.is_a, node.raft.leader) == ("Follower 8", (2, 8))


def ask(node: Scripted, candidate: int, epoch: int, end: tuple[int, int], **how: bool) -> object:
    answer = partition_of(node.receive(vote_request(candidate, epoch, end, **how)))
    return answer.vote_granted if answer.error_code == 0 else ErrorCode(answer.error_code)


class TestVotes:
    """Rule R42."""

    def test_checks_come_in_kafkas_order(self) -> None:
        node = Scripted(log=log_of(4), state=ElectionState(5))
        invalid = ErrorCode.INVALID_REQUEST
        assert ask(node, 2, 5, (-1, 4)) is invalid
        assert ask(node, 2, 5, (1, 5)) is invalid
        assert ask(node, 2, 4, (1, 4), pre_vote=True) is ErrorCode.FENCED_LEADER_EPOCH
        assert ask(node, -1, 5, (1, 4)) is invalid
        wrong = vote_request(2, 9, (1, 4), to=3)
        assert partition_of(node.receive(wrong)).error_code == ErrorCode.INVALID_VOTER_KEY
        assert node.is_a == "Unattached 9", "the epoch counts before the voter's key"
        response = node.receive(wrong.replace(cluster_id="other"))
        assert (response.error_code, response.topics) == (ErrorCode.INCONSISTENT_CLUSTER_ID, ())
        assert node.receive(wrong.replace(topics=())).error_code == invalid

    def test_a_vote_goes_once_to_a_log_that_is_not_behind_and_is_on_disk_first(self) -> None:
        node = Scripted(log=log_of(4, 4))
        assert ask(node, 2, 5, (9, 3)) is False
        assert ask(node, 2, 5, (1, 4)) is False
        assert node.persisted == ElectionState(5)
        assert ask(node, 2, 5, (2, 4)) is True
        assert node.persisted == ElectionState(5, None, key(2))
        *_, persist, reply = node.done
        assert (type(persist), type(reply)) == (do.Persist, do.Reply)
        assert [ask(node, 3, 5, (9, 4)), ask(node, 2, 5, (2, 4))] == [False, True]
        assert ask(node, 3, 6, (9, 4)) is True

    def test_a_pre_vote_binds_nobody(self) -> None:
        node = Scripted(log=log_of(4))
        assert ask(node, 2, 4, (1, 4), pre_vote=True) is True
        assert ask(node, 3, 4, (1, 4), pre_vote=True) is True
        assert ask(node, 3, 4, (0, 4), pre_vote=True) is False
        assert node.persisted == ElectionState(4)

    def test_who_hears_its_leader_wants_no_other(self) -> None:
        """R133: pre-votes are granted only before the first answer of the leader."""
        node = Scripted()
        sent = node.follow(2, epoch=3)
        assert ask(node, 3, 3, (0, 0), pre_vote=True) is True
        assert ask(node, 3, 3, (0, 0)) is False
        node.answer(sent, fetch_answer(3))
        assert ask(node, 3, 3, (0, 0), pre_vote=True) is False

    def test_a_leader_refuses_and_a_candidate_keeps_its_vote(self) -> None:
        node = Scripted()
        node.wait(2_001)
        node.answer(node.take(VoteRequest, 2), vote_answer(0, True))
        assert ask(node, 3, 1, (9, 0), pre_vote=True) is True
        assert ask(node, 3, 1, (9, 0)) is False
        node.answer(node.take(VoteRequest, 2), vote_answer(1, True))
        assert [ask(node, 3, 1, (9, 0), pre_vote=how) for how in (True, False)] == [False, False]

    def test_a_second_leader_of_an_epoch_is_not_believed(self) -> None:
        """R12, and section 14: nobody is told of two."""
        node = Scripted()
        node.follow(2, epoch=3)
        node.receive(begin_request(3, 3))
        assert node.raft.leader == (2, 3)
        node.receive(begin_request(1, 9))
        assert node.raft.leader == (2, 3), "nor this node, where it does not lead"


class TestBegin:
    def test_a_leader_is_followed_whoever_the_request_was_meant_for(self) -> None:
        """R43b: the transition comes before the check of the voter's key."""
        node = Scripted()
        assert partition_of(node.receive(begin_request(2, 3, to=1))).error_code == 0
        wrong = begin_request(3, 4, to=1, directory_id=directory(9))
        assert partition_of(node.receive(wrong)).error_code == ErrorCode.INVALID_VOTER_KEY
        assert node.raft.leader == (3, 4)
        error = partition_of(node.receive(begin_request(2, 3))).error_code
        assert error == ErrorCode.FENCED_LEADER_EPOCH

    def test_voters_that_fetch_are_not_told_again(self) -> None:
        """R46: each half fetch timeout, those whose last fetch is that old."""
        node = Scripted()
        node.elect()
        for id in (2, 3):
            node.fail(node.take(BeginQuorumEpochRequest, id))
        node.wait(600)
        fetch = begin_and_fetch(node, 2)
        assert fetch.error_code == 0
        node.wait(500)
        assert node.has_sent(BeginQuorumEpochRequest) == [3]


def begin_and_fetch(node: Scripted, replica: int) -> Any:
    return partition_of(node.receive(fetch_request(replica, node.state.epoch, max_wait_ms=0)))


class TestEnd:
    @pytest.mark.parametrize(
        ("candidates", "wait_ms"),
        [((), 0), ((1, 3), 0), ((3, 1), 500), ((4, 3, 1), 500), ((4, 1, 3), 250), ((3, 4), 1000)],
    )
    def test_the_place_among_the_successors_says_how_long_to_wait(
        self, candidates: tuple[int, ...], wait_ms: int
    ) -> None:
        """R44."""
        node = Scripted()
        node.answer(node.follow(2, epoch=3), fetch_answer(3))
        assert partition_of(node.receive(end_request(2, 3, *candidates))).error_code == 0
        if wait_ms:
            node.wait(wait_ms - 1)
            assert node.is_a == "Follower 3"
        node.wait(1)
        assert node.is_a == "Prospective 3"

    def test_a_leader_that_resigns_names_the_longest_logs_first(self) -> None:
        """R31, R45, R32: and waits for another; then it makes room for the next epoch."""
        node = Scripted(voters=(1, 2, 3, 4))
        node.elect()
        node.append(3)
        node.receive(fetch_request(3, 1, 1, 1))
        node.receive(fetch_request(4, 1, 3, 1))
        node.step(events.Resign(1))
        assert node.is_a == "Resigned 1"
        assert node.all_of(do.LeadershipLost) == [do.LeadershipLost(1)]
        told = partition_of(node.take(EndQuorumEpochRequest, 4).request)
        assert [each.candidate_id for each in told.preferred_candidates] == [4, 3, 2]
        last = node.all_of(do.LeaderChanged)[-1]
        assert last == do.LeaderChanged(1, 1, 0), "the loss is told by the next epoch (R76)"
        node.wait(2_001)
        assert node.state.epoch == 2

    def test_an_old_epoch_does_not_resign(self) -> None:
        """R77."""
        node = Scripted()
        node.elect()
        node.step(events.Resign(0))
        assert node.raft.is_leader


class TestShutdown:
    """Rule R35."""

    def test_a_follower_and_the_only_voter_are_done_at_once(self) -> None:
        node = Scripted()
        node.follow()
        alone = Scripted(voters=(1,))
        broker = Scripted(9, is_controller=False)
        for each in (node, alone, broker):
            each.step(events.Shutdown())
            assert each.all_of(do.ShutdownDone) == [do.ShutdownDone(clean=True)]

    def test_a_leader_waits_for_its_successor(self) -> None:
        node = Scripted()
        node.elect()
        node.step(events.Shutdown())
        assert node.is_a == "Resigned 1"
        assert sorted(node.has_sent(EndQuorumEpochRequest)) == [2, 3]
        node.wait(3_000)
        assert (node.is_a, node.all_of(do.ShutdownDone)) == ("Resigned 1", [])
        node.receive(begin_request(3, 2))
        assert node.all_of(do.ShutdownDone) == [do.ShutdownDone(clean=True)]

    def test_but_not_for_ever(self) -> None:
        node = Scripted()
        node.elect()
        node.step(events.Shutdown())
        node.wait(5_000)
        assert node.all_of(do.ShutdownDone) == [do.ShutdownDone(clean=False)]

    def test_and_not_if_nobody_is_left_who_could_take_over(self) -> None:
        """When all nodes are stopped at once, the others know that the epoch is over, and go."""
        node = Scripted()
        node.elect()
        node.step(events.Shutdown())
        for _ in range(2):
            for to in (2, 3):
                node.answer(node.take(EndQuorumEpochRequest, to), end_answer(1, 1))
            node.wait(100)
        node.fail(node.take(EndQuorumEpochRequest, 2))
        assert node.all_of(do.ShutdownDone) == [], "the third and this one could elect a leader"
        node.fail(node.take(EndQuorumEpochRequest, 3))
        assert node.all_of(do.ShutdownDone) == [do.ShutdownDone(clean=False)]

    def test_nor_does_one_wait_that_asks_for_votes_when_all_others_have_gone(self) -> None:
        """The leader has gone in good order, and so has the other: nobody can be elected."""
        node = Scripted()
        node.wait(2_000)
        assert node.is_a == "Prospective 0"
        node.step(events.Shutdown())
        node.fail(node.take(VoteRequest, 2))
        assert node.all_of(do.ShutdownDone) == []
        node.fail(node.take(VoteRequest, 3))
        assert node.all_of(do.ShutdownDone) == [do.ShutdownDone(clean=False)]


def test_a_deposed_leader_notices_without_anybody_telling_it() -> None:
    """R74, R131: after 1.5 fetch timeouts without a majority; fetches of a majority restart it."""
    node = Scripted(voters=(1, 2, 3, 4, 5))
    node.elect()
    node.wait(2_000)
    node.receive(fetch_request(2, 1, 1, 1))
    node.wait(900)
    node.receive(fetch_request(3, 1, 1, 1))
    node.wait(2_900)
    assert node.raft.is_leader
    node.receive(fetch_request(3, 1, 1, 1))
    node.wait(200)
    assert node.is_a == "Resigned 1"


def test_observers_look_for_the_leader_and_elect_nobody() -> None:
    """R38, R120: one fetch at a time, to any server; who is not the leader says who is."""
    node = Scripted(
        9, (1, 2, 3), is_controller=False, bootstrap_servers=(("node-1", 9001), ("node-2", 9002))
    )
    (sent,) = node.outbox
    assert sent.node.id in (-2, -3)
    node.outbox.clear()
    answer = fetch_answer(4, leader=2, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    node.answer(sent, answer)
    assert (node.is_a, node.raft.leader) == ("Follower 4", (2, 4))
    node.take(FetchRequest, 2)
    node.wait(60_000)
    assert node.is_a == "Follower 4", "it has no fetch timeout, but asks others"
    assert {each.node.id for each in node.outbox} >= {2, -2, -3}


def test_a_vote_can_be_asked_of_a_controller_that_is_no_voter() -> None:
    """R3: no receiver checks that it is in the voter set."""
    node = Scripted(4, (1, 2, 3))
    assert ask(node, 2, 1, (0, 0)) is True
    node.wait(30_000)
    assert node.is_a == "Unattached 1"


def test_timeouts_of_nothing_do_not_hang_the_node() -> None:
    node = Scripted(election_timeout_ms=0)
    node.step(events.Tick())
    assert node.state.epoch == 0
