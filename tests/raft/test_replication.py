"""How the log gets from the leader to the others, and what is committed."""

from __future__ import annotations

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId
from dohle.core.uuid import ZERO_UUID
from dohle.protocol.messages import fetch_snapshot as fs
from dohle.protocol.messages.fetch import FetchRequest
from dohle.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from dohle.protocol.messages.records.control import LeaderChangeMessage
from dohle.protocol.messages.update_raft_voter import UpdateRaftVoterRequest
from dohle.protocol.messages.vote import VoteRequest
from dohle.raft import effects as do
from dohle.raft import events
from dohle.raft.leader import Leader
from dohle.raft.membership import Membership
from dohle.raft.positions import Mismatch, find_mismatch, truncation_point
from dohle.raft.values import ElectionState, OffsetAndEpoch
from dohle.records.control import ControlRecordType
from tests.raft.messages import SNAPSHOT, snapshot_request
from tests.raft.scripted import (
    TOPIC,
    Scripted,
    begin_request,
    fetch_answer,
    fetch_request,
    log_of,
    members,
    partition_of,
    vote_request,
)
from tests.raft.simulation.model_log import ModelLog, Snapshot
from tests.raft.simulation.world import directory, endpoint


class TestFollower:
    def test_it_fetches_from_the_end_of_its_log(self) -> None:
        """R47, R75."""
        node = Scripted(log=log_of(3, 4))
        request = node.follow(2, epoch=5).request
        asked = partition_of(request)
        assert isinstance(request, FetchRequest)
        assert request.replica_state.replica_id == 1
        assert (request.max_wait_ms, request.max_bytes) == (500, 8 * 1024 * 1024)
        assert (asked.fetch_offset, asked.last_fetched_epoch) == (2, 4)
        assert (asked.current_leader_epoch, asked.high_watermark) == (5, -1)
        assert asked.replica_directory_id == directory(1)

    def test_what_it_gets_is_on_disk_before_it_asks_for_more(self) -> None:
        """R54, R60: and the high watermark never passes its own end."""
        node = Scripted(syncs=False)
        node.answer(node.follow(2, epoch=5), fetch_answer(5, records=b"\5\5", high_watermark=9))
        assert node.raft.high_watermark == 2
        assert node.done[-1] == do.SyncLog(2, 5)
        assert node.has_sent(FetchRequest) == []
        node.step(events.Synced(2, 5))
        assert partition_of(node.take(FetchRequest, 2).request).fetch_offset == 2

    def test_a_broker_does_not_wait_for_its_disk(self) -> None:
        """R60, R121."""
        node = Scripted(9, is_controller=False, syncs=False)
        node.outbox.clear()
        node.answer(node.follow(2, epoch=5), fetch_answer(5, records=b"\5\5"))
        assert node.all_of(do.SyncLog) == []
        assert partition_of(node.take(FetchRequest, 2).request).fetch_offset == 2

    def test_a_sync_of_an_older_epoch_does_not_count(self) -> None:
        """The log may have been cut and filled again since."""
        node = Scripted(syncs=False)
        node.answer(node.follow(2, epoch=5), fetch_answer(5, records=b"\5\5"))
        node.receive(begin_request(3, 6))
        assert node.done[-1] == do.SyncLog(2, 6)
        node.step(events.Synced(2, 5))
        assert node.has_sent(FetchRequest) == []
        node.step(events.Synced(2, 6))
        assert node.has_sent(FetchRequest) == [3]

    def test_where_the_logs_differ_it_goes_back(self) -> None:
        """R54."""
        node = Scripted(log=log_of(3, 3, 4, 4))
        diverging = fetch_answer(5, diverging=OffsetAndEpoch(1, 3))
        node.answer(node.follow(2, epoch=5), diverging)
        assert node.all_of(do.Truncate) == [do.Truncate(1)]
        asked = partition_of(node.take(FetchRequest, 2).request)
        assert (asked.fetch_offset, asked.last_fetched_epoch) == (1, 3)

    def test_what_is_committed_is_never_cut(self) -> None:
        """R67."""
        node = Scripted()
        node.answer(node.follow(2, epoch=5), fetch_answer(5, records=b"\5\5", high_watermark=2))
        sent = node.take(FetchRequest, 2)
        node.answer(sent, fetch_answer(5, diverging=OffsetAndEpoch(1, 5)))
        assert node.all_of(do.Truncate) == []
        node.wait(500)
        assert node.has_sent(FetchRequest) != []

    def test_answers_restart_the_fetch_timer(self) -> None:
        """R55, R23."""
        node = Scripted()
        sent = node.follow(2, epoch=5)
        node.wait(1_900)
        node.answer(sent, fetch_answer(5))
        node.wait(1_900)
        assert node.is_a == "Follower 5"
        node.wait(200)
        assert node.is_a == "Prospective 5"

    def test_while_the_leader_backs_off_others_are_asked(self) -> None:
        """R37, R38."""
        node = Scripted()
        node.fail(node.follow(2, epoch=5))
        assert node.has_sent(FetchRequest) == [3]
        node.fail(node.take(FetchRequest, 3))
        node.wait(20)
        assert node.has_sent(FetchRequest) != []

    def test_late_answers_are_ignored(self) -> None:
        """R37: a change of state drops all requests."""
        node = Scripted()
        sent = node.follow(2, epoch=5)
        node.receive(begin_request(3, 6))
        node.answer(sent, fetch_answer(5, records=b"\5"))
        assert node.log.end_offset == 0

    @pytest.mark.parametrize("error", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NONE])
    def test_a_higher_epoch_is_followed(self, error: ErrorCode) -> None:
        """R39.3, R40: at the endpoints of the response."""
        node = Scripted()
        sent = node.follow(2, epoch=5)
        where = (endpoint(7),)
        node.answer(sent, fetch_answer(8, leader=7, error=error, endpoints=where))
        assert node.raft.leader == (7, 8)
        sent = node.take(FetchRequest, 7)
        assert (sent.node.host, sent.node.port) == (endpoint(7).host, endpoint(7).port)

    @pytest.mark.parametrize(
        "error",
        [
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            ErrorCode.BROKER_NOT_AVAILABLE,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.UNKNOWN_SERVER_ERROR,
        ],
    )
    def test_other_errors_are_a_reason_to_ask_later(self, error: ErrorCode) -> None:
        """R39: also those that end a Kafka node."""
        node = Scripted()
        node.answer(node.follow(2, epoch=5), fetch_answer(5, error=error))
        assert node.is_a == "Follower 5"
        assert 2 not in node.has_sent(FetchRequest)

    def test_each_leader_of_a_static_quorum_is_told_the_listeners(self) -> None:
        """R109."""
        node = Scripted()
        sent = node.follow(2, epoch=5)
        node.wait(1_990)
        node.answer(sent, fetch_answer(5))
        node.wait(20)
        node.answer(node.take(FetchRequest, 2), fetch_answer(5))
        told = node.take(UpdateRaftVoterRequest, 2).request
        assert isinstance(told, UpdateRaftVoterRequest)
        assert (told.voter_id, told.voter_directory_id) == (1, directory(1))
        assert told.current_leader_epoch == 5


