"""A producer that has come to the wrong broker is told who leads, and where that is (KIP-951)."""

from __future__ import annotations

import pytest

from dohle.client import Cluster
from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId
from dohle.protocol.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.server.replicas.stage import WHERE, Stage, on_stage
from tests.storage.logs import NOW_MS, batch

NOBODY = LeaderIdAndEpoch()


def produce(stage: Stage, node_id: BrokerId, version: int, times: int) -> list[ProduceResponse]:
    """Send the same request to one broker some times, as the first ones teach it a shortcut."""
    topic_id = stage.replica(stage.leader).topic_id
    data = PartitionProduceData(index=0, records=bytes(batch([NOW_MS])))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=(TopicProduceData(name=WHERE.topic, topic_id=topic_id, partition_data=(data,)),),
    )

    async def work(cluster: Cluster) -> list[ProduceResponse]:
        await cluster.topic(WHERE.topic)
        connection = await cluster.connection(node_id)
        return [
            await connection.request(request, ProduceResponse, version_max=version)
            for _ in range(times)
        ]

    found: list[ProduceResponse] = stage.run(work)
    return found


def only(response: ProduceResponse) -> PartitionProduceResponse:
    (topic,) = response.responses
    (data,) = topic.partition_responses
    return data


@pytest.mark.parametrize("version", [10, 12, 13])
def test_a_producer_at_a_follower_is_told_the_leader_and_where_it_is(version: int) -> None:
    with on_stage(broker_rack="rack-{id}") as stage:
        stage.produce(b"a")
        leader = stage.leader
        follower = next(id for id in stage.cluster.nodes if id != leader)
        for found in produce(stage, follower, version, 3):
            data = only(found)
            assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert data.current_leader == LeaderIdAndEpoch(
                leader_id=leader, leader_epoch=stage.replica(leader).leader_epoch
            )
            assert [(each.node_id, each.host, each.rack) for each in found.node_endpoints] == [
                (leader, f"n{leader}", f"rack-{leader}")
            ]


def test_an_old_producer_is_told_the_error_alone() -> None:
    with on_stage() as stage:
        stage.produce(b"a")
        follower = next(id for id in stage.cluster.nodes if id != stage.leader)
        (found,) = produce(stage, follower, 9, 1)
        assert only(found).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (only(found).current_leader, found.node_endpoints) == (NOBODY, ())


def test_who_has_written_is_told_no_leader() -> None:
    with on_stage() as stage:
        stage.produce(b"a")
        for found in produce(stage, stage.leader, 13, 2):
            assert only(found).error_code == ErrorCode.NONE
            assert (only(found).current_leader, found.node_endpoints) == (NOBODY, ())
