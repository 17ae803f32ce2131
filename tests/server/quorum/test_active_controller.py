"""Active and standby: what is decided, when it is answered, and what a lost leadership means."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, TopicName
from dohle.metadata.decision import RECORDS_PER_REQUEST_MAX, Decision, VersionedRecord
from dohle.metadata.delta import Delta
from dohle.metadata.image import ClusterImage
from dohle.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from dohle.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from dohle.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from dohle.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)
from dohle.protocol.messages.records.cluster_metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
)
from dohle.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from dohle.protocol.schema import Request
from dohle.raft.values import LeaderAndEpoch
from dohle.server.quorum.commands import COMMANDS, Command, CommandTurn
from tests.server.quorum.scripted import OTHER, OWN, Scene, create, play, settle


def code(task: asyncio.Task[CreateTopicsResponse]) -> int:
    return task.result().topics[0].error_code


def delete(name: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=(DeleteTopicState(name=TopicName(name)),))


async def with_brokers(scene: Scene, count: int = 1) -> None:
    await scene.lead()
    for broker_id in range(1, count + 1):
        await scene.start_broker(broker_id)


def test_a_standby_refuses_changes_and_reads_on() -> None:
    """A1: 41 for what would change something; the image follows the leader."""

    async def scenario(scene: Scene) -> None:
        await scene.quorum.elect(OTHER)
        level = FeatureLevelRecord(name="metadata.version", feature_level=29)
        await scene.quorum.follow(level)
        assert scene.images.image.metadata_version == 29
        assert not scene.controller.is_active
        reply = await scene.controller.send(create("t"), CreateTopicsResponse)
        assert reply.topics[0].error_code == ErrorCode.NOT_CONTROLLER
        assert "node 2" in (reply.topics[0].error_message or "")
        partition = DescribeQuorumRequestPartitionData(partition_index=0)
        topic = DescribeQuorumRequestTopicData(
            topic_name=TopicName("__cluster_metadata"), partitions=(partition,)
        )
        asked = DescribeQuorumRequest(topics=(topic,))
        described = await scene.controller.send(asked, DescribeQuorumResponse)
        assert described.error_code == 0
        told = described.topics[0].partitions[0]
        assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    play(scenario)


def test_commands_are_decided_on_what_is_not_committed_yet_and_answered_when_it_is() -> None:
    """A3: each on the state after the one before; answers wait for their own offset."""

    async def scenario(scene: Scene) -> None:
        await with_brokers(scene)
        first, again, second = scene.create("a"), scene.create("a"), scene.create("b")
        await settle()
        assert len(scene.quorum.appended) == 2
        assert not any(task.done() for task in (first, again, second))
        assert scene.images.image.topic(TopicName("a")) is None
        await scene.quorum.commit(1)
        assert (code(first), code(again)) == (0, ErrorCode.TOPIC_ALREADY_EXISTS)
        assert not second.done()
        await scene.quorum.commit(1)
        assert code(second) == 0
        assert list(scene.images.image.topics) == ["a", "b"]

    play(scenario)


def test_a_refusal_waits_for_what_it_is_based_on() -> None:
    """A3: without records it is answered when everything before it is stable."""

    async def scenario(scene: Scene) -> None:
        await with_brokers(scene)
        created = scene.create("a")
        refused = scene.create("a")
        await settle()
        assert not refused.done()
        await scene.quorum.elect(OTHER)
        # That "a" exists may have become untrue.
        assert code(created) == code(refused) == ErrorCode.NOT_CONTROLLER

    play(scenario)


def test_what_was_not_committed_is_forgotten_with_the_leadership() -> None:
    """A4: pending requests get 41, and the next claim begins with the committed state."""

    async def scenario(scene: Scene) -> None:
        await with_brokers(scene)
        lost, kept = scene.create("lost"), scene.create("kept")
        await settle()
        await scene.quorum.elect(OTHER)
        assert code(lost) == code(kept) == ErrorCode.NOT_CONTROLLER
        await scene.quorum.elect(OWN)
        again = scene.create("lost")
        await settle()
        await scene.quorum.commit()
        assert code(again) == 0
        assert list(scene.images.image.topics) == ["lost"]

    play(scenario)


def test_what_a_lost_leader_has_written_may_be_committed_by_the_next() -> None:
    async def scenario(scene: Scene) -> None:
        await with_brokers(scene)
        kept, lost = scene.create("kept"), scene.create("lost")
        await settle()
        await scene.quorum.elect(OTHER, kept=1)
        await scene.quorum.commit()
        assert code(kept) == code(lost) == ErrorCode.NOT_CONTROLLER
        assert list(scene.images.image.topics) == ["kept"]
        await scene.quorum.elect(OWN)
        again = scene.create("kept")
        await settle()
        assert code(again) == ErrorCode.TOPIC_ALREADY_EXISTS

    play(scenario)


def decided_by(
    monkeypatch: pytest.MonkeyPatch,
    decide: Callable[[CommandTurn, Any], Decision[CreateTopicsResponse]],
) -> None:
    """Have CreateTopics decided by something else."""
    known = COMMANDS[CreateTopicsRequest]
    changed: dict[type[Request], Command] = dict(COMMANDS)
    changed[CreateTopicsRequest] = replace(known, decide=decide)
    monkeypatch.setattr("dohle.server.quorum.controller.COMMANDS", changed)


def test_a_command_that_is_under_way_when_the_leadership_is_lost_is_not_carried_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A5: raft's NotLeader is 41, even before the controller has been told."""

    async def scenario(scene: Scene) -> None:
        await with_brokers(scene)

        def interrupted(turn: CommandTurn, request: Any) -> Decision[CreateTopicsResponse]:
            scene.quorum.leader = LeaderAndEpoch(OTHER, scene.quorum.leader.epoch + 1)
            return Decision((VersionedRecord(NoOpRecord(), 0),), CreateTopicsResponse())

        decided_by(monkeypatch, interrupted)
        reply = await scene.controller.send(create("t"), CreateTopicsResponse)
        assert reply.topics[0].error_code == ErrorCode.NOT_CONTROLLER
        assert not scene.quorum.appended

    play(scenario)