class TestPositions:
    """Rule R49: what a replica at some position gets."""

    def test_a_part_of_the_log_is_valid(self) -> None:
        log = log_of(3, 3, 5)
        assert [find_mismatch(log, *at) for at in [(0, 0), (2, 3), (3, 5), (1, 3)]] == [None] * 4

    def test_other_positions_diverge(self) -> None:
        log = log_of(3, 3, 5)
        assert find_mismatch(log, 4, 5) == Mismatch(diverging=OffsetAndEpoch(3, 5))
        assert find_mismatch(log, 3, 4) == Mismatch(diverging=OffsetAndEpoch(2, 3))
        assert find_mismatch(log, 3, 3) == Mismatch(diverging=OffsetAndEpoch(2, 3))
        assert find_mismatch(log, 9, 7) == Mismatch(diverging=OffsetAndEpoch(3, 5))

    def test_a_snapshot_is_for_those_who_have_nothing_or_too_little(self) -> None:
        log = log_of(3, 3, 5, 5)
        log.take_snapshot(2)
        assert find_mismatch(log, 0, 0) == Mismatch(snapshot=OffsetAndEpoch(2, 3))
        assert find_mismatch(log, 1, 3) is None
        log.forget_before_newest()
        for offset, epoch in [(1, 3), (2, 2), (2, 4), (3, 2)]:
            assert find_mismatch(log, offset, epoch) == Mismatch(snapshot=OffsetAndEpoch(2, 3))
        assert find_mismatch(log, 2, 3) is None
        assert find_mismatch(log, 3, 5) is None

    def test_what_the_formatter_left_is_not_sent(self) -> None:
        """R102."""
        assert find_mismatch(log_of(1, membership=members(1, 2)), 0, 0) is None

    def test_how_far_a_follower_goes_back(self) -> None:
        """R54."""
        log = log_of(3, 3, 5, 5)
        assert truncation_point(log, OffsetAndEpoch(1, 3)) == 1
        assert truncation_point(log, OffsetAndEpoch(9, 3)) == 2
        assert truncation_point(log, OffsetAndEpoch(3, 4)) == 2
        assert truncation_point(log, OffsetAndEpoch(3, 0)) == 3


