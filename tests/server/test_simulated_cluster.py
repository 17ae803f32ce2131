"""Controllers apart from brokers: elected, followed and reached, in the simulator."""

from __future__ import annotations

import logging

import pytest

from dohle.client.admin.admin import Admin
from dohle.client.admin.topic_values import NewTopic
from dohle.client.config import ClientConfig
from dohle.client.net.addresses import Address
from dohle.client.net.connection import Connection
from dohle.core.config.static import SINGLE_NODE, BrokerConfig
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, TopicName, Uuid
from dohle.metadata.broker_life import BrokerState
from dohle.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from dohle.server.node import Node
from dohle.testing.simulation.machine import SimulatedHost
from tests.server.simulated_cluster import (
    ALL,
    BROKERS,
    CONTROLLERS,
    DYNAMIC,
    STATIC,
    SimulatedCluster,
)

_NO_LEADER = "the quorum has no leader that this node can reach"


def create(cluster: SimulatedCluster, name: str) -> None:
    async def program(admin: Admin) -> None:
        created = await admin.create_topics([NewTopic(name, 4, 1)])
        assert TopicName(name) in created.ok()

    cluster.ask(program)


@pytest.mark.parametrize("quorum", [STATIC, DYNAMIC], ids=["static", "dynamic"])
def test_brokers_follow_controllers_on_other_nodes(quorum: dict[str, str]) -> None:
    """R100, R120, A50: brokers find the leader, read its log, register and serve."""
    with SimulatedCluster(1, quorum) as cluster:
        cluster.await_started()
        create(cluster, "t")

        async def program(admin: Admin) -> None:
            described = await admin.describe_cluster()
            assert [one.node_id for one in described.brokers] == list(BROKERS)
            found = await admin.describe_quorum()
            assert found.leader_id == cluster.active
            assert {one.node_id for one in found.voters} == set(CONTROLLERS)
            assert {one.node_id for one in found.observers} <= set(BROKERS)
            levels = (await admin.describe_features()).finalized
            assert ("kraft.version" in levels) == (quorum is DYNAMIC)

        cluster.ask(program)
        cluster.world.run_until(
            lambda: all(cluster.image(id).topic(TopicName("t")) for id in ALL), within_s=5
        )


def test_a_cluster_outlives_its_active_controller() -> None:
    """R31, R122, A12: another one takes over, and brokers find it."""
    with SimulatedCluster(2, STATIC) as cluster:
        cluster.await_started()
        create(cluster, "before")
        first = cluster.await_active()
        cluster.kill(first)
        create(cluster, "after")
        second = cluster.await_active()
        assert second != first
        image = cluster.image(second)
        assert not any(one.fenced for one in image.brokers.values())
        cluster.start(first)
        cluster.await_started()
        cluster.world.run_until(
            lambda: cluster.image(first).topic(TopicName("after")) is not None, within_s=10
        )


def test_a_broker_stops_in_a_controlled_way_and_comes_back() -> None:
    """A52, W1: fenced when it has gone, known by its epoch when it comes back."""
    with SimulatedCluster(3, STATIC) as cluster:
        cluster.await_started()
        create(cluster, "t")
        assert cluster.stop(4) < 10
        image = cluster.image(cluster.await_active())
        former = image.brokers[BrokerId(4)]
        assert former.fenced
        assert not image.brokers[BrokerId(5)].fenced
        cluster.start(4)
        cluster.await_started()
        node = cluster.nodes[4]
        assert node.broker_role.previous_epoch == former.epoch
        assert not cluster.image(cluster.await_active()).brokers[BrokerId(4)].fenced


def test_a_broker_that_was_stopped_cleanly_is_back_without_waiting_for_a_session() -> None:
    """A36: the controller that let it go does not take its former process for alive."""
    with SimulatedCluster(3, STATIC) as cluster:
        cluster.await_started()
        cluster.stop(4)
        begun = cluster.world.now_s
        cluster.start(4)
        cluster.await_started()
        assert cluster.world.now_s - begun < 5


@pytest.mark.parametrize("node_id", [1, 4], ids=["voter", "observer"])
@pytest.mark.parametrize("quorum", [STATIC, DYNAMIC], ids=["static", "dynamic"])
def test_no_node_of_a_cluster_begins_one_of_its_own_without_its_configuration(
    quorum: dict[str, str], node_id: int
) -> None:
    """R2: what it commits alone would be lost when it meets the others again."""
    with SimulatedCluster(5, quorum) as cluster:
        cluster.await_started()
        cluster.stop(node_id)
        files = cluster.machine(node_id).files
        path = "/data/__cluster_metadata-0/quorum-state"
        before = files.read(path)
        properties = {
            **SINGLE_NODE,
            "node.id": str(node_id),
            "log.dirs": "/data",
            "listeners": f"PLAINTEXT://n{node_id}:9092",
        }

        async def program(host: SimulatedHost) -> None:
            node = Node(BrokerConfig.from_properties(properties)[0], host=host)
            with pytest.raises(KafkaError, match="the voters of the quorum are") as refused:
                await node.start()
            assert refused.value.code is ErrorCode.INVALID_CONFIG

        machine = cluster.machine(node_id)
        machine.start(program)
        cluster.world.run_until(machine.main.done, 60)
        machine.main.result()
        assert files.read(path) == before
        cluster.start(node_id)
        cluster.await_started()


