"""Who votes: adding, removing and updating voters, and kraft.version (KIP-853, KIP-1186)."""

from __future__ import annotations

from typing import Any

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId
from dohle.core.uuid import ZERO_UUID
from dohle.protocol.messages import update_raft_voter as update
from dohle.protocol.messages.add_raft_voter import AddRaftVoterRequest, Listener
from dohle.protocol.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from dohle.protocol.messages.fetch import FetchRequest
from dohle.protocol.messages.records.control import VotersRecord
from dohle.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from dohle.protocol.schema import VersionRange
from dohle.raft import effects as do
from dohle.raft import events
from dohle.raft.membership import Membership, Voter
from tests.raft.messages import add_request, remove_request, update_request
from tests.raft.scripted import (
    Scripted,
    fetch_answer,
    fetch_request,
    log_of,
    members,
    voter,
)
from tests.raft.simulation.world import directory, endpoint


def versions(highest: int = 1) -> ApiVersionsResponse:
    feature = SupportedFeatureKey(name="kraft.version", min_version=0, max_version=highest)
    return ApiVersionsResponse(supported_features=(feature,))


def commit(node: Scripted, *by: int) -> None:
    """Let others fetch everything."""
    for id in by:
        node.receive(fetch_request(id, node.state.epoch, node.log.end_offset, node.state.epoch))


def ready(*ids: int, dynamic: bool = True) -> Scripted:
    """Return a leader whose first record is committed."""
    node = Scripted(voters=ids, dynamic=dynamic)
    if len(ids) > 1:
        node.elect()
        commit(node, *ids[1:])
    assert node.raft.high_watermark == 1
    return node


def test_the_first_leader_puts_what_the_formatter_left_into_the_log() -> None:
    """R73, R102."""
    node = ready(1, 2, 3)
    assert node.log.memberships.is_in_log
    assert node.log.memberships.latest == members(1, 2, 3)


