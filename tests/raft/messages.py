"""Requests of other nodes, as several tests need them."""

from __future__ import annotations

from typing import Any

from dohle.core.ids import BrokerId
from dohle.protocol.messages import fetch_snapshot as fs
from dohle.protocol.messages import update_raft_voter as update
from dohle.protocol.messages.add_raft_voter import AddRaftVoterRequest, Listener
from dohle.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from dohle.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from dohle.raft.values import OffsetAndEpoch
from tests.raft.scripted import TOPIC
from tests.raft.simulation.world import LISTENER, directory

SNAPSHOT = OffsetAndEpoch(4, 3)


def add_request(id: int, **changes: Any) -> AddRaftVoterRequest:
    listener = Listener(name=LISTENER, host=f"node-{id}", port=9000 + id)
    request = AddRaftVoterRequest(
        cluster_id="cluster",
        voter_id=id,
        voter_directory_id=directory(id),
        listeners=(listener,),
    )
    return request.replace(**changes)


def remove_request(id: int, generation: int = 0) -> RemoveRaftVoterRequest:
    return RemoveRaftVoterRequest(
        cluster_id="cluster", voter_id=id, voter_directory_id=directory(id, generation)
    )


def update_request(id: int, epoch: int = 1, port: int = 0, highest: int = 1) -> Any:
    listener = update.Listener(name=LISTENER, host=f"node-{id}", port=port or 9000 + id)
    return update.UpdateRaftVoterRequest(
        cluster_id="cluster",
        current_leader_epoch=epoch,
        voter_id=id,
        voter_directory_id=directory(id),
        listeners=(listener,),
        kraft_version_feature=update.KRaftVersionFeature(
            min_supported_version=0, max_supported_version=highest
        ),
    )


def snapshot_request(epoch: int, id: OffsetAndEpoch, position: int = 0) -> FetchSnapshotRequest:
    partition = fs.FetchSnapshotRequestPartitionSnapshot(
        current_leader_epoch=epoch,
        snapshot_id=fs.SnapshotId(end_offset=id.offset, epoch=id.epoch),
        position=position,
        replica_directory_id=directory(2),
    )
    topic = fs.FetchSnapshotRequestTopicSnapshot(name=TOPIC, partitions=(partition,))
    return FetchSnapshotRequest(cluster_id="cluster", replica_id=BrokerId(2), topics=(topic,))
