"""Who finds which partition: the errors, their order, and what a lost replica or leadership does.

The changes of the image are written as the controller of a larger cluster would write them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, TopicName, Uuid
from dohle.metadata.decision import VersionedRecord
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from dohle.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from dohle.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from dohle.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from dohle.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from dohle.protocol.messages.records.cluster_metadata import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from dohle.server.node import Node
from dohle.server.partitions.lookup import ANY_REPLICA, NEEDS_LEADER, Asker, find_partition
from dohle.server.partitions.partitions import Partition
from tests.server.faults import until
from tests.server.handlers.offsets import find_coordinator
from tests.server.wire import (
    UnsyncedFileSystem,
    Wire,
    batch,
    create_topic,
    on_node,
    produce,
    running_node,
)

TOPIC = TopicName("orders")
OTHER = BrokerId(7)
CONSUMER, DEBUGGER = BrokerId(-1), BrokerId(-2)
NONE, NOT_LEADER = ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER
ONE_SHARD = {"offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": "1"}
FENCED, UNKNOWN = ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH


async def change(
    node: Node,
    topic: str = TOPIC,
    *,
    leader: int | None = None,
    replicas: tuple[int, ...] | None = None,
) -> None:
    """Let another broker lead, or the replicas be others. A new leader begins a new epoch."""
    image = node.broker.image.topic(TopicName(topic))
    assert image is not None
    here = tuple(map(BrokerId, replicas)) if replicas is not None else None
    directories = None if here is None else (image.partitions[0].directories[0],) * len(here)
    record = PartitionChangeRecord(
        partition_id=0,
        topic_id=image.id,
        leader=BrokerId(-2 if leader is None else leader),
        replicas=here,
        isr=here,
        directories=directories,
    )
    await node.controller.write([VersionedRecord(record, 1)])


async def follow(node: Node, topic: str = TOPIC) -> None:
    """Let another broker lead, which has the other replica."""
    await change(node, topic, leader=OTHER, replicas=(OTHER, node.config.node_id))


async def reassign(node: Node, topic: str = TOPIC) -> None:
    """Give the partition to another broker altogether."""
    await change(node, topic, leader=OTHER, replicas=(OTHER,))


def fetch_request(offset: int = 0, wait_ms: int = 0, epoch: int = -1) -> FetchRequest:
    asked = FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=epoch
    )
    topic = FetchTopic(topic=TOPIC, partitions=(asked,))
    return FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=(topic,)
    )


async def fetch(wire: Wire, version: int = 12, **options: int) -> PartitionData:
    answer = await wire.send(fetch_request(**options), version)
    found: PartitionData = answer.responses[0].partitions[0]
    return found


async def list_offsets(wire: Wire, replica_id: BrokerId = CONSUMER, epoch: int = -1) -> ErrorCode:
    asked = ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=epoch)
    topics = (ListOffsetsTopic(name=TOPIC, partitions=(asked,)),)
    answer = await wire.send(ListOffsetsRequest(replica_id=replica_id, topics=topics))
    return ErrorCode(answer.topics[0].partitions[0].error_code)


async def epoch_end(wire: Wire, epoch: int = -1) -> ErrorCode:
    asked = OffsetForLeaderPartition(partition=0, current_leader_epoch=epoch, leader_epoch=0)
    topics = (OffsetForLeaderTopic(topic=TOPIC, partitions=(asked,)),)
    answer = await wire.send(OffsetForLeaderEpochRequest(replica_id=CONSUMER, topics=topics))
    return ErrorCode(answer.topics[0].partitions[0].error_code)


async def describe_producers(wire: Wire) -> ErrorCode:
    topics = (TopicRequest(name=TOPIC, partition_indexes=(0,)),)
    answer = await wire.send(DescribeProducersRequest(topics=topics))
    return ErrorCode(answer.topics[0].partitions[0].error_code)


async def delete_records(wire: Wire) -> ErrorCode:
    asked = DeleteRecordsPartition(partition_index=0, offset=0)
    topics = (DeleteRecordsTopic(name=TOPIC, partitions=(asked,)),)
    answer = await wire.send(DeleteRecordsRequest(topics=topics, timeout_ms=1_000))
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def on_partition(path: Path, scenario: Callable[[Node, Wire], Awaitable[None]]) -> None:
    """Run a scenario once there is a partition with a record."""

    async def ready(node: Node, wire: Wire) -> None:
        await create_topic(wire, TOPIC)
        assert (await produce(wire, TOPIC, batch(b"v"))).error_code == NONE
        await scenario(node, wire)

    on_node(path, ready)


def test_the_epoch_is_looked_at_before_the_leader_and_that_before_the_follower(
    tmp_path: Path,
) -> None:
    """F7: 3 for what the metadata does not have."""

    async def scenario(node: Node, wire: Wire) -> None:
        here = node.config.node_id

        def code(asker: Asker, epoch: int = -1, index: int = 0) -> ErrorCode:
            try:
                find_partition(node.broker, TOPIC, index, asker, epoch)
            except KafkaError as error:
                return error.code
            return NONE

        stranger, replica = Asker(True, BrokerId(9)), Asker(True, OTHER)
        assert code(NEEDS_LEADER, index=1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await change(node, replicas=(here, OTHER))
        assert [code(one, 0) for one in (NEEDS_LEADER, ANY_REPLICA, replica)] == [NONE] * 3
        assert [code(one, 1) for one in (NEEDS_LEADER, ANY_REPLICA, stranger)] == [UNKNOWN] * 3
        assert [code(stranger), code(stranger, 0)] == [NOT_LEADER, UNKNOWN]
        assert [code(Asker(True, here)), code(Asker(True, here), 0)] == [NOT_LEADER, UNKNOWN]
        await follow(node)
        assert [code(one, 0) for one in (NEEDS_LEADER, ANY_REPLICA, stranger)] == [FENCED] * 3
        assert [code(one, 1) for one in (NEEDS_LEADER, replica, stranger)] == [NOT_LEADER] * 3
        assert [code(ANY_REPLICA), code(ANY_REPLICA, 1)] == [NONE] * 2
        await change(node, replicas=(OTHER,))
        assert {
            code(one, epoch) for one in (NEEDS_LEADER, ANY_REPLICA) for epoch in (-1, 0, 9)
        } == {NOT_LEADER}

    on_partition(tmp_path, scenario)


def test_a_follower_serves_who_may_read_from_it_and_sends_others_to_the_leader(
    tmp_path: Path,
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await follow(node)
        assert (await produce(wire, TOPIC, batch(b"w"))).error_code == NOT_LEADER
        assert (await fetch(wire, 10)).error_code == NOT_LEADER
        assert (await fetch(wire, 12)).records is not None
        assert (await fetch(wire, 12, epoch=0)).error_code == FENCED
        assert [await list_offsets(wire), await list_offsets(wire, DEBUGGER)] == [NOT_LEADER, NONE]
        assert await list_offsets(wire, epoch=0) == FENCED
        assert [await epoch_end(wire), await epoch_end(wire, 0)] == [NOT_LEADER, FENCED]
        assert await describe_producers(wire) == NONE
        assert await delete_records(wire) == NOT_LEADER

    on_partition(tmp_path, scenario)


def test_a_replica_that_is_reassigned_away_takes_no_appends_and_answers_no_reads(
    tmp_path: Path,
) -> None:
    """F7: 6 for what the metadata has, and others have."""

    async def scenario(node: Node, wire: Wire) -> None:
        # Twice, so that what follows would be served by shortcuts.
        for _ in range(2):
            assert (await produce(wire, TOPIC, batch(b"v"))).error_code == NONE
            assert (await fetch(wire)).error_code == NONE
        held = node.broker.partitions.get(TOPIC, 0)
        assert held is not None
        await reassign(node)
        assert node.broker.partitions.get(TOPIC, 0) is None
        assert held.is_gone
        assert not held.is_led
        assert not held.allows_fast_check
        assert node.logs.get(held.key) is None
        assert (await produce(wire, TOPIC, batch(b"v"))).error_code == NOT_LEADER
        assert (await fetch(wire)).error_code == NOT_LEADER
        for code in (
            await list_offsets(wire),
            await epoch_end(wire),
            await describe_producers(wire),
            await delete_records(wire),
        ):
            assert code == NOT_LEADER
        # When it comes back, it begins anew.
        await change(node, leader=node.config.node_id, replicas=(node.config.node_id,))
        assert (await produce(wire, TOPIC, batch(b"v"))).base_offset == 0

    on_partition(tmp_path, scenario)


@pytest.mark.parametrize(
    ("version", "taken_away", "code"),
    [(10, follow, NOT_LEADER), (12, reassign, NOT_LEADER), (10, reassign, NOT_LEADER)],
)
def test_a_fetch_that_waits_at_a_partition_is_told_when_it_is_taken_away(
    tmp_path: Path, version: int, taken_away: Callable[[Node], Awaitable[None]], code: ErrorCode
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await wire.post(fetch_request(offset=1, wait_ms=2**31 - 1), version)
        await until(lambda: node.broker.purgatory.count == 1)
        await taken_away(node)
        answer = await wire.answer(ApiKey.FETCH, version)
        assert answer.responses[0].partitions[0].error_code == code
        assert node.broker.purgatory.count == 0

    on_partition(tmp_path, scenario)


def test_a_fetch_that_named_the_epoch_is_told_when_another_begins(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await wire.post(fetch_request(offset=1, wait_ms=2**31 - 1, epoch=0), 12)
        await until(lambda: node.broker.purgatory.count == 1)
        await follow(node)
        answer = await wire.answer(ApiKey.FETCH, 12)
        assert answer.responses[0].partitions[0].error_code == FENCED

    on_partition(tmp_path, scenario)


def test_what_was_appended_before_the_replica_went_is_answered(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        async with await Wire.connect(node) as other:
            taken, answer = await asyncio.gather(
                reassign(node), produce(other, TOPIC, batch(b"v")), return_exceptions=True
            )
        assert taken is None
        assert not isinstance(answer, BaseException)
        assert (answer.error_code, answer.base_offset) in {(NONE, 1), (NOT_LEADER, -1)}

    on_partition(tmp_path, scenario)


def test_a_coordinator_whose_partition_is_reassigned_away_resigns(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await find_coordinator(node, wire)
        assert node.broker.groups.shard(0).index == 0
        await reassign(node, "__consumer_offsets")
        with pytest.raises(KafkaError, match="does not lead"):
            node.broker.groups.shard(0)

    on_node(tmp_path, scenario, ONE_SHARD)


def test_without_a_leader_a_broker_follows_nobody_and_leads_no_more(tmp_path: Path) -> None:
    """F2, F4: leader -1 is a follower's change; F3: the next epoch begins at the end."""

    async def scenario(node: Node, wire: Wire) -> None:
        held = node.broker.partitions.get(TOPIC, 0)
        assert held is not None
        await wire.post(fetch_request(offset=1, wait_ms=2**31 - 1, epoch=0), 12)
        await until(lambda: node.broker.purgatory.count == 1)
        await change(node, leader=-1)
        answer = await wire.answer(ApiKey.FETCH, 12)
        assert answer.responses[0].partitions[0].error_code == FENCED
        assert (held.is_led, held.leader_epoch, held.is_gone) == (False, 1, False)
        assert (await produce(wire, TOPIC, batch(b"w"))).error_code == NOT_LEADER
        assert node.broker.replicas.fetchers.all == []
        await change(node, leader=node.config.node_id)
        assert (held.is_led, held.leader_epoch) == (True, 2)
        assert held.log.leader_epochs.entries[-1] == (2, 1)
        assert (await produce(wire, TOPIC, batch(b"w"))).base_offset == 1

    on_partition(tmp_path, scenario)


