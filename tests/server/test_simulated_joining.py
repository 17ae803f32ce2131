"""A controller that joins the voters of a dynamic quorum by itself (KIP-1186), in the simulator."""

from __future__ import annotations

from dohle.client.admin.admin import Admin
from dohle.core.ids import TopicName
from tests.server.simulated_cluster import CONTROLLERS, DYNAMIC, SimulatedCluster
from tests.server.simulated_records import create_topic

_NEW = 6


def await_voters(cluster: SimulatedCluster, *expected: int) -> None:
    """Wait until all controllers that run agree on the voters, and see that clients hear so."""
    cluster.world.run_until(
        lambda: all(
            set(cluster.voters(id)) == set(expected) for id in expected if id in cluster.started
        ),
        60,
    )

    async def program(admin: Admin) -> None:
        found = await admin.describe_quorum()
        assert {one.node_id for one in found.voters} == set(expected)

    cluster.ask(program)


def test_a_controller_that_is_to_join_becomes_a_voter_without_being_told() -> None:
    """R110: it catches up, asks to be added, and counts in the next election."""
    with SimulatedCluster(31, DYNAMIC) as cluster:
        cluster.await_started()
        create_topic(cluster)
        cluster.add_controller(_NEW, controller_quorum_auto_join_enable="true")
        cluster.world.run_until(lambda: _NEW in cluster.started, 30)
        await_voters(cluster, *CONTROLLERS, _NEW)
        assert cluster.image(_NEW).topic(TopicName("t")) is not None
        # Three of four are a majority, and two are not: without the new one there would be none.
        first = cluster.await_active()
        cluster.kill(first)
        assert cluster.await_active() != first
        other = next(id for id in CONTROLLERS if id not in (first, cluster.await_active()))
        cluster.kill(other)
        cluster.start(first)
        cluster.world.run_until(lambda: first in cluster.started, 30)
        create_by_the_rest(cluster)


def create_by_the_rest(cluster: SimulatedCluster) -> None:
    """Have something committed by a majority of which the new voter is one."""

    async def program(admin: Admin) -> None:
        assert TopicName("t") in await admin.list_topics()
        (await admin.delete_topics(["t"])).ok()

    cluster.ask(program)
    cluster.world.run_until(lambda: cluster.image(_NEW).topic(TopicName("t")) is None, 10)


def test_a_controller_that_is_not_to_join_observes() -> None:
    """R110: off by default, as in Kafka; an operator adds it."""
    with SimulatedCluster(32, DYNAMIC) as cluster:
        cluster.await_started()
        cluster.add_controller(_NEW)
        cluster.world.run_until(lambda: _NEW in cluster.started, 30)
        cluster.world.run_for(20)
        await_voters(cluster, *CONTROLLERS)


def test_a_voter_on_a_new_machine_takes_the_place_of_its_old_directory() -> None:
    """R110: first the old directory is removed, then the new one is added."""
    with SimulatedCluster(33, DYNAMIC) as cluster:
        cluster.await_started()
        create_topic(cluster)
        active = cluster.await_active()
        before = cluster.voters(active)
        lost = next(id for id in CONTROLLERS if id != active)
        cluster.kill(lost)
        cluster.replace(lost)
        cluster.configure(lost, controller_quorum_auto_join_enable="true")
        cluster.start(lost)
        seen: list[frozenset[int]] = []

        def has_joined_again() -> bool:
            now = cluster.voters(active)
            if frozenset(now) not in seen:
                seen.append(frozenset(now))
            return set(now) == set(before) and now[lost] != before[lost]

        cluster.world.run_until(has_joined_again, 60)
        assert seen == [frozenset(CONTROLLERS), frozenset(CONTROLLERS) - {lost}]
        cluster.await_started()
        await_voters(cluster, *CONTROLLERS)
        cluster.world.run_until(lambda: cluster.image(lost).topic(TopicName("t")) is not None, 10)
