"""What other nodes of the quorum ask, as a node that leads its quorum answers it on the wire."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, TopicName, Uuid
from dohle.core.uuid import METADATA_TOPIC_ID
from dohle.protocol.messages import begin_quorum_epoch as begin
from dohle.protocol.messages import end_quorum_epoch as end
from dohle.protocol.messages import fetch, fetch_snapshot, vote
from dohle.protocol.messages.add_raft_voter import AddRaftVoterRequest
from dohle.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from dohle.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from dohle.protocol.messages.update_raft_voter import UpdateRaftVoterRequest
from dohle.protocol.schema import Request
from dohle.records.batch import batches
from dohle.server.node import Node
from tests.server.faults import until
from tests.server.handlers.controllers import on_controller
from tests.server.quorum.often import OFTEN, snapshots
from tests.server.wire import Wire, create_topic

METADATA = TopicName("__cluster_metadata")
OBSERVER = BrokerId(9)
DIRECTORY = Uuid(b"\x09" * 16)


def fetch_from(
    offset: int,
    last_epoch: int,
    epoch: int,
    *,
    max_wait_ms: int = 0,
    cluster_id: str | None = None,
    replica_id: BrokerId = OBSERVER,
) -> fetch.FetchRequest:
    partition = fetch.FetchPartition(
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        replica_directory_id=DIRECTORY,
    )
    topic = fetch.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=(partition,))
    state = fetch.ReplicaState(replica_id=replica_id)
    return fetch.FetchRequest(
        cluster_id=cluster_id, replica_state=state, max_wait_ms=max_wait_ms, topics=(topic,)
    )


async def fetched(wire: Wire, request: fetch.FetchRequest) -> Any:
    answer = await wire.send(request)
    assert answer.error_code == 0
    return answer.responses[0].partitions[0]


def epoch_of(node: Node) -> int:
    return node.controller.quorum.leader.epoch


def test_an_observer_can_copy_the_whole_log(tmp_path: Path) -> None:
    """R47-R52: batch by batch, byte for byte; what it has is told as its progress."""

    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "one", 3)
        end_offset = node.controller.quorum.next_offset
        copied = b""
        offset = last_epoch = 0
        while offset < end_offset:
            found = await fetched(wire, fetch_from(offset, last_epoch, epoch_of(node)))
            assert found.error_code == 0
            assert found.current_leader.leader_id == 1
            read = list(batches(found.records))
            assert read[0].base_offset == offset
            offset, last_epoch = read[-1].next_offset, read[-1].partition_leader_epoch
            copied += bytes(found.records)
        segment = node.member.log.log.segments.active
        assert copied == segment.log_file.file.read_at(0, len(copied))
        await fetched(wire, fetch_from(offset, last_epoch, epoch_of(node)))
        partition = await described(wire)
        (observer,) = partition.observers
        assert (observer.replica_id, observer.log_end_offset) == (OBSERVER, offset)
        assert observer.replica_directory_id == DIRECTORY
        assert observer.last_caught_up_timestamp > 0

    on_controller(tmp_path, scenario)


async def described(wire: Wire) -> Any:
    asked = DescribeQuorumRequestPartitionData(partition_index=0)
    topic = DescribeQuorumRequestTopicData(topic_name=METADATA, partitions=(asked,))
    answer = await wire.send(DescribeQuorumRequest(topics=(topic,)))
    return answer.topics[0].partitions[0]


def test_a_fetch_at_the_end_waits_for_the_next_commit(tmp_path: Path) -> None:
    """R52."""

    async def scenario(node: Node, wire: Wire) -> None:
        offset = node.controller.quorum.next_offset
        epoch = epoch_of(node)
        waiting = asyncio.ensure_future(
            fetched(wire, fetch_from(offset, epoch, epoch, max_wait_ms=30_000))
        )
        async with await Wire.connect(node) as client:
            await create_topic(client, "news")
        found = await waiting
        assert found.high_watermark > offset or found.records

    on_controller(tmp_path, scenario)


def test_a_fetch_whose_connection_is_closed_is_forgotten(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        offset, epoch = node.controller.quorum.next_offset, epoch_of(node)
        (bound,) = [one for one in node.listeners if one.listener.name == "CONTROLLER"]
        driver = node.member.quorum._driver
        assert driver is not None
        other = await Wire.connect(f"127.0.0.1:{bound.port}")
        asked = asyncio.ensure_future(
            other.send(fetch_from(offset, epoch, epoch, max_wait_ms=600_000))
        )
        await until(lambda: bool(driver.raft.replica.delayed))
        await other.__aexit__(None, None, None)
        await until(lambda: not driver.raft.replica.delayed)
        asked.cancel()

    on_controller(tmp_path, scenario)


def test_logs_that_disagree_are_told_where_they_part(tmp_path: Path) -> None:
    """R49."""

    async def scenario(node: Node, wire: Wire) -> None:
        offset, epoch = node.controller.quorum.next_offset, epoch_of(node)
        found = await fetched(wire, fetch_from(offset + 5, epoch, epoch))
        assert (found.diverging_epoch.epoch, found.diverging_epoch.end_offset) == (epoch, offset)
        assert not found.records

    on_controller(tmp_path, scenario)


def test_a_snapshot_is_fetched_in_chunks(tmp_path: Path) -> None:
    """R49, R56."""

    async def scenario(node: Node, wire: Wire) -> None:
        for index in range(10):
            await create_topic(wire, f"t{index}")
        await until(lambda: bool(snapshots(tmp_path)))
        await node.member.snapshotter.stop()
        found = await fetched(wire, fetch_from(0, 0, epoch_of(node)))
        id = node.member.log.snapshots[-1]
        assert (found.snapshot_id.end_offset, found.snapshot_id.epoch) == id
        data, size = b"", 1
        while len(data) < size:
            chunk = await snapshot_chunk(wire, id, epoch_of(node), len(data))
            assert (chunk.error_code, chunk.position) == (0, len(data))
            data, size = data + bytes(chunk.unaligned_records), chunk.size
        assert data == snapshots(tmp_path)[-1].read_bytes()
        gone = await snapshot_chunk(wire, (id[0] + 1, id[1]), epoch_of(node), 0)
        assert ErrorCode(gone.error_code) is ErrorCode.SNAPSHOT_NOT_FOUND
        beyond = await snapshot_chunk(wire, id, epoch_of(node), size)
        assert ErrorCode(beyond.error_code) is ErrorCode.POSITION_OUT_OF_RANGE

    on_controller(tmp_path, scenario, OFTEN)


async def snapshot_chunk(wire: Wire, id: tuple[int, int], epoch: int, position: int) -> Any:
    partition = fetch_snapshot.FetchSnapshotRequestPartitionSnapshot(
        current_leader_epoch=epoch,
        snapshot_id=fetch_snapshot.SnapshotId(end_offset=id[0], epoch=id[1]),
        position=position,
    )
    topic = fetch_snapshot.FetchSnapshotRequestTopicSnapshot(name=METADATA, partitions=(partition,))
    answer = await wire.send(
        fetch_snapshot.FetchSnapshotRequest(replica_id=OBSERVER, max_bytes=100, topics=(topic,))
    )
    assert answer.error_code == 0
    return answer.topics[0].partitions[0]


def asked_vote(epoch: int) -> vote.VoteRequest:
    partition = vote.VoteRequestPartitionData(
        replica_epoch=epoch, replica_id=OBSERVER, last_offset_epoch=0, last_offset=0
    )
    topic = vote.VoteRequestTopicData(topic_name=METADATA, partitions=(partition,))
    return vote.VoteRequest(topics=(topic,))


def begun(epoch: int) -> begin.BeginQuorumEpochRequest:
    partition = begin.BeginQuorumEpochRequestPartitionData(leader_id=OBSERVER, leader_epoch=epoch)
    topic = begin.BeginQuorumEpochRequestTopicData(topic_name=METADATA, partitions=(partition,))
    return begin.BeginQuorumEpochRequest(topics=(topic,))


def ended(epoch: int) -> end.EndQuorumEpochRequest:
    partition = end.EndQuorumEpochRequestPartitionData(leader_id=OBSERVER, leader_epoch=epoch)
    topic = end.EndQuorumEpochRequestTopicData(topic_name=METADATA, partitions=(partition,))
    return end.EndQuorumEpochRequest(topics=(topic,))


@pytest.mark.parametrize("request_", [asked_vote, begun, ended], ids=["vote", "begin", "end"])
def test_who_believes_in_an_older_epoch_is_told_of_the_leader(
    tmp_path: Path, request_: Any
) -> None:
    """R130."""

    async def scenario(node: Node, wire: Wire) -> None:
        request = request_(epoch_of(node) - 1)
        for version in range(request.VERSIONS.lowest, request.VERSIONS.highest + 1):
            answer = await wire.send(request, version)
            assert answer.error_code == 0
            partition = answer.topics[0].partitions[0]
            assert ErrorCode(partition.error_code) is ErrorCode.FENCED_LEADER_EPOCH
            assert (partition.leader_id, partition.leader_epoch) == (1, epoch_of(node))

    async def first_epoch(node: Node, wire: Wire) -> None:
        assert epoch_of(node) == 1

    on_controller(tmp_path, first_epoch)
    on_controller(tmp_path, scenario)


@pytest.mark.parametrize(
    "request_",
    [
        vote.VoteRequest(cluster_id="other"),
        begin.BeginQuorumEpochRequest(cluster_id="other"),
        end.EndQuorumEpochRequest(cluster_id="other"),
        fetch_from(0, 0, 0, cluster_id="other"),
        fetch_snapshot.FetchSnapshotRequest(cluster_id="other"),
        AddRaftVoterRequest(cluster_id="other"),
        RemoveRaftVoterRequest(cluster_id="other"),
        UpdateRaftVoterRequest(cluster_id="other"),
    ],
    ids=lambda request: type(request).__name__,
)
def test_another_cluster_is_refused(tmp_path: Path, request_: Request) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        answer: Any = await wire.send(request_)
        assert ErrorCode(answer.error_code) is ErrorCode.INCONSISTENT_CLUSTER_ID

    on_controller(tmp_path, scenario)