def test_a_coordinator_whose_partition_has_no_leader_resigns(tmp_path: Path) -> None:
    """F2, H1: also when leader is -1; with another leader epoch it begins anew."""

    async def scenario(node: Node, wire: Wire) -> None:
        await find_coordinator(node, wire)
        before = node.broker.groups.shard(0)
        await change(node, "__consumer_offsets", leader=-1)
        assert list(node.broker.groups.active()) == []
        await change(node, "__consumer_offsets", leader=node.config.node_id)
        await until(lambda: not node.broker.groups.is_loading)
        after = node.broker.groups.shard(0)
        assert after is not before
        assert (before.leader_epoch, after.leader_epoch) == (0, 2)

    on_node(tmp_path, scenario, ONE_SHARD)


class RenamingFileSystem(UnsyncedFileSystem):
    """Tells of every new name, before it is given, to whom a test has set."""

    def __init__(self) -> None:
        super().__init__()
        self.on_rename: Callable[[str], None] = lambda target: None

    def rename(self, source: str, target: str) -> None:
        """Tell, and rename."""
        self.on_rename(target)
        super().rename(source, target)


def test_a_coordinator_resigns_before_the_disk_deletes_its_replica(tmp_path: Path) -> None:
    fs, active = RenamingFileSystem(), []

    async def run() -> None:
        async with (
            running_node(tmp_path, ONE_SHARD, fs=fs) as node,
            await Wire.connect(node) as wire,
        ):
            await find_coordinator(node, wire)
            groups = node.broker.groups

            def note(target: str) -> None:
                if target.endswith("-delete"):
                    active.append([index for index, _ in groups.active()])

            assert [index for index, _ in groups.active()] == [0]
            fs.on_rename = note
            await reassign(node, "__consumer_offsets")

    asyncio.run(run())
    assert active == [[]]