def leader_of(*voters: int, log: ModelLog | None = None, syncs: bool = True) -> Scripted:
    node = Scripted(voters=voters, log=log, syncs=syncs)
    node.elect()
    node.outbox.clear()
    return node


class TestLeader:
    def test_the_epoch_begins_with_a_record_of_who_leads(self) -> None:
        """R72, R73: its high watermark is unknown until that is committed."""
        node = leader_of(1, 2, 3, log=log_of(4, 4))
        ((type, value),) = node.all_of(do.AppendControlBatch)[0].records
        assert type is ControlRecordType.LEADER_CHANGE
        message, _ = LeaderChangeMessage.decode(0, value)
        assert message.leader_id == 1
        assert [each.voter_id for each in message.voters] == [1, 2, 3]
        assert [each.voter_id for each in message.granting_voters] == [1, 3]
        answer = partition_of(node.receive(fetch_request(2, 5, 2, 4)))
        assert (answer.high_watermark, answer.error_code) == (-1, 0)
        assert node.raft.high_watermark is None

    def test_a_majority_commits_but_nothing_before_a_record_of_the_epoch(self) -> None:
        """R71: entries of older epochs only together with one of its own."""
        node = leader_of(1, 2, 3, log=log_of(4, 4, 4))
        node.receive(fetch_request(2, 5, 3, 4))
        assert node.raft.high_watermark is None
        node.receive(fetch_request(2, 5, 4, 5))
        assert node.raft.high_watermark == 4

    def test_its_own_log_counts_as_far_as_it_is_on_disk(self) -> None:
        """R61, more strictly."""
        node = leader_of(1, 2, 3, syncs=False)
        node.receive(fetch_request(2, 1, 1, 1))
        assert node.raft.high_watermark is None
        node.step(events.Synced(1, 1))
        assert node.raft.high_watermark == 1

    def test_followers_alone_can_be_a_majority(self) -> None:
        node = leader_of(1, 2, 3, syncs=False)
        node.receive(fetch_request(2, 1, 1, 1))
        node.receive(fetch_request(3, 1, 1, 1))
        assert node.raft.high_watermark == 1

    def test_observers_and_strange_directories_do_not_count(self) -> None:
        """R2, R70."""
        node = Scripted(dynamic=True)
        node.elect()
        end = node.log.end_offset
        node.receive(fetch_request(7, 1, end, 1))
        node.receive(fetch_request(2, 1, end, 1, directory_id=directory(2, 9)))
        assert node.raft.high_watermark is None
        node.receive(fetch_request(2, 1, end, 1))
        assert node.raft.high_watermark == end

    def test_fetches_are_checked_in_kafkas_order(self) -> None:
        """R48, R53."""
        node = leader_of(1, 2, 3)
        for request, error in [
            (fetch_request(2, 0, 0, 0), ErrorCode.FENCED_LEADER_EPOCH),
            (fetch_request(2, 2, 0, 0), ErrorCode.UNKNOWN_LEADER_EPOCH),
            (fetch_request(2, 1, -1, 0), ErrorCode.INVALID_REQUEST),
            (fetch_request(2, 1, 0, 2), ErrorCode.INVALID_REQUEST),
            (fetch_request(2, 1, 0, 0, max_wait_ms=-1), ErrorCode.INVALID_REQUEST),
            (fetch_request(1, 1, 0, 0), ErrorCode.UNKNOWN_SERVER_ERROR),
        ]:
            answer = partition_of(node.receive(request))
            assert (answer.error_code, answer.high_watermark) == (error, -1)
            assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (1, 1)
        top = node.receive(fetch_request(2, 1).replace(cluster_id="other"))
        assert top.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        follower = Scripted()
        follower.follow(2, epoch=1)
        response = follower.receive(fetch_request(3, 1))
        assert partition_of(response).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        (where,) = response.node_endpoints
        assert (where.node_id, where.host) == (2, endpoint(2).host), "R40, R41"
        assert follower.receive(fetch_request(3, 1), version=16).node_endpoints == ()
        assert follower.receive(fetch_request(3, 1), listener="OTHER").node_endpoints == ()

    def test_a_fetch_with_nothing_new_waits(self) -> None:
        """R52: for an append, or for its time."""
        node = leader_of(1, 2, 3)
        assert node.receive(fetch_request(2, 1, 1, 1)) is None
        node.append()
        (reply,) = node.all_of(do.ReplyWithRecords)
        assert reply.offset == 1
        answer = partition_of(node.receive(fetch_request(3, 1, 2, 1, high_watermark=1)))
        assert answer.high_watermark == 2, "R50: what a fetch commits is in its own answer"

    def test_its_time_is_over_after_max_wait_ms(self) -> None:
        node = leader_of(1, 2, 3)
        assert node.receive(fetch_request(3, 1, 1, 1, max_wait_ms=300)) is None
        node.wait(299)
        assert len(node.replies) == 0
        node.wait(1)
        assert len(node.replies) == 1

    def test_a_commit_is_told_at_once_to_those_who_can_tell_what_they_know(self) -> None:
        """R52, KIP-1166: a replica of v18 sends its high watermark; older ones wait."""
        node = leader_of(1, 2, 3)
        node.receive(fetch_request(2, 1, 1, 1))
        assert node.raft.high_watermark == 1
        answer = partition_of(node.receive(fetch_request(3, 1, 1, 1, high_watermark=-1)))
        assert answer.high_watermark == 1
        assert node.receive(fetch_request(3, 1, 1, 1)) is None
        assert node.receive(fetch_request(3, 1, 1, 1, high_watermark=1)) is None

    def test_a_commit_wakes_all(self) -> None:
        """R52."""
        node = leader_of(1, 2, 3, 4, 5)
        assert node.receive(fetch_request(2, 1, 1, 1)) is None
        assert node.receive(fetch_request(3, 1, 1, 1)) is None
        assert [partition_of(each).high_watermark for each in node.replies.values()] == [1]

    def test_who_waits_is_told_that_the_leader_is_gone(self) -> None:
        """R36: with the new leader."""
        node = leader_of(1, 2, 3)
        node.receive(fetch_request(2, 1, 1, 1))
        node.receive(begin_request(3, 2))
        answer = partition_of(node.replies[1])
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert answer.current_leader.leader_id == 3
        kinds = [type(each) for each in node.done]
        assert kinds.index(do.LeadershipLost) < kinds.index(do.Reply)

    def test_an_answer_nobody_waits_for_is_not_kept(self) -> None:
        node = leader_of(1, 2, 3)
        node.receive(fetch_request(2, 1, 1, 1))
        node.step(events.Abandoned(1))
        node.append()
        assert node.replies == {}

    def test_how_far_the_replicas_are(self) -> None:
        """R58, R70."""
        node = leader_of(1, 2, 3)
        node.wait(100)
        node.receive(fetch_request(2, 1, 1, 1))
        node.wait(100)
        assert node.receive(fetch_request(2, 1, 1, 1, max_wait_ms=0)) is not None
        node.append()
        node.wait(100)
        node.receive(fetch_request(2, 1, 1, 1))
        node.receive(fetch_request(9, 1, 0, 0))
        leader = node.state
        assert isinstance(leader, Leader)
        two = leader.voters[BrokerId(2)]
        assert (two.end_offset, two.last_caught_up_ms) == (1, node.now_ms - 100)
        assert leader.voters[BrokerId(3)].end_offset is None
        assert [each.key.id for each in leader.observers.values()] == [9]
        for _ in range(200):
            node.wait(1_900)
            node.receive(fetch_request(2, 1, 2, 1))
        assert leader.observers == {}, "forgotten after five minutes"