class TestAdd:
    """Rules R105, R106."""

    def test_a_voter_that_has_caught_up_is_added_and_counts_at_once(self) -> None:
        node = ready(1, 2)
        commit(node, 3)
        assert node.receive(add_request(3)) is None
        sent = node.take(ApiVersionsRequest, 3)
        assert (sent.node.host, sent.node.port) == (endpoint(3).host, endpoint(3).port)
        assert isinstance(sent.request, ApiVersionsRequest)
        assert all((sent.request.client_software_name, sent.request.client_software_version))
        node.answer(sent, versions())
        assert node.raft.voters.ids == (1, 2, 3)
        assert len(node.all_of(do.AppendControlBatch)[-1].records) == 1
        token = max(node.replies, default=0)
        commit(node, 2)
        answers = [each for number, each in node.replies.items() if number > token]
        assert ErrorCode.NONE in [getattr(each, "error_code", None) for each in answers]

    def test_m6_listener_names_are_written_in_upper_case_whoever_tells_them(self) -> None:
        """M6 of replication.md, R4: Kafka's nodes look an endpoint up by the normalised name."""
        node = ready(1, 2)
        commit(node, 3)
        listener = Listener(name="Controller", host="node-3", port=9003)
        assert node.receive(add_request(3, listeners=(listener,))) is None
        node.answer(node.take(ApiVersionsRequest, 3), versions())
        assert node.raft.voters.by_id(BrokerId(3)) == voter(3)
        ((_, value),) = node.all_of(do.AppendControlBatch)[-1].records
        written, _ = VotersRecord.decode(0, value)
        assert {each.name for one in written.voters for each in one.endpoints} == {"CONTROLLER"}

    def test_the_second_voter_has_time_to_fetch(self) -> None:
        """R74: the check-quorum timer begins when there is somebody to be checked."""
        node = ready(1)
        node.wait(60_000)
        commit(node, 2)
        node.receive(add_request(2))
        node.answer(node.take(ApiVersionsRequest, 2), versions())
        assert node.raft.voters.ids == (1, 2)
        node.wait(2_900)
        assert node.raft.is_leader
        node.wait(200)
        assert node.is_a == "Resigned 1"

    def test_it_need_not_wait_for_the_commit(self) -> None:
        node = ready(1, 2)
        commit(node, 3)
        token = node._token + 1
        node.receive(add_request(3, ack_when_committed=False))
        node.answer(node.take(ApiVersionsRequest, 3), versions())
        assert node.replies[token].error_code == 0

    @pytest.mark.parametrize(
        ("request_", "error"),
        [
            (add_request(3, cluster_id="other"), ErrorCode.INCONSISTENT_CLUSTER_ID),
            (add_request(3, voter_id=-1), ErrorCode.INVALID_REQUEST),
            (add_request(3, voter_directory_id=ZERO_UUID), ErrorCode.INVALID_REQUEST),
            (add_request(3, listeners=()), ErrorCode.INVALID_REQUEST),
            (add_request(2, voter_directory_id=directory(2, 9)), ErrorCode.DUPLICATE_VOTER),
            (remove_request(3), ErrorCode.VOTER_NOT_FOUND),
            (remove_request(2, 9), ErrorCode.VOTER_NOT_FOUND),
        ],
    )
    def test_what_is_refused(self, request_: Any, error: ErrorCode) -> None:
        answer = ready(1, 2).receive(request_)
        assert answer.error_code == error
        assert answer.error_message

    def test_the_new_voter_must_know_the_version_and_have_caught_up(self) -> None:
        for answer, error in [
            (versions(0), ErrorCode.INVALID_REQUEST),
            (ApiVersionsResponse(), ErrorCode.INVALID_REQUEST),
            (ApiVersionsResponse(error_code=35), ErrorCode.REQUEST_TIMED_OUT),
            (versions(), ErrorCode.REQUEST_TIMED_OUT),
        ]:
            node = ready(1, 2)
            token = node._token + 1
            node.receive(add_request(3))
            node.answer(node.take(ApiVersionsRequest, 3), answer)
            assert node.replies[token].error_code == error
            assert node.raft.voters.ids == (1, 2)

    def test_who_does_not_answer_is_not_added(self) -> None:
        node = ready(1, 2)
        token = node._token + 1
        node.receive(add_request(3))
        node.fail(node.take(ApiVersionsRequest, 3))
        assert node.replies[token].error_code == ErrorCode.REQUEST_TIMED_OUT
        node.receive(add_request(4))
        node.wait(1_000)
        commit(node, 2)
        node.wait(1_000)
        assert node.replies[token + 1].error_code == ErrorCode.REQUEST_TIMED_OUT

    def test_only_the_leader_of_a_dynamic_quorum_adds(self) -> None:
        follower = Scripted(dynamic=True)
        follower.follow()
        assert follower.receive(add_request(4)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        static = ready(1, 2, dynamic=False)
        assert static.receive(add_request(4)).error_code == ErrorCode.UNSUPPORTED_VERSION

    def test_one_change_at_a_time(self) -> None:
        """The last one must be committed, and a record of the leader's own epoch too."""
        node = Scripted(voters=(1, 2, 3), dynamic=True)
        node.elect()
        busy = ErrorCode.REQUEST_TIMED_OUT
        assert node.receive(remove_request(3)).error_code == busy, "nothing is committed yet"
        commit(node, 2, 3)
        assert node.receive(remove_request(3)) is None
        assert node.receive(remove_request(2)).error_code == busy, "another is under way"
        node.wait(2_000)
        assert node.raft.replica.change is None
        assert node.receive(remove_request(2)).error_code == busy, "it may still be committed"
        commit(node, 2)
        assert node.receive(add_request(9)) is None

    def test_who_waits_is_told_that_the_leader_is_gone(self) -> None:
        node = ready(1, 2, 3)
        token = node._token + 1
        node.receive(remove_request(3))
        node.step(events.Resign(1))
        assert node.replies[token].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


class TestRemove:
    """Rule R107."""

    def test_h23_a_leader_that_is_removed_leads_until_that_is_committed(self) -> None:
        node = ready(1, 2, 3)
        token = node._token + 1
        node.receive(remove_request(1))
        assert node.raft.voters.ids == (2, 3)
        commit(node, 2)
        assert node.raft.is_leader, "one of two is no majority: it does not count itself"
        commit(node, 3)
        assert node.replies[token].error_code == 0
        assert node.is_a == "Resigned 1"

    def test_the_last_voter_stays(self) -> None:
        node = ready(1)
        assert node.receive(remove_request(1)).error_code == ErrorCode.VOTER_NOT_FOUND

    def test_who_is_removed_by_a_record_that_may_be_lost_still_stands_for_election(self) -> None:
        """Nobody else need have the record: then nobody else's log is long enough to win."""
        log = log_of(1, membership=members(1, 2))
        log.append(1, 0, tuple(members(2).control_records()))
        node = Scripted(log=log, dynamic=True)
        node.wait_for("Prospective")
        committed = log_of(1, membership=members(1, 2))
        committed.append(1, 0, tuple(members(2).control_records()))
        observer = Scripted(log=committed, dynamic=True)
        observer.answer(observer.follow(2, epoch=3), fetch_answer(3, high_watermark=2))
        observer.wait(60_000)
        assert observer.is_a == "Follower 3"


class TestUpdate:
    """Rule R108."""

    def test_a_changed_entry_goes_into_the_log(self) -> None:
        node = ready(1, 2, 3)
        answer = node.receive(update_request(2, port=7))
        assert (answer.error_code, answer.current_leader.leader_id) == (0, 1)
        entry = node.raft.voters.by_id(BrokerId(2))
        assert entry is not None
        assert entry.endpoints[0].port == 7

    def test_an_unchanged_one_does_not(self) -> None:
        node = ready(1, 2, 3)
        appended = len(node.all_of(do.AppendControlBatch))
        assert node.receive(update_request(2)).error_code == 0
        assert len(node.all_of(do.AppendControlBatch)) == appended

    @pytest.mark.parametrize(
        ("request_", "error"),
        [
            (update_request(2, epoch=0), ErrorCode.FENCED_LEADER_EPOCH),
            (update_request(2, epoch=2), ErrorCode.UNKNOWN_LEADER_EPOCH),
            (update_request(2, highest=-1), ErrorCode.INVALID_REQUEST),
            (update_request(2, highest=0), ErrorCode.INVALID_REQUEST),
            (update_request(4), ErrorCode.VOTER_NOT_FOUND),
        ],
    )
    def test_what_is_refused(self, request_: Any, error: ErrorCode) -> None:
        assert ready(1, 2, 3).receive(request_).error_code == error


class TestUpgrade:
    """Rule R112."""

    def decide(self, node: Scripted, level: int = 1, **how: bool) -> ErrorCode:
        node.step(events.UpgradeKraftVersion(1, node.state.epoch, level, **how))
        decided: ErrorCode = node.all_of(do.UpgradeDecided)[-1].error
        return decided

    def test_every_voter_must_have_told_what_it_is(self) -> None:
        node = ready(1, 2, 3, dynamic=False)
        assert node.receive(update_request(2)).error_code == 0
        assert self.decide(node) is ErrorCode.INVALID_UPDATE_VERSION
        assert node.receive(update_request(3)).error_code == 0
        assert self.decide(node, validate_only=True) is ErrorCode.NONE
        assert node.log.memberships.latest.kraft_version == 0
        assert self.decide(node) is ErrorCode.NONE
        assert node.log.memberships.latest == members(1, 2, 3)
        appended = len(node.all_of(do.AppendControlBatch))
        assert self.decide(node) is ErrorCode.NONE
        assert len(node.all_of(do.AppendControlBatch)) == appended
        commit(node, 2)
        assert node.raft.high_watermark == 2, "its voters are known by their directories now"

    def test_and_know_the_level(self) -> None:
        node = ready(1, 2, dynamic=False)
        node.receive(update_request(2, highest=0))
        assert self.decide(node) is ErrorCode.INVALID_UPDATE_VERSION

    def test_it_never_goes_down_and_only_a_leader_does_it(self) -> None:
        assert self.decide(ready(1, 2), level=0) is ErrorCode.INVALID_UPDATE_VERSION
        assert self.decide(ready(1), level=2) is ErrorCode.INVALID_UPDATE_VERSION
        follower = Scripted()
        follower.follow()
        assert self.decide(follower) is ErrorCode.NOT_CONTROLLER


class TestJoining:
    """Rule R110."""

    def observer(self, membership: Membership) -> Scripted:
        node = Scripted(4, log=log_of(), dynamic=True, auto_join=True)
        node.log.append(1, 0, tuple(membership.control_records()))
        node.step(events.LogChanged())
        node.log.sync(*node.log.freeze())
        sent = node.follow(2, epoch=1)
        node.wait(1_990)
        node.answer(sent, fetch_answer(1, high_watermark=1))
        node.wait(20)
        node.answer(node.take(FetchRequest, 2), fetch_answer(1, high_watermark=1))
        return node

    def test_a_controller_asks_to_be_added(self) -> None:
        request = self.observer(members(1, 2, 3)).take(AddRaftVoterRequest, 2).request
        assert isinstance(request, AddRaftVoterRequest)
        assert (request.voter_id, request.voter_directory_id) == (4, directory(4))
        assert not request.ack_when_committed

    def test_after_its_old_directory_was_removed(self) -> None:
        old = Voter(BrokerId(4), directory(4, 9), (endpoint(4),))
        membership = Membership(1, (voter(1), voter(2), old))
        request = self.observer(membership).take(RemoveRaftVoterRequest, 2).request
        assert isinstance(request, RemoveRaftVoterRequest)
        assert request.voter_directory_id == directory(4, 9)

    def test_a_voter_whose_listeners_have_changed_tells_the_leader(self) -> None:
        """R109: at kraft.version 1 only then."""
        moved = Voter(BrokerId(4), directory(4), (endpoint(5),), VersionRange(0, 1))
        node = self.observer(Membership(1, (voter(1), voter(2), moved)))
        sent = node.take(update.UpdateRaftVoterRequest, 2)
        request = sent.request
        assert isinstance(request, update.UpdateRaftVoterRequest)
        assert request.listeners[0].port == endpoint(4).port
        same = self.observer(members(1, 2, 4))
        assert same.has_sent(update.UpdateRaftVoterRequest) == []
