"""Reassignments and throttles on real nodes in the simulator: one situation each."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from dohle.client import (
    Admin,
    AlterOp,
    Cluster,
    ConfigChange,
    ConfigResource,
    ResourceType,
)
from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId
from dohle.metadata.partition import DIRECTORY_UNASSIGNED
from dohle.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from dohle.server.metrics.partitions import is_under_replicated
from dohle.testing.simulation.machine import SimulatedHost
from tests.server.replicas.stage import CLIENT, TOPIC, WHERE, WITHIN_S, Stage, on_stage

NEW = 4
_DATA = "/data"


def reassign(stage: Stage, replicas: Sequence[int] | None) -> None:
    results = stage.run(
        lambda cluster: Admin(cluster).alter_partition_reassignments({WHERE: replicas})
    )
    assert results.errors == {}


def await_replicas(stage: Stage, *replicas: int) -> None:
    """Wait until a reassignment is over, and every broker has done what follows from it."""

    def is_so() -> bool:
        image = stage.cluster.image(TOPIC, 0)
        return image is not None and image.replicas == replicas and stage.cluster.is_in_sync(TOPIC)

    stage.cluster.world.run_until(is_so, WITHIN_S)


def configure(stage: Stage, kind: ResourceType, name: str, **configs: str) -> None:
    changes = [
        ConfigChange(key.replace("_", "."), AlterOp.SET if value else AlterOp.DELETE, value or None)
        for key, value in configs.items()
    ]
    resource = ConfigResource(kind, name)
    results = stage.run(
        lambda cluster: Admin(cluster).incremental_alter_configs({resource: changes})
    )
    assert results.errors == {}


def folders(stage: Stage, node: int) -> list[str]:
    """Return the folders of the topic's replicas on a node."""
    machine = stage.cluster.machines[BrokerId(node)]
    return [
        entry.name for entry in machine.files.list_dir(_DATA) if entry.name.startswith(f"{TOPIC}-")
    ]


def test_w3_a_replica_and_with_it_the_leadership_go_to_another_broker() -> None:
    """C45: the new one copies everything; the old one stops, and deletes its log."""
    with on_stage(nodes=4) as stage:
        stage.produce(*(b"%d" % number for number in range(20)))
        assert stage.leader == 1
        reassign(stage, (NEW, 2, 3))
        await_replicas(stage, NEW, 2, 3)
        assert stage.leader == NEW
        assert stage.produce(b"more") == [20]
        assert len(stage.read()) == 21
        stage.cluster.world.run_until(lambda: f"{TOPIC}-0" not in folders(stage, 1), WITHIN_S)
        # It is put there again from nothing.
        reassign(stage, (1, NEW))
        await_replicas(stage, 1, NEW)
        stage.await_in_sync()
        assert len(stage.read()) == 21


def test_who_was_away_when_its_replica_was_taken_sets_the_log_aside_at_its_start() -> None:
    """C45, F6: a stray."""
    with on_stage(nodes=4) as stage:
        stage.produce(b"a", b"b")
        stage.cluster.kill(BrokerId(3))
        stage.await_isr(2)
        reassign(stage, (1, 2, NEW))
        stage.await_isr(3)
        image = stage.cluster.image(TOPIC, 0)
        assert image is not None
        assert image.replicas == (1, 2, NEW)
        stage.cluster.start(BrokerId(3))
        stage.cluster.world.run_until(lambda: stage.cluster.is_up, WITHIN_S)
        assert f"{TOPIC}-0" not in folders(stage, 3)
        assert stage.read() == [b"a", b"b"]


def test_a_new_replica_tells_in_which_directory_it_is() -> None:
    """C44, D2: a broker with several chooses by itself, and the controller hears of it."""
    with on_stage(nodes=4, log_dirs="/data,/more") as stage:
        stage.produce(b"a")
        reassign(stage, (1, 2, NEW))
        await_replicas(stage, 1, 2, NEW)

        def is_told() -> bool:
            image = stage.cluster.image(TOPIC, 0)
            return image is not None and DIRECTORY_UNASSIGNED not in image.directories

        stage.cluster.world.run_until(is_told, WITHIN_S)


