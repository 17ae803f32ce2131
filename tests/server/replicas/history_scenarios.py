"""Scenarios of replicas that tests play, and that find deliberate defects."""

from __future__ import annotations

from random import Random

from dohle.client import Cluster, ProducerConfig
from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId
from dohle.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.server.replicas.stage import TOPIC, WHERE, WITHIN_S, Stage, on_stage

#: A seed with which a power cut takes everything that was not synced.
_ALL_UNSYNCED_IS_LOST = 2


def the_last_replica_loses_its_power() -> None:
    with on_stage(nodes=7, replicas=(1, 2, 3), min_insync_replicas="2") as stage:
        cluster, world = stage.cluster, stage.cluster.world
        stage.produce(b"a", b"b")
        stage.await_in_sync()
        last = stage.leader
        first, second = (id for id in (1, 2, 3) if id != last)
        cluster.kill(BrokerId(first))
        stage.await_isr(2)
        stage.produce(b"c")
        eligible = cluster.machines[BrokerId(second)]
        eligible.request_stop()
        world.run_until(lambda: not eligible.is_running, WITHIN_S)
        stage.await_isr(1)
        # What only the last one has is not committed, and goes with the power.
        stage.produce(b"lost", config=ProducerConfig(acks=1, enable_idempotence=False))
        cluster.machines[last].power_off(Random(_ALL_UNSYNCED_IS_LOST))
        cluster.gone(last)
        stage.await_isr(0)
        cluster.start(last)
        world.run_until(lambda: last in cluster.nodes, WITHIN_S)
        world.run_for(5)
        assert cluster.leader(TOPIC, 0) is None
        cluster.start(BrokerId(second))
        assert stage.leader == second
        assert stage.read() == [b"a", b"b", b"c"]
        cluster.start(BrokerId(first))
        world.run_until(lambda: cluster.is_up, WITHIN_S)
        stage.await_in_sync()
        assert stage.read() == [b"a", b"b", b"c"]


def all_are_asked_where_an_epoch_ends() -> None:
    with on_stage() as stage:
        cluster, world = stage.cluster, stage.cluster.world
        stage.produce(b"a", b"b")
        stage.await_in_sync()
        old = stage.leader
        cluster.kill(old)
        world.run_until(lambda: cluster.leader(TOPIC, 0) not in (None, old), WITHIN_S)
        stage.produce(b"c")
        leader = stage.leader
        current = stage.replica(leader).leader_epoch
        other = next(id for id in cluster.nodes if id != leader)
        world.run_until(lambda: stage.replica(other).leader_epoch == current, WITHIN_S)
        assert _epoch_end(stage, leader, 0, current) == (ErrorCode.NONE, 0, 2)
        assert _epoch_end(stage, leader, current, current) == (ErrorCode.NONE, current, 3)
        assert _epoch_end(stage, leader, 0, -1) == (ErrorCode.NONE, 0, 2), "it need not say"
        assert _epoch_end(stage, leader, current + 1, current) == (ErrorCode.NONE, -1, -1)
        for node_id, said, error in (
            (leader, current - 1, ErrorCode.FENCED_LEADER_EPOCH),
            (leader, current + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
            (other, current, ErrorCode.NOT_LEADER_OR_FOLLOWER),
            (other, current - 1, ErrorCode.FENCED_LEADER_EPOCH),
        ):
            assert _epoch_end(stage, node_id, 0, said) == (error, -1, -1)


def _epoch_end(
    stage: Stage, node_id: BrokerId, epoch: int, current: int
) -> tuple[ErrorCode, int, int]:
    asked = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
    topic = OffsetForLeaderTopic(topic=WHERE.topic, partitions=(asked,))

    async def work(cluster: Cluster) -> OffsetForLeaderEpochResponse:
        await cluster.topic(WHERE.topic)
        connection = await cluster.connection(node_id)
        request = OffsetForLeaderEpochRequest(topics=(topic,))
        return await connection.request(request, OffsetForLeaderEpochResponse)

    found = stage.run(work).topics[0].partitions[0]
    return ErrorCode(found.error_code), found.leader_epoch, found.end_offset
