"""Brokers go on with what they know while no controller is to be reached, in the simulator."""

from __future__ import annotations

import logging

import pytest

from dohle.client import Admin, Cluster, NewTopic, TimedOut
from dohle.core.ids import BrokerId
from dohle.testing.simulation.world import SECOND_NS
from tests.server.simulated_cluster import (
    BROKERS,
    CONTROLLERS,
    DYNAMIC,
    STATIC,
    SimulatedCluster,
)
from tests.server.simulated_records import create_topic, image, is_in_sync, produce, read

#: More than a session (9 s) and what a request to the controller may take (30 s).
_LONG_S = 60


def cut_off_controllers(cluster: SimulatedCluster) -> None:
    """Let brokers and controllers not hear of each other, in either direction."""
    until_ns = cluster.world.time.now_ns + 2 * _LONG_S * SECOND_NS
    for controller in CONTROLLERS:
        for broker in BROKERS:
            cluster.world.network.cut(f"n{controller}", f"n{broker}", until_ns)
            cluster.world.network.cut(f"n{broker}", f"n{controller}", until_ns)


@pytest.mark.parametrize("quorum", [STATIC, DYNAMIC], ids=["static", "dynamic"])
def test_brokers_go_on_taking_and_giving_records_while_all_controllers_are_dead(
    quorum: dict[str, str],
) -> None:
    """X4: with acks=all, by clients that come anew; nothing of it is lost when they are back."""
    with SimulatedCluster(11, quorum) as cluster:
        cluster.await_started()
        create_topic(cluster)
        produce(cluster, b"before")
        for node_id in CONTROLLERS:
            cluster.kill(node_id)
        produce(cluster, b"at once")
        assert read(cluster) == [b"before", b"at once"]
        cluster.world.run_for(_LONG_S)
        produce(cluster, b"after long")
        written = [b"before", b"at once", b"after long"]
        assert read(cluster) == written
        assert is_in_sync(cluster), "followers go on copying"
        for node_id in CONTROLLERS:
            cluster.start(node_id)
        cluster.await_started()
        produce(cluster, b"with them again")
        assert read(cluster) == [*written, b"with them again"]
        assert set(image(cluster).isr) == set(map(BrokerId, BROKERS))


def test_brokers_that_are_fenced_without_knowing_it_serve_until_they_hear_of_it() -> None:
    """X4, A43: cut off from the controllers, and only from them, they keep the last image."""
    with SimulatedCluster(12, STATIC) as cluster:
        cluster.await_started()
        create_topic(cluster)
        active = cluster.await_active()
        cut_off_controllers(cluster)
        cluster.world.run_until(
            lambda: all(each.fenced for each in cluster.image(active).brokers.values()), _LONG_S
        )
        produce(cluster, b"a", b"b")
        assert read(cluster) == [b"a", b"b"]
        # The last in the ISR stays in it, so no other could lead without these records.
        cluster.world.run_until(lambda: is_in_sync(cluster) and _is_unfenced(cluster), 3 * _LONG_S)
        assert read(cluster) == [b"a", b"b"]


def test_who_asks_for_a_change_is_told_what_is_waited_for_before_it_is_given_up() -> None:
    """X4: nothing is changed; the one who waits knows why after seconds, and the error says so."""
    told: list[tuple[float, str]] = []
    with SimulatedCluster(13, STATIC) as cluster:
        cluster.await_started()
        for node_id in CONTROLLERS:
            cluster.kill(node_id)
        begun = cluster.world.now_s

        async def program(client: Cluster) -> None:
            client.on_wait = lambda line: told.append((cluster.world.now_s - begun, line))
            with pytest.raises(TimedOut, match="perhaps there is none, since most controllers"):
                await Admin(client).create_topics([NewTopic("t", 1, 1)])

        cluster.use(program)
        ((after_s, line),) = told
        assert after_s < 6
        assert "waiting for the active controller; giving up after 60 s" in line
        assert cluster.world.now_s - begun >= 60


def test_the_log_tells_once_that_controllers_are_away_and_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each broker says whom it misses, less and less often, and when that is over."""
    caplog.set_level(logging.INFO, logger="dohle.server")
    with SimulatedCluster(14, STATIC) as cluster:
        cluster.await_started()
        caplog.clear()
        for node_id in CONTROLLERS:
            cluster.kill(node_id)
        cluster.world.run_for(_LONG_S)
        missed = [each for each in caplog.messages if each.startswith("the quorum has no leader")]
        assert len(missed) == 4 * len(BROKERS), "after 5, 10, 20 and 40 s"
        assert all("1@n1:9093, 2@n2:9093, 3@n3:9093" in each for each in missed)
        assert caplog.messages == missed, "nobody else tells of it"
        caplog.clear()
        for node_id in CONTROLLERS:
            cluster.start(node_id)
        cluster.await_started()
        cluster.world.run_until(lambda: _is_unfenced(cluster), _LONG_S)
        cluster.world.run_for(5)
        over = [each for each in caplog.messages if "has a leader again" in each]
        assert len(over) == len(BROKERS)


def test_the_active_controller_tells_of_brokers_that_come_and_go(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A43, A52: one line for each event, from one node."""
    caplog.set_level(logging.INFO, logger="dohle.server")
    with SimulatedCluster(15, STATIC) as cluster:
        cluster.await_started()
        # One that leads nothing stops without any ado.
        create_topic(cluster, leader=5)

        def told() -> list[str]:
            found = [each for each in caplog.messages if each.startswith("broker 5 ")]
            caplog.clear()
            return found

        there = "broker 5 is there, at n5:9092: it is unfenced, and serves clients"
        assert told() == [there]
        cluster.stop(5)
        assert told() == ["broker 5 is being shut down: other replicas lead its partitions"]
        cluster.start(5)
        cluster.await_started()
        assert told() == [there]
        cluster.kill(5)
        cluster.world.run_for(15)
        (fenced,) = told()
        assert fenced.startswith("broker 5 is fenced: it has not been heard from for 9000 ms.")
        cluster.start(5)
        cluster.await_started()
        assert told() == [there]


def _is_unfenced(cluster: SimulatedCluster) -> bool:
    brokers = cluster.image(cluster.await_active()).brokers
    return not any(each.fenced for each in brokers.values())