def snapshot_answer(
    epoch: int,
    data: bytes,
    *,
    position: int = 0,
    size: int = 40,
    id: OffsetAndEpoch = SNAPSHOT,
    error: ErrorCode = ErrorCode.NONE,
) -> fs.FetchSnapshotResponse:
    partition = fs.FetchSnapshotResponsePartitionSnapshot(
        error_code=error,
        snapshot_id=fs.SnapshotId(end_offset=id.offset, epoch=id.epoch),
        current_leader=fs.LeaderIdAndEpoch(leader_id=BrokerId(2), leader_epoch=epoch),
        size=size,
        position=position,
        unaligned_records=data,
    )
    topic = fs.FetchSnapshotResponseTopicSnapshot(name=TOPIC, partitions=(partition,))
    return fs.FetchSnapshotResponse(topics=(topic,))


class TestSnapshots:
    def test_a_leader_sends_parts_of_a_snapshot(self) -> None:
        """R56; and that keeps it in office (R51, R74)."""
        log = log_of(3, 3)
        log.take_snapshot(2)
        node = leader_of(1, 2, 3, log=log)
        id = log.snapshots[-1]
        answer = partition_of(node.receive(snapshot_request(4, id, 16)))
        assert (answer.error_code, answer.size, answer.position) == (0, 40, 16)
        assert node.done[-1].position == 16  # type: ignore[union-attr]
        for _ in range(4):
            node.wait(1_500)
            node.receive(snapshot_request(4, id))
        assert node.raft.is_leader
        for asked, error in [
            (snapshot_request(3, id), ErrorCode.FENCED_LEADER_EPOCH),
            (snapshot_request(5, id), ErrorCode.UNKNOWN_LEADER_EPOCH),
            (snapshot_request(4, SNAPSHOT), ErrorCode.SNAPSHOT_NOT_FOUND),
            (snapshot_request(4, id, 40), ErrorCode.POSITION_OUT_OF_RANGE),
            (snapshot_request(4, id, -1), ErrorCode.POSITION_OUT_OF_RANGE),
        ]:
            assert partition_of(node.receive(asked)).error_code == error
        asked = snapshot_request(4, id)
        strange = asked.topics[0].replace(name="other")
        answer = partition_of(node.receive(asked.replace(topics=(strange,))))
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_the_formatters_is_never_sent(self) -> None:
        """R56, R102."""
        node = Scripted(dynamic=True)
        node.elect()
        answer = partition_of(node.receive(snapshot_request(1, OffsetAndEpoch(0, 0))))
        assert answer.error_code == ErrorCode.SNAPSHOT_NOT_FOUND

    def downloading(self) -> Scripted:
        node = Scripted(log=log_of(1))
        node.answer(node.follow(2, epoch=5), fetch_answer(5, snapshot=SNAPSHOT))
        assert node.done[-2] == do.BeginSnapshot(SNAPSHOT)
        return node

    def test_a_follower_downloads_it_in_parts_and_goes_on_behind_it(self) -> None:
        """R57."""
        node = self.downloading()
        node.answer(node.take(FetchSnapshotRequest, 2), snapshot_answer(5, b"x" * 30))
        sent = node.take(FetchSnapshotRequest, 2)
        assert partition_of(sent.request).position == 30
        node.answer(sent, snapshot_answer(5, b"x" * 10, position=30))
        assert node.done[-1] == do.InstallSnapshot(SNAPSHOT)
        node.wait(1_000)
        assert node.has_sent(FetchRequest) == [], "nothing is fetched meanwhile"
        node.log.install(Snapshot(SNAPSHOT, 0, Membership()))
        node.step(events.SnapshotInstalled(SNAPSHOT))
        assert node.raft.high_watermark == 4
        asked = partition_of(node.take(FetchRequest, 2).request)
        assert (asked.fetch_offset, asked.last_fetched_epoch) == (4, 3)

    def test_a_new_leader_ends_the_download(self) -> None:
        node = self.downloading()
        node.receive(begin_request(3, 6))
        assert node.all_of(do.DiscardSnapshot) == [do.DiscardSnapshot(SNAPSHOT)]
        assert node.has_sent(FetchRequest) == [3]

    @pytest.mark.parametrize(
        "answer",
        [
            snapshot_answer(5, b"", error=ErrorCode.SNAPSHOT_NOT_FOUND),
            snapshot_answer(5, b"x", position=7),
            snapshot_answer(5, b"x", id=OffsetAndEpoch(5, 3)),
        ],
    )
    def test_so_does_another_answer_than_was_asked_for(
        self, answer: fs.FetchSnapshotResponse
    ) -> None:
        node = self.downloading()
        node.answer(node.take(FetchSnapshotRequest, 2), answer)
        assert node.all_of(do.DiscardSnapshot) == [do.DiscardSnapshot(SNAPSHOT)]
        node.wait(30)
        assert node.has_sent(FetchRequest) != []


