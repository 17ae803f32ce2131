"""Nodes that go, and levels that rise, while a cluster works: A53, M8, and the traps of M11."""

from __future__ import annotations

import pytest

from dohle.client import Admin, NewTopic, ProducerConfig
from dohle.core.errors import KafkaError
from dohle.core.ids import TopicName
from dohle.metadata.metadata_version import METADATA_VERSION
from dohle.metadata.partition import NO_LEADER
from dohle.testing.simulation.world import SECOND_NS
from tests.server.replicas.stage import TOPIC, WITHIN_S, Stage, on_stage

#: Each node leads one of its partitions.
SPREAD = "spread"


def test_a53_who_is_about_to_go_copies_nothing_that_it_is_out_of_the_isr_of() -> None:
    """W1: else it would come back into the ISR, and the others would wait for a dead broker.

    While a third broker stands still nobody knows whether that has heard of the new leaders, so the
    controller does not let the broker go (A41): that is when it must not copy.
    """
    with on_stage() as stage:
        cluster, world = stage.cluster, stage.cluster.world
        spread = NewTopic(SPREAD, assignments={0: (1, 2, 3), 1: (2, 3, 1), 2: (3, 1, 2)})
        stage.run(lambda client: Admin(client).create_topics([spread]))
        stage.produce(b"a")
        stage.await_in_sync()
        world.run_until(lambda: cluster.is_in_sync(SPREAD), WITHIN_S)
        active = next(iter(cluster.nodes.values())).member.quorum.leader.leader_id
        leader = stage.leader
        others = [id for id in cluster.machines if id != leader]
        # Neither the leader nor the active controller stands still.
        still = next(id for id in others if id != active)
        (leaving,) = (id for id in others if id != still)
        node = cluster.nodes[leaving]
        replica = stage.replica(leaving)
        assert node.broker.replicas.fetchers.all
        cluster.machines[still].pause(8 * SECOND_NS)
        cluster.machines[leaving].request_stop()

        def is_leaving() -> bool:
            registered = cluster.nodes[leader].images.image.brokers[leaving]
            image = cluster.nodes[leader].images.image.partition(TopicName(TOPIC), 0)
            assert image is not None
            return registered.in_controlled_shutdown and leaving not in image.isr

        world.run_until(is_leaving, 5)
        world.run_until(lambda: not node.broker.replicas.fetchers.all, 2)
        assert cluster.machines[leaving].is_running, "the controller has not let it go"
        end = replica.log.log_end_offset
        alone = ProducerConfig(acks=1, enable_idempotence=False)
        assert stage.produce(b"b", config=alone) == [end]
        assert cluster.machines[leaving].is_running
        assert stage.replica(leader).log.log_end_offset == end + 1
        assert replica.log.log_end_offset == end
        world.run_until(lambda: not cluster.machines[leaving].is_running, WITHIN_S)
        assert cluster.nodes[leader].images.image.brokers[leaving].fenced


def raise_to(stage: Stage, level: int) -> None:
    """Finalize a metadata.version, and wait until all know."""
    features = {METADATA_VERSION: level}
    stage.run(lambda client: Admin(client).update_features(features))
    await_level(stage, level)


def await_level(stage: Stage, level: int) -> None:
    nodes = stage.cluster.nodes.values()
    stage.cluster.world.run_until(
        lambda: {node.images.image.metadata_version for node in nodes} == {level}, WITHIN_S
    )


@pytest.mark.parametrize("begin", [14, 17])
def test_m8_metadata_version_is_raised_level_by_level_while_records_are_copied(begin: int) -> None:
    """A20, A22, F11: from a level without directories or ELR to the latest, one after the other."""
    levels = (19, 21, 25, 29)
    with on_stage(metadata_version=begin) as stage:
        await_level(stage, begin)
        stage.produce(b"%d" % begin)
        stage.await_in_sync()
        for offset, level in enumerate(levels, 1):
            raise_to(stage, level)
            assert stage.produce(b"%d" % level) == [offset]
            stage.await_in_sync()
        assert stage.read() == [b"%d" % level for level in (begin, *levels)]
        with pytest.raises(KafkaError):
            raise_to(stage, begin)


def test_m11_a_replica_whose_leader_is_gone_is_a_follower_of_nobody_until_there_is_one() -> None:
    """F2, the last trap of M11: leader -1 is a change, too; what it lacks it gets later.

    The other traps are A11 (test_envelopes), A32 (test_broker_states), F11 (test_fetcher), G5
    (test_commits), G10, G13 and G20 (test_partition), C2 and C42 (test_reassignments).
    """
    short = {"min.insync.replicas": "1", "replica.lag.time.max.ms": "3000"}
    with on_stage(short) as stage:
        cluster, world = stage.cluster, stage.cluster.world
        active = next(iter(cluster.nodes.values())).member.quorum.leader.leader_id
        leader, follower = (id for id in cluster.machines if id != active)
        topic = NewTopic(SPREAD, assignments={0: (leader, follower)})
        stage.run(lambda client: Admin(client).create_topics([topic]))
        world.run_until(lambda: cluster.is_in_sync(SPREAD), WITHIN_S)
        behind = cluster.nodes[follower].broker.partitions.get(SPREAD, 0)
        assert behind is not None
        cluster.machines[follower].pause(6 * SECOND_NS)
        world.run_until(lambda: isr(stage) == (leader,), 5)
        cluster.machines[leader].request_stop()
        world.run_until(lambda: behind.image.leader == NO_LEADER, WITHIN_S)
        assert not behind.is_led
        fetchers = cluster.nodes[follower].broker.replicas.fetchers
        world.run_until(lambda: all(each.leader != leader for each in fetchers.all), 5)
        world.run_until(lambda: not cluster.machines[leader].is_running, WITHIN_S)
        assert behind.image.leader == NO_LEADER, "who was not in sync does not lead"
        cluster.start(leader)
        world.run_until(lambda: cluster.is_in_sync(SPREAD), WITHIN_S)
        assert isr(stage) == (leader, follower)


def isr(stage: Stage) -> tuple[int, ...]:
    image = stage.cluster.image(SPREAD, 0)
    return () if image is None else tuple(sorted(image.isr))