def test_an_unexpected_error_is_answered_and_lets_another_controller_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A5: -1 and failover."""

    async def scenario(scene: Scene) -> None:
        await with_brokers(scene)

        def fails(turn: CommandTurn, request: Any) -> Decision[CreateTopicsResponse]:
            raise ZeroDivisionError

        decided_by(monkeypatch, fails)
        reply = await scene.controller.send(create("t"), CreateTopicsResponse)
        assert reply.topics[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert scene.quorum.resigned == [scene.quorum.leader.epoch]
        assert not scene.fatal

    play(scenario)


def test_records_that_must_be_together_are_at_most_10000() -> None:
    """A5, R80: more of them are refused with 44, or split up if they need not be together."""

    async def scenario(scene: Scene) -> None:
        await with_brokers(scene)
        config = ConfigRecord(resource_type=2, resource_name="t", name="n", value="v")
        many = [VersionedRecord(config, 0)] * (RECORDS_PER_REQUEST_MAX + 1)
        with pytest.raises(KafkaError) as refused:
            await scene.controller.write(many)
        assert refused.value.code is ErrorCode.POLICY_VIOLATION
        assert not scene.quorum.appended
        apart = Decision(tuple(many), None, is_atomic=False)
        written = asyncio.ensure_future(scene.controller._carry_out(lambda _: apart))
        await asyncio.sleep(1)
        sizes = [len(batch.records) for batch in scene.quorum.appended]
        assert sizes == [RECORDS_PER_REQUEST_MAX, 1]
        await scene.quorum.commit()
        await written

    play(scenario, {"metadata.max.idle.interval.ms": "0"})


def test_a_request_waits_for_its_turn_only_so_long() -> None:
    """A6: the request's own time for topics, half an interval for heartbeats; then 7."""

    async def scenario(scene: Scene) -> None:
        await with_brokers(scene)
        epoch = scene.images.image.brokers[BrokerId(1)].epoch
        async with scene.controller._turn:
            late = scene.create("late", timeout_ms=500)
            patient = scene.create("patient", timeout_ms=5_000)
            beat = scene.begin(scene.beat(1, epoch), BrokerHeartbeatResponse)
            deleting = scene.begin(delete("t"), DeleteTopicsResponse)
            await asyncio.sleep(0.9)
            assert late.done()
            assert not beat.done()
            await asyncio.sleep(0.2)
            assert beat.result().error_code == ErrorCode.REQUEST_TIMED_OUT
            assert not patient.done()
        assert code(late) == ErrorCode.REQUEST_TIMED_OUT
        await settle()
        await scene.quorum.commit()
        assert code(patient) == 0
        await deleting

    play(scenario)


