"""A coordinator answers when what it has decided is committed, or says that it is not known to be.

The partition of the coordinator's topic has a second replica in sync, which a test moves by hand.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId
from dohle.server.node import Node
from dohle.server.partitions.partitions import Partition
from tests.server.faults import until
from tests.server.handlers.offsets import commit, find_coordinator
from tests.server.net.connected import turns
from tests.server.wire import Wire, create_topic, running_node
from tests.storage.logs import data

FOLLOWER = BrokerId(2)
ONE_SHARD = {"offsets.topic.num.partitions": "1"}
AT = ("t", 0)


def follow(node: Node) -> Partition:
    """Give the group coordinator's partition a follower."""
    partition = node.broker.partitions.get("__consumer_offsets", 0)
    assert partition is not None
    members = (partition.image.leader, FOLLOWER)
    image = replace(partition.image, replicas=members, isr=members, partition_epoch=1_000)
    partition.follow(image)
    return partition


def fetch(node: Node, partition: Partition) -> None:
    """Have the follower get everything."""
    node.broker.commits.fetched(partition, FOLLOWER, partition.log.log_end_offset, 0)


@pytest.mark.parametrize("before", [0, 3])
def test_an_offset_commit_is_answered_when_the_follower_has_it(tmp_path: Path, before: int) -> None:
    """By the slow path, and by the shortcut that the commits before have taught."""

    async def run() -> None:
        async with running_node(tmp_path, ONE_SHARD) as node, await Wire.connect(node) as wire:
            await create_topic(wire, "t")
            await find_coordinator(node, wire, "g")
            for offset in range(before):
                assert await commit(node, wire, {AT: offset}) == {AT: ErrorCode.NONE}
            partition = follow(node)
            end_offset = partition.log.log_end_offset
            answered = asyncio.create_task(commit(node, wire, {AT: 9}))
            await until(lambda: partition.log.log_end_offset > end_offset)
            await turns(10)
            assert not answered.done()
            fetch(node, partition)
            assert await answered == {AT: ErrorCode.NONE}

    asyncio.run(run())


@pytest.mark.parametrize("before", [0, 3])
def test_an_offset_commit_that_is_not_committed_in_time_is_told_so(
    tmp_path: Path, before: int
) -> None:
    config = {**ONE_SHARD, "offsets.commit.timeout.ms": "20"}

    async def run() -> None:
        async with running_node(tmp_path, config) as node, await Wire.connect(node) as wire:
            await create_topic(wire, "t")
            await find_coordinator(node, wire, "g")
            for offset in range(before):
                assert await commit(node, wire, {AT: offset}) == {AT: ErrorCode.NONE}
            partition = follow(node)
            assert await commit(node, wire, {AT: 9}) == {AT: ErrorCode.COORDINATOR_NOT_AVAILABLE}
            # It is in the log, and counts when it is committed after all.
            fetch(node, partition)
            assert await commit(node, wire, {AT: 10}) == {AT: ErrorCode.COORDINATOR_NOT_AVAILABLE}
            fetch(node, partition)
            await until(lambda: partition.log.high_watermark == partition.log.log_end_offset)

    asyncio.run(run())


def test_who_waits_for_a_coordinator_that_loses_its_partition_is_sent_away(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_node(tmp_path, ONE_SHARD) as node, await Wire.connect(node) as wire:
            await create_topic(wire, "t")
            await find_coordinator(node, wire, "g")
            partition = follow(node)
            end_offset = partition.log.log_end_offset
            answered = asyncio.create_task(commit(node, wire, {AT: 9}))
            await until(lambda: partition.log.log_end_offset > end_offset)
            await turns(10)
            node.broker.groups.resign(0)
            assert await answered == {AT: ErrorCode.NOT_COORDINATOR}

    asyncio.run(run())


def test_h19_foreign_records_do_not_commit_what_was_cut_off(tmp_path: Path) -> None:
    """KAFKA-20634: the log is another leader's, and has grown, before the coordinator hears of it.

    Its high watermark passes the offset of a commit that is gone, and nobody is told that it is
    committed.
    """

    async def run() -> None:
        async with running_node(tmp_path, ONE_SHARD) as node, await Wire.connect(node) as wire:
            await create_topic(wire, "t")
            await find_coordinator(node, wire, "g")
            partition = follow(node)
            end_offset = partition.log.log_end_offset
            answered = asyncio.create_task(commit(node, wire, {AT: 9}))
            await until(lambda: partition.log.log_end_offset > end_offset)
            await turns(10)
            image = partition.image
            epoch = image.leader_epoch + 1
            changed = replace(image, leader=FOLLOWER, leader_epoch=epoch, partition_epoch=1_001)
            partition.follow(changed)
            partition.log.truncate_to(end_offset)
            for number in range(3):
                foreign = data(base_offset=end_offset + number, leader_epoch=epoch)
                partition.log.append_as_follower(foreign, epoch)
            node.broker.commits.replicated(partition, end_offset + 3, 0)
            # What was appended in the same turn of the loop is written now.
            node.broker.commits.write([partition])
            await turns(10)
            node.broker.groups.resign(0)
            assert await answered == {AT: ErrorCode.NOT_COORDINATOR}

    asyncio.run(run())
