"""A backup of a running node: a node that is started on the copy has all that was acknowledged."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from dohle.cli.main import main
from dohle.core.ids import TopicName
from dohle.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from dohle.server.node import Node
from tests.server.handlers.offsets import commit, find_coordinator
from tests.server.metrics.scraping import get, scrape, value
from tests.server.metrics.working import fetch_request
from tests.server.transactions.transaction_wire import add, end, find, init, producer_of
from tests.server.transactions.txn_producer import PROPERTIES
from tests.server.wire import Wire, batch, create_topic, produce_request, running_node

HTTP = {"metrics.listener": "127.0.0.1:0", **PROPERTIES}
TOPIC = "orders"
PRODUCE, FETCH = 12, 12
LATEST = -1


async def back_up(node: Node, target: Path, *data: Path) -> None:
    """Run the command beside the node, as another process would."""
    assert node.metrics is not None
    arguments = ["storage", "backup", str(target), "--node", f"127.0.0.1:{node.metrics.port}"]
    for path in data:
        arguments += ["--data", str(path)]
    assert await asyncio.to_thread(main, arguments) == 0


async def end_offset(wire: Wire, topic: str, partition: int = 0) -> int:
    asked = ListOffsetsTopic(
        name=TopicName(topic),
        partitions=(ListOffsetsPartition(partition_index=partition, timestamp=LATEST),),
    )
    answer = await wire.send(ListOffsetsRequest(topics=(asked,)))
    (told,) = answer.topics[0].partitions
    assert told.error_code == 0
    return int(told.offset)


def restored(path: Path, **more: str) -> Mapping[str, str]:
    return {**HTTP, "log.dirs": str(path), **more}


def test_a_node_on_the_copy_has_records_offsets_and_configs(tmp_path: Path) -> None:
    source, target = tmp_path / "data", tmp_path / "copy"

    async def scenario() -> None:
        small = {"segment.bytes": str(1 << 20), "retention.ms": "123456789012"}
        records = batch(*[bytes(1000)] * 200)
        async with running_node(tmp_path, HTTP) as node, await Wire.connect(node) as wire:
            await create_topic(wire, TOPIC, partitions=2, configs=small)
            for _ in range(12):
                await wire.send(produce_request(TOPIC, records), PRODUCE)
            await wire.send(produce_request(TOPIC, batch(b"x"), 1), PRODUCE)
            await find_coordinator(node, wire)
            await commit(node, wire, {(TOPIC, 0): 1700})
            cluster_id = node.cluster_id
            assert len(node.broker.partitions.of_topic(TopicName(TOPIC))[0].log.segments) > 1
            await back_up(node, target, source)
            # What comes later is not in the copy, and the node has not noticed anything.
            await wire.send(produce_request(TOPIC, records), PRODUCE)
            await create_topic(wire, "later")
            assert await end_offset(wire, TOPIC) == 2600
        async with (
            running_node(tmp_path, restored(target)) as node,
            await Wire.connect(node) as wire,
        ):
            assert node.cluster_id == cluster_id
            assert set(node.broker.image.topics.keys()) >= {TOPIC}
            assert node.broker.image.topic(TopicName("later")) is None
            assert await end_offset(wire, TOPIC) == 2400
            assert await end_offset(wire, TOPIC, 1) == 1
            for offset in (0, 1100, 2399):
                answer = await wire.send(fetch_request(offset), FETCH)
                assert answer.responses[0].partitions[0].records
            values = node.broker.topic_values(TopicName(TOPIC))
            assert values.get_int("retention.ms") == 123456789012
            await find_coordinator(node, wire)
            series = await scrape(node)
            labels = {"consumergroup": "g", "topic": TOPIC, "partition": "0"}
            assert value(series, "kafka_consumergroup_lag", **labels) == 700
            await wire.send(produce_request(TOPIC, batch(b"y")), PRODUCE)
            assert await end_offset(wire, TOPIC) == 2401

    asyncio.run(scenario())


def test_transactions_are_whole_or_open_in_the_copy(tmp_path: Path) -> None:
    source, target = tmp_path / "data", tmp_path / "copy"

    async def scenario() -> None:
        async with running_node(tmp_path, HTTP) as node, await Wire.connect(node) as wire:
            await create_topic(wire, TOPIC, partitions=2)
            await find(wire)
            producer = await producer_of(wire)
            await add(wire, producer, (TOPIC, 0), (TOPIC, 1))
            await back_up(node, target, source)
            assert (await end(wire, producer)).error_code == 0
        async with (
            running_node(tmp_path, restored(target)) as node,
            await Wire.connect(node) as wire,
        ):
            await find(wire)
            # The next incarnation has the open one aborted, and goes on.
            answer = await init(wire)
            while answer.error_code:
                answer = await init(wire)
            series = await scrape(node)
            assert value(series, "dohle_partitions_with_open_transactions") == 0
            assert value(series, "dohle_transactions", state="Ongoing") == 0

    asyncio.run(scenario())


def test_a_backup_while_clients_write_has_a_prefix_of_each_partition(tmp_path: Path) -> None:
    source, target = tmp_path / "data", tmp_path / "copy"

    async def scenario() -> None:
        acknowledged = {0: 0, 1: 0}
        async with running_node(tmp_path, HTTP) as node, await Wire.connect(node) as wire:
            await create_topic(wire, TOPIC, partitions=2)

            async def write(partition: int) -> None:
                async with await Wire.connect(node) as other:
                    while True:
                        await other.send(produce_request(TOPIC, batch(b"v"), partition), PRODUCE)
                        acknowledged[partition] += 1

            writers = [asyncio.ensure_future(write(partition)) for partition in (0, 1)]
            while min(acknowledged.values()) < 20:
                await asyncio.sleep(0)
            before = dict(acknowledged)
            await back_up(node, target, source)
            after = dict(acknowledged)
            for writer in writers:
                writer.cancel()
            await asyncio.wait(writers)
        async with (
            running_node(tmp_path, restored(target)) as node,
            await Wire.connect(node) as wire,
        ):
            for partition in (0, 1):
                found = await end_offset(wire, TOPIC, partition)
                # One more may be written and not acknowledged yet.
                assert before[partition] <= found <= after[partition] + 1

    asyncio.run(scenario())


def test_several_directories_are_copied_side_by_side(tmp_path: Path) -> None:
    directories = [tmp_path / "one", tmp_path / "two"]
    target = tmp_path / "copy"

    async def scenario() -> None:
        paths = ",".join(map(str, directories))
        async with (
            running_node(tmp_path, restored(Path(paths))) as node,
            await Wire.connect(node) as wire,
        ):
            await create_topic(wire, TOPIC, partitions=4)
            for partition in range(4):
                await wire.send(produce_request(TOPIC, batch(b"v"), partition), PRODUCE)
            await back_up(node, target, *directories)
        copies = ",".join(str(target / name) for name in ("1", "2"))
        async with (
            running_node(tmp_path, restored(Path(copies))) as node,
            await Wire.connect(node) as wire,
        ):
            assert [await end_offset(wire, TOPIC, each) for each in range(4)] == [1] * 4

    asyncio.run(scenario())


def test_a_stopped_node_is_copied_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "data", tmp_path / "copy"

    async def scenario() -> None:
        async with running_node(tmp_path, HTTP) as node, await Wire.connect(node) as wire:
            await create_topic(wire, TOPIC)
            await wire.send(produce_request(TOPIC, batch(b"v")), PRODUCE)
        assert main(["storage", "backup", str(target), "--data", str(source)]) == 0
        assert "no node was using it" in capsys.readouterr().out
        async with (
            running_node(tmp_path, restored(target)) as node,
            await Wire.connect(node) as wire,
        ):
            assert await end_offset(wire, TOPIC) == 1

    asyncio.run(scenario())


def test_what_cannot_be_copied_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = tmp_path / "data", tmp_path / "copy"

    async def scenario() -> None:
        async with running_node(tmp_path, HTTP) as node:
            assert node.metrics is not None
            at = f"127.0.0.1:{node.metrics.port}"

            async def refused(*arguments: str) -> str:
                assert await asyncio.to_thread(main, ["storage", "backup", *arguments]) != 0
                return capsys.readouterr().err

            told = await refused(str(target), "--data", str(source), "--node", "127.0.0.1:1")
            assert "--node" in told
            told = await refused(str(tmp_path), "--data", str(source), "--node", at)
            assert "not empty" in told
            told = await refused(str(target), "--data", str(tmp_path), "--node", at)
            assert "meta.properties" in told
            assert not target.exists()
            answer = await get(node, "/backup-cut")
            head, *logs, tail = map(json.loads, answer.body.splitlines())
            assert head["directories"] == [str(source)]
            assert tail == {"logs": len(logs)}

    asyncio.run(scenario())