def test_a_closing_controller_answers_what_it_has_begun_and_nothing_else() -> None:
    """A5: 7 for what comes too late."""

    async def scenario(scene: Scene) -> None:
        await with_brokers(scene)
        begun = scene.create("begun")
        await settle()
        closing = asyncio.ensure_future(scene.controller.close())
        late = scene.create("late")
        await settle()
        assert not closing.done()
        await scene.quorum.commit()
        await closing
        assert (code(begun), code(late)) == (0, ErrorCode.REQUEST_TIMED_OUT)

    play(scenario)


def test_a_controller_that_loses_its_leadership_while_it_closes_closes_all_the_same() -> None:
    async def scenario(scene: Scene) -> None:
        await with_brokers(scene)
        begun = scene.create("begun")
        await settle()
        closing = asyncio.ensure_future(scene.controller.close())
        await settle()
        await scene.quorum.elect(OTHER)
        await closing
        assert code(begun) == ErrorCode.NOT_CONTROLLER

    play(scenario)


def test_a_new_log_begins_with_a_transaction_and_nothing_is_decided_before() -> None:
    """A2, R83: activation records come first, also before what is in the queue."""

    async def scenario(scene: Scene) -> None:
        electing = asyncio.ensure_future(scene.quorum.elect(OWN))
        await asyncio.sleep(0)
        await electing
        await scene.quorum.commit()
        first = [record for batch in scene.quorum.committed for record in batch.records]
        assert isinstance(first[0], BeginTransactionRecord)
        assert isinstance(first[-1], EndTransactionRecord)

    play(scenario)


def test_h26_a_bootstrap_that_is_lost_with_the_leadership_is_written_again() -> None:
    """KAFKA-20839: the first activation, of which nothing was committed, then another one."""

    async def scenario(scene: Scene) -> None:
        for _ in range(2):
            await scene.quorum.elect(OWN)
            await settle()
            assert not any(batch.records for batch in scene.quorum.committed)
            await scene.quorum.elect(OTHER)
            assert scene.images.image.metadata_version is None
        await scene.lead()
        written = [record for batch in scene.quorum.committed for record in batch.records]
        assert [type(each) for each in written].count(BeginTransactionRecord) == 1
        assert isinstance(written[0], BeginTransactionRecord)
        assert isinstance(written[-1], EndTransactionRecord)
        assert scene.images.image.metadata_version == 29

    play(scenario)


def test_a_transaction_that_a_controller_left_open_is_aborted() -> None:
    """R83: Abort first; with no metadata.version the bootstrap begins again."""

    async def scenario(scene: Scene) -> None:
        await scene.quorum.elect(OTHER)
        await scene.quorum.follow(
            BeginTransactionRecord(name="Bootstrap records"),
            FeatureLevelRecord(name="metadata.version", feature_level=20),
        )
        assert scene.images.image.metadata_version is None
        await scene.lead()
        written = [record for batch in scene.quorum.committed for record in batch.records][2:]
        assert isinstance(written[0], AbortTransactionRecord)
        assert isinstance(written[1], BeginTransactionRecord)
        assert scene.images.image.metadata_version == 29

    play(scenario)