def test_a_broker_that_dies_is_fenced() -> None:
    """A43: when its session has timed out."""
    with SimulatedCluster(4, STATIC) as cluster:
        cluster.await_started()
        active = cluster.await_active()
        cluster.kill(5)
        cluster.world.run_until(lambda: cluster.image(active).brokers[BrokerId(5)].fenced, 12)
        cluster.start(5)
        cluster.await_started()
        assert not cluster.image(active).brokers[BrokerId(5)].fenced


def test_a_cluster_of_which_every_node_was_killed_goes_on() -> None:
    """X4: with all that it had."""
    with SimulatedCluster(5, DYNAMIC) as cluster:
        cluster.await_started()
        create(cluster, "t")
        for node_id in ALL:
            cluster.kill(node_id)
        for node_id in ALL:
            cluster.start(node_id)
        cluster.await_started()

        async def program(admin: Admin) -> None:
            assert TopicName("t") in await admin.list_topics()

        cluster.ask(program)
        create(cluster, "more")


def test_r123_a_broker_acts_on_metadata_only_once_it_has_all_that_was_committed() -> None:
    """Logs are opened by the image of its registration or a later one, not by an old snapshot."""
    with SimulatedCluster(9, STATIC) as cluster:
        cluster.await_started()
        create(cluster, "before")
        cluster.kill(4)
        del cluster.nodes[4]
        for number in range(3):
            create(cluster, f"meanwhile-{number}")
        committed = cluster.image(cluster.await_active()).offset
        cluster.start(4)
        acting = (BrokerState.RECOVERY, BrokerState.RUNNING)
        cluster.world.run_until(
            lambda: 4 in cluster.nodes and cluster.nodes[4].sources.state in acting, 60
        )
        image = cluster.image(4)
        assert image.offset >= committed
        assert image.brokers[BrokerId(4)].epoch > committed, "it has seen its own registration"
        assert 4 not in cluster.started, "nobody is served before"
        cluster.await_started()


def test_every_controller_knows_all_controllers() -> None:
    """A14, A15: each registers for every life, and any of them describes all, active or not.

    Each kind of node describes its own kind, and says of the other that it is to be asked itself.
    """
    with SimulatedCluster(6, STATIC) as cluster:
        cluster.await_started()

        def registered() -> dict[int, Uuid]:
            controllers = cluster.image(4).controllers
            return {id: controllers[id].incarnation_id for id in sorted(controllers)}

        cluster.world.run_until(lambda: set(registered()) == set(CONTROLLERS), 5)
        former = registered()
        active = cluster.await_active()
        other = next(id for id in CONTROLLERS if id != active)
        cluster.kill(other)
        cluster.start(other)
        cluster.world.run_until(lambda: registered()[other] != former[other], 20)

        async def describe(
            host: SimulatedHost, address: Address, kind: int
        ) -> DescribeClusterResponse:
            connection = await Connection.open(address, ClientConfig(), host)
            request = DescribeClusterRequest(endpoint_type=kind)
            found = await connection.request(request, DescribeClusterResponse)
            await connection.close()
            return found

        async def program(host: SimulatedHost) -> None:
            for ids, port, own, other in ((BROKERS, 9092, 1, 2), (CONTROLLERS, 9093, 2, 1)):
                for node_id in ids:
                    address = Address(f"n{node_id}", port)
                    found = await describe(host, address, own)
                    assert (found.error_code, found.endpoint_type) == (0, own)
                    told = {(one.broker_id, one.host, one.port) for one in found.brokers}
                    assert told == {(id, f"n{id}", port) for id in ids}
                    assert found.controller_id in ({active} if own == 2 else BROKERS)
                    refused = await describe(host, address, other)
                    assert refused.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
                    assert refused.brokers == ()

        machine = cluster.world.machine("tool")
        machine.start(program)
        cluster.world.run_until(machine.main.done, 30)
        machine.main.result()


def test_a_broker_without_controllers_gives_up_and_leaves_nothing_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A50: after a minute, in which the operator is told whom it tries to reach."""
    with SimulatedCluster(7, STATIC) as cluster:
        for node_id in ALL:
            cluster.kill(node_id)
        cluster.start(4)
        machine = cluster.machine(4)
        cluster.world.run_until(machine.main.done, 70)
        with pytest.raises(KafkaError, match="could not be registered by the controllers"):
            machine.main.result()
        assert not machine.listening
        (ended,) = cluster.world.errors
        assert "could not be registered by the controllers" in ended
        cluster.world.errors.clear()
    named = "1@n1:9093, 2@n2:9093, 3@n3:9093"
    told = [one.message for one in caplog.records if one.levelno >= logging.WARNING]
    assert all(each.startswith(f"{_NO_LEADER}: tried {named} for ") for each in told)
    assert len(told) == 4, "after 5, 10, 20 and 40 s"