def test_a_fetch_that_waits_at_a_leader_is_answered_when_the_partition_goes() -> None:
    with on_stage(nodes=4) as stage:
        stage.produce(b"a")
        leader = stage.cluster.nodes[stage.leader].broker.partitions.get(TOPIC, 0)
        assert leader is not None
        wanted = FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1000)
        request = FetchRequest(
            max_wait_ms=50_000,
            min_bytes=1,
            max_bytes=1000,
            topics=(FetchTopic(topic_id=leader.topic_id, partitions=(wanted,)),),
        )

        async def reassign_later(host: SimulatedHost) -> None:
            await asyncio.sleep(2)
            async with Cluster(stage.cluster.bootstrap, CLIENT, host=host) as cluster:
                (await Admin(cluster).alter_partition_reassignments({WHERE: (NEW, 2)})).ok()

        async def work(cluster: Cluster) -> tuple[ErrorCode, float]:
            await cluster.refresh((WHERE.topic,))
            connection = await cluster.connection(stage.leader)
            begun_s = stage.cluster.world.now_s
            answer = await connection.request(request, FetchResponse, timeout_ms=60_000)
            code = ErrorCode(answer.responses[0].partitions[0].error_code)
            return code, stage.cluster.world.now_s - begun_s

        stage.cluster.world.machine("administrator").start(reassign_later)
        code, took_s = stage.run(work)
        assert code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert took_s < 20


def test_replicas_that_are_added_do_not_make_a_partition_under_replicated() -> None:
    with on_stage(nodes=4, replicas=(1, 2)) as stage:
        stage.produce(b"a")
        stage.cluster.kill(BrokerId(NEW))
        reassign(stage, (1, 2, NEW))
        leader = stage.cluster.nodes[stage.leader].broker.partitions.get(TOPIC, 0)
        assert leader is not None
        stage.cluster.world.run_until(lambda: leader.image.adding_replicas == (NEW,), WITHIN_S)
        assert not is_under_replicated(leader)
        # Given up, nothing is left of it.
        reassign(stage, None)
        stage.cluster.world.run_until(lambda: leader.image.replicas == (1, 2), WITHIN_S)


RATE = 10_000
RECORDS, SIZE = 40, 5_000
#: What there is to be copied takes so long at the rate; the windows may be filled in advance.
EXPECTED_S = RECORDS * SIZE / RATE


@pytest.mark.parametrize(
    ("role", "node", "throttled"),
    [("follower", NEW, f"0:{NEW}"), ("leader", 1, "0:1"), ("follower", NEW, "*")],
)
def test_f18_a_throttled_replica_is_copied_at_the_rate(
    role: str, node: int, throttled: str
) -> None:
    with on_stage(nodes=4, replica_fetch_max_bytes="6000") as stage:
        stage.produce(*(bytes(SIZE) for _ in range(RECORDS)))
        configure(
            stage,
            ResourceType.BROKER,
            str(node),
            **{f"{role}_replication_throttled_rate": str(RATE)},
        )
        replicas = f"{role}_replication_throttled_replicas"
        configure(stage, ResourceType.TOPIC, TOPIC, **{replicas: throttled})
        world = stage.cluster.world
        begun_s = world.now_s
        reassign(stage, (1, 2, 3, NEW))
        asked_s = world.now_s
        # Those in sync are not held back, so producers do not notice.
        stage.produce(b"meanwhile")
        assert world.now_s - asked_s < 1
        await_replicas(stage, 1, 2, 3, NEW)
        took_s = world.now_s - begun_s
        assert 0.8 * EXPECTED_S < took_s < 1.5 * EXPECTED_S


def test_f18_a_throttle_that_is_taken_away_holds_nothing_back() -> None:
    with on_stage(nodes=4, replica_fetch_max_bytes="6000") as stage:
        stage.produce(*(bytes(SIZE) for _ in range(RECORDS)))
        configure(stage, ResourceType.BROKER, str(NEW), follower_replication_throttled_rate="100")
        configure(stage, ResourceType.TOPIC, TOPIC, follower_replication_throttled_replicas="*")
        reassign(stage, (1, 2, 3, NEW))
        world = stage.cluster.world
        world.run_for(20)
        image = stage.cluster.image(TOPIC, 0)
        assert image is not None
        assert image.adding_replicas == (NEW,)
        begun_s = world.now_s
        configure(stage, ResourceType.TOPIC, TOPIC, follower_replication_throttled_replicas="")
        await_replicas(stage, 1, 2, 3, NEW)
        assert world.now_s - begun_s < 5
