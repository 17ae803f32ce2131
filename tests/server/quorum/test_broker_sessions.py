"""Brokers that are heard of or not, and what recurs without being asked for; in virtual time."""

from __future__ import annotations

import asyncio
import logging

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, TopicName
from dohle.metadata.image import BrokerRegistration
from dohle.metadata.partition import PartitionImage
from dohle.protocol.messages.broker_heartbeat import BrokerHeartbeatResponse
from dohle.protocol.messages.broker_registration import BrokerRegistrationResponse
from dohle.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from dohle.protocol.messages.records.cluster_metadata import (
    ConfigRecord,
    NoOpRecord,
    PartitionChangeRecord,
)
from tests.metadata.cluster import registration
from tests.server.quorum.scripted import OTHER, OWN, Scene, play, settle

QUIET = {"metadata.max.idle.interval.ms": "0"}


def broker(scene: Scene, broker_id: int) -> BrokerRegistration:
    return scene.images.image.brokers[BrokerId(broker_id)]


async def pass_time(scene: Scene, seconds: float, beating: dict[int, int] | None = None) -> None:
    """Let time go by; brokers in ``beating``, with their epochs, send heartbeats each second."""
    for _ in range(round(seconds * 10)):
        await asyncio.sleep(0.1)
        await scene.quorum.commit()
        for broker_id, epoch in (beating or {}).items():
            assert (await scene.heartbeat(broker_id, epoch)).error_code == 0


async def create(scene: Scene, *replicas: int, name: str = "t") -> None:
    assignment = CreatableReplicaAssignment(
        partition_index=0, broker_ids=tuple(map(BrokerId, replicas))
    )
    topic = CreatableTopic(
        name=TopicName(name), num_partitions=-1, replication_factor=-1, assignments=(assignment,)
    )
    request = CreateTopicsRequest(topics=(topic,), timeout_ms=1_000)
    assert (await scene.send(request, CreateTopicsResponse)).topics[0].error_code == 0


def partition(scene: Scene, name: str = "t") -> PartitionImage:
    return scene.images.image.topics[TopicName(name)].partitions[0]


def test_a_broker_that_is_not_heard_of_for_9_s_is_fenced() -> None:
    """A43, A7: after the session, found within an eighth of it; others take over."""

    async def scenario(scene: Scene) -> None:
        await scene.lead()
        epochs = {each: await scene.start_broker(each) for each in (2, 3)}
        await create(scene, 2, 3)
        await pass_time(scene, 8.8, {3: epochs[3]})
        assert not broker(scene, 2).fenced
        await pass_time(scene, 1.5, {3: epochs[3]})
        assert broker(scene, 2).fenced
        assert not broker(scene, 3).fenced
        assert (partition(scene).leader, partition(scene).isr) == (3, (3,))
        # It is as good as ever once it is heard of again.
        assert not (await scene.heartbeat(2, epochs[2])).is_fenced

    play(scenario, QUIET)


def test_several_silent_brokers_are_fenced_one_after_the_other() -> None:
    """A7: one a run, and the next after 10 ms."""

    async def scenario(scene: Scene) -> None:
        await scene.lead()
        for each in (2, 3, 4):
            await scene.start_broker(each)
        await asyncio.sleep(12)
        (first,) = scene.quorum.appended
        assert len(first.records) == 1
        await scene.quorum.commit()
        for _ in range(2):
            await asyncio.sleep(0.02)
            assert len(scene.quorum.appended) == 1
            await scene.quorum.commit()
        assert all(broker(scene, each).fenced for each in (2, 3, 4))

    play(scenario, QUIET)


def test_a_heartbeat_counts_from_its_arrival_even_if_it_is_never_carried_out() -> None:
    """A40: contact is noted before the queue; 7 after the deadline."""

    async def scenario(scene: Scene) -> None:
        await scene.lead()
        epoch = await scene.start_broker(2)
        await asyncio.sleep(8)
        async with scene.controller._turn:
            reply = await scene.controller.send(scene.beat(2, epoch), BrokerHeartbeatResponse)
            assert reply.error_code == ErrorCode.REQUEST_TIMED_OUT
        await pass_time(scene, 7)
        assert not broker(scene, 2).fenced
        await pass_time(scene, 2.5)
        assert broker(scene, 2).fenced

    play(scenario, QUIET)


def test_a_new_controller_takes_brokers_that_are_not_fenced_for_alive() -> None:
    """A2: contact now for the unfenced, none for the fenced."""

    async def scenario(scene: Scene) -> None:
        await scene.lead()
        await scene.start_broker(2)
        await asyncio.sleep(8)
        await scene.quorum.elect(OTHER)
        await scene.quorum.elect(OWN)
        await pass_time(scene, 8)
        assert not broker(scene, 2).fenced
        again = registration(2, incarnation=2)
        refused = await scene.send(again, BrokerRegistrationResponse)
        assert refused.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
        await pass_time(scene, 2.5)
        assert broker(scene, 2).fenced
        await scene.quorum.elect(OTHER)
        await scene.quorum.elect(OWN)
        taken = await scene.send(again, BrokerRegistrationResponse)
        assert taken.error_code == 0, "its session is not that of a fenced one"

    play(scenario, QUIET)