def test_answers_wait_until_a_transaction_ends() -> None:
    """R82: stable is what is committed and not within an open transaction."""

    async def scenario(scene: Scene) -> None:
        await with_brokers(scene)
        begin = VersionedRecord(BeginTransactionRecord(name="t"), 0)
        end = VersionedRecord(EndTransactionRecord(), 0)
        begun = asyncio.ensure_future(scene.controller.write([begin]))
        await settle()
        await scene.quorum.commit()
        assert not begun.done()
        ended = asyncio.ensure_future(scene.controller.write([end]))
        await settle()
        await scene.quorum.commit()
        await asyncio.gather(begun, ended)

    play(scenario)


def test_batches_of_the_quorum_itself_do_not_disturb() -> None:
    """R86: control batches take offsets; several commands may share a batch (R80)."""

    async def scenario(scene: Scene) -> None:
        await with_brokers(scene)
        told: list[str] = []

        async def on_image(_: ClusterImage, delta: Delta) -> None:
            told.extend(topic.name for topic in delta.created_topics)

        scene.images.subscribe(on_image)
        scene.quorum.write_control()
        one = scene.create("one")
        await settle()
        scene.quorum.write_control()
        await scene.quorum.commit()
        assert code(one) == 0
        two, three = scene.create("two"), scene.create("three")
        await settle()
        await scene.quorum.commit(together=True)
        assert code(two) == code(three) == 0
        assert told == ["one", "three", "two"]

    play(scenario)


def test_a_quorum_that_fails_ends_everything() -> None:
    """R5: whoever waits is told, and the node stops."""

    async def scenario(scene: Scene) -> None:
        await with_brokers(scene)
        waiting = scene.create("t")
        await settle()
        scene.controller.on_failure("the disk is gone")
        await settle()
        assert code(waiting) == ErrorCode.KAFKA_STORAGE_ERROR
        assert scene.fatal == ["the disk is gone"]
        reply = await scene.controller.send(create("u"), CreateTopicsResponse)
        assert reply.topics[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        with pytest.raises(KafkaError):
            await scene.controller.close()

    play(scenario)


@pytest.mark.parametrize("validate_only", [False, True])
def test_kraft_version_is_raised_by_the_quorum_and_answered_by_a_record_behind(
    validate_only: bool,
) -> None:
    """R112: a NoOp whose commit answers; the quorum may refuse, also when it is only asked."""
    update = FeatureUpdateKey(feature="kraft.version", max_version_level=1)
    request = UpdateFeaturesRequest(feature_updates=(update,), validate_only=validate_only)

    async def scenario(scene: Scene) -> None:
        await scene.lead()
        scene.quorum.refusal = KafkaError(ErrorCode.INVALID_UPDATE_VERSION, "voter 2 is too old")
        refused = await scene.send(request, UpdateFeaturesResponse)
        assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert (refused.error_message or "").endswith("had an error: voter 2 is too old")
        scene.quorum.refusal = None
        raising = scene.begin(request, UpdateFeaturesResponse)
        await settle()
        written = [batch.records for batch in scene.quorum.appended]
        assert written == ([] if validate_only else [(), [NoOpRecord()]])
        assert raising.done() == validate_only
        await scene.quorum.commit()
        assert (await raising).error_code == 0
        assert scene.quorum.kraft_version == int(not validate_only)

    play(scenario)


def test_a_heartbeat_of_a_stranger_is_answered_as_stale() -> None:
    """A40: not registered → 77."""

    async def scenario(scene: Scene) -> None:
        await scene.lead()
        request = BrokerHeartbeatRequest(broker_id=BrokerId(9), broker_epoch=1)
        reply = await scene.send(request, BrokerHeartbeatResponse)
        assert reply.error_code == ErrorCode.STALE_BROKER_EPOCH

    play(scenario)