def test_a_new_epoch_with_a_vote_is_written_before_anything_is_sent() -> None:
    """R10, R132: in every list of effects that has a Persist it comes before messages."""
    node = Scripted(state=ElectionState(3))
    node.elect()
    node.receive(begin_request(2, 9))
    epochs = 3
    for effect in node.done:
        match effect:
            case do.Persist(state):
                epochs = state.epoch
            case do.Send(_, _, request) if isinstance(request, VoteRequest | FetchRequest):
                asked = partition_of(request)
                told = getattr(asked, "replica_epoch", getattr(asked, "current_leader_epoch", 0))
                assert told <= epochs


def test_the_zero_directory_of_a_static_voter_means_any() -> None:
    """R2, R100."""
    node = leader_of(1, 2, 3)
    node.receive(fetch_request(2, 1, 1, 1, directory_id=ZERO_UUID))
    assert node.raft.high_watermark == 1


def test_a_controller_without_a_leader_still_gets_its_log_to_the_disk() -> None:
    """It may not fetch before that, and without a fetch it finds no leader."""
    node = Scripted(4, (1, 2, 3), syncs=False)
    node.answer(node.follow(2, epoch=5), fetch_answer(5, records=b"\5\5"))
    node.receive(vote_request(3, 6, (2, 5)))
    assert node.is_a == "Unattached 6"
    node.step(events.Synced(2, 5))
    assert node.has_sent(FetchRequest) == []
    node.step(events.Synced(2, 6))
    assert len(node.has_sent(FetchRequest)) == 1