def test_a_coordinator_that_has_not_resigned_yet_answers_nothing_from_what_it_knew(
    tmp_path: Path,
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await find_coordinator(node, wire)
        partition = node.broker.partitions.get("__consumer_offsets", 0)
        assert partition is not None
        partition.follow(replace(partition.image, leader=OTHER))
        assert [index for index, _ in node.broker.groups.active()] == [0]
        with pytest.raises(KafkaError, match="does not lead") as caught:
            node.broker.groups.shard(0)
        assert caught.value.code is ErrorCode.NOT_COORDINATOR

    on_node(tmp_path, scenario, ONE_SHARD)


def test_one_change_of_the_image_deletes_then_makes_partitions_then_moves_coordinators(
    tmp_path: Path,
) -> None:
    """F1, F5: the image comes first; a topic that is made anew finds nothing of the one before."""
    fs, seen = RenamingFileSystem(), []
    made_id = Uuid(bytes(15) + b"\x77")

    async def run() -> None:
        async with (
            running_node(tmp_path, ONE_SHARD, fs=fs) as node,
            await Wire.connect(node) as wire,
        ):
            await find_coordinator(node, wire)
            await create_topic(wire, TOPIC)
            assert (await produce(wire, TOPIC, batch(b"old"))).error_code == NONE
            broker = node.broker
            offsets, old = broker.image.topic(TopicName("__consumer_offsets")), partition(node)
            assert offsets is not None

            def note(target: str) -> None:
                if target.endswith("-delete"):
                    topic = broker.image.topic(TOPIC)
                    active = [index for index, _ in broker.groups.active()]
                    is_made = broker.partitions.get_by_id(made_id, 0) is not None
                    seen.append((topic is not None and topic.id == made_id, is_made, active))

            fs.on_rename = note
            here = (node.config.node_id,)
            both, level = (OTHER, node.config.node_id), offsets.partitions[0].directories[0]
            await node.controller.write(
                [
                    VersionedRecord(RemoveTopicRecord(topic_id=old.topic_id), 0),
                    VersionedRecord(TopicRecord(name=TOPIC, topic_id=made_id), 0),
                    VersionedRecord(
                        PartitionRecord(
                            partition_id=0,
                            topic_id=made_id,
                            replicas=here,
                            isr=here,
                            leader=here[0],
                            leader_epoch=0,
                            partition_epoch=0,
                            directories=old.image.directories,
                        ),
                        1,
                    ),
                    VersionedRecord(
                        PartitionChangeRecord(
                            partition_id=0,
                            topic_id=offsets.id,
                            leader=OTHER,
                            replicas=both,
                            isr=both,
                            directories=(level, level),
                        ),
                        1,
                    ),
                ]
            )
            await until(lambda: list(broker.groups.active()) == [])
            made = partition(node)
            assert (made.topic_id, made.log.log_end_offset, made.is_led) == (made_id, 0, True)

    def partition(node: Node) -> Partition:
        found = node.broker.partitions.get(TOPIC, 0)
        assert found is not None
        return found

    asyncio.run(run())
    assert seen == [(True, False, [0])]