def test_a_second_broker_of_an_id_is_refused_and_told_of_while_the_first_is_alive(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A30, A36: 101 within 9 s of a heartbeat; before the first one there is no session."""

    async def scenario(scene: Scene) -> None:
        await scene.lead()
        first = await scene.send(registration(2), BrokerRegistrationResponse)
        second = await scene.send(registration(2, incarnation=2), BrokerRegistrationResponse)
        assert (first.error_code, second.error_code) == (0, 0)
        await scene.heartbeat(2, second.broker_epoch)
        third = registration(2, incarnation=3)
        with caplog.at_level(logging.WARNING, "dohle.server"):
            refused = await scene.send(third, BrokerRegistrationResponse)
        assert refused.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
        assert "Another broker 2 is alive" in caplog.text
        # The same one may register as often as it likes (A33).
        again = await scene.send(registration(2, incarnation=2), BrokerRegistrationResponse)
        assert (again.error_code, again.broker_epoch) == (0, second.broker_epoch)
        await pass_time(scene, 9.2)
        assert (await scene.send(third, BrokerRegistrationResponse)).error_code == 0

    play(scenario, QUIET)


def test_a_broker_that_was_let_go_registers_again_at_once() -> None:
    """A36: it has no session any more; one that was merely killed has it for 9 s."""

    async def scenario(scene: Scene) -> None:
        await scene.lead()
        epochs = {each: await scene.start_broker(each) for each in (2, 3)}
        leave = await scene.send(
            scene.beat(2, epochs[2]).replace(want_shut_down=True), BrokerHeartbeatResponse
        )
        assert leave.should_shut_down
        assert broker(scene, 2).fenced
        again, killed = [
            await scene.send(registration(each, incarnation=2), BrokerRegistrationResponse)
            for each in (2, 3)
        ]
        assert again.error_code == 0
        assert again.broker_epoch > epochs[2]
        assert killed.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION

    play(scenario, QUIET)


def test_a_registration_that_nobody_ever_heard_of_is_not_fenced_twice() -> None:
    """A fenced broker that stays away leads to nothing."""

    async def scenario(scene: Scene) -> None:
        await scene.lead()
        assert (await scene.send(registration(2), BrokerRegistrationResponse)).error_code == 0
        await asyncio.sleep(30)
        assert not scene.quorum.appended

    play(scenario, QUIET)


@pytest.mark.parametrize(("voters", "expected"), [(3, 20), (1, 0)])
def test_the_log_moves_when_nothing_happens_and_somebody_reads_it(
    voters: int, expected: int
) -> None:
    """A7, A45: a NoOp each 500 ms; none if this node is the only one."""

    async def scenario(scene: Scene) -> None:
        await scene.lead()
        before = len(scene.quorum.committed)
        await pass_time(scene, 10)
        written = scene.quorum.committed[before:]
        assert all(batch.records == [NoOpRecord()] for batch in written)
        # Each takes until the next commit, which is up to 0.1 s here.
        assert expected - 5 <= len(written) <= expected if expected else not written

    play(scenario, voters=voters)


def test_nothing_recurs_at_a_controller_that_is_not_active_any_more() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.lead()
        await scene.start_broker(2)
        await scene.quorum.elect(OTHER)
        await asyncio.sleep(700)
        assert not scene.quorum.appended

    play(scenario)


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_first_replicas_lead_again_after_a_while(enabled: str) -> None:
    """C18, A7: each leader.imbalance.check.interval.seconds, if that is enabled."""

    async def scenario(scene: Scene) -> None:
        await scene.lead()
        epochs = {each: await scene.start_broker(each) for each in (2, 3)}
        await create(scene, 2, 3)
        topic_id = scene.images.image.topics[TopicName("t")].id
        change = PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=BrokerId(3))
        await scene.quorum.elect(OTHER)
        await scene.quorum.follow(change)
        await scene.quorum.elect(OWN)
        await pass_time(scene, 9, epochs)
        assert partition(scene).leader == 3
        await pass_time(scene, 2, epochs)
        assert partition(scene).leader == (2 if enabled == "true" else 3)

    properties = {
        **QUIET,
        "auto.leader.rebalance.enable": enabled,
        "leader.imbalance.check.interval.seconds": "10",
    }
    play(scenario, properties)


def test_a_topic_that_allows_it_has_an_unclean_leader_after_a_while() -> None:
    """A7, C15: leaderless partitions are looked at each unclean.leader.election.interval.ms."""

    async def scenario(scene: Scene) -> None:
        await scene.lead()
        epochs = {each: await scene.start_broker(each) for each in (2, 3)}
        await create(scene, 2, 3)
        await create(scene, 2, 3, name="clean")
        await scene.quorum.elect(OTHER)
        for topic in scene.images.image.topics.values():
            isr = (BrokerId(2),)
            change = PartitionChangeRecord(partition_id=0, topic_id=topic.id, isr=isr)
            await scene.quorum.follow(change.replace(leader=BrokerId(-1)))
        await scene.quorum.elect(OWN)
        epochs = {3: epochs[3]}
        await pass_time(scene, 11, epochs)
        assert broker(scene, 2).fenced
        unclean = ConfigRecord(
            resource_type=2,
            resource_name="t",
            name="unclean.leader.election.enable",
            value="true",
        )
        await scene.quorum.elect(OTHER)
        await scene.quorum.follow(unclean)
        await scene.quorum.elect(OWN)
        await pass_time(scene, 19, epochs)
        assert partition(scene).leader == -1
        await pass_time(scene, 2, epochs)
        assert (partition(scene).leader, partition(scene, "clean").leader) == (3, -1)

    play(scenario, {**QUIET, "unclean.leader.election.interval.ms": "20000"})


def test_the_broker_of_this_process_is_never_silent() -> None:
    """It runs as long as its controller does, and a former life of it is gone for sure."""

    async def scenario(scene: Scene) -> None:
        await scene.lead()
        await scene.start_broker(OWN)
        await asyncio.sleep(30)
        await settle()
        assert not broker(scene, OWN).fenced
        await scene.quorum.elect(OTHER)
        await scene.quorum.elect(OWN)
        again = await scene.send(registration(OWN, incarnation=2), BrokerRegistrationResponse)
        assert again.error_code == 0

    play(scenario, QUIET)
