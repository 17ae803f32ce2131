"""Starts, stops and failures of a node: what it leaves behind, and what it does not go on with."""

from __future__ import annotations

import asyncio
import errno
import shutil
import socket
import threading
from pathlib import Path

import pytest

from dohle.cli.commands.storage_format import Formatter, beginning
from dohle.cli.commands.storage_quorum import QuorumPlan
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, TopicName, Uuid
from dohle.metadata.decision import VersionedRecord
from dohle.metadata.partition import NO_LEADER
from dohle.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from dohle.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from dohle.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from dohle.protocol.messages.records.cluster_metadata import RemoveTopicRecord
from dohle.records.batch import batches
from dohle.server.host import SystemNodeHost
from dohle.server.node import Node
from dohle.storage.directory.directory import LogDirectoryInUse
from dohle.storage.directory.meta_properties import InvalidMetaProperties
from dohle.storage.files import OsFileSystem
from dohle.testing.broker import Broker
from tests.server.faults import DEADLINE_S, FaultyFileSystem, until, watched_node
from tests.server.wire import (
    UnsyncedFileSystem,
    Wire,
    batch,
    create_topic,
    node_config,
    produce,
    running_node,
)

NO_SPACE = OSError(errno.ENOSPC, "no space left on the disk")
BROKEN = OSError(errno.EIO, "the disk is broken")


class GatedFileSystem(UnsyncedFileSystem):
    """A disk whose syncs, but for those on the loop's own thread, wait at a gate."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = 0

    def sync(self) -> None:
        """Pass the gate."""
        if threading.current_thread() is not threading.main_thread() and not self.gate.is_set():
            self.waiting += 1
            assert self.gate.wait(DEADLINE_S)


def delete(*names: str) -> DeleteTopicsRequest:
    topics = tuple(DeleteTopicState(name=TopicName(name)) for name in names)
    return DeleteTopicsRequest(topics=topics, timeout_ms=1_000)


async def create_code(wire: Wire, name: str, partitions: int = 1) -> int:
    """Try to create a topic, and return the error code."""
    topic = CreatableTopic(name=TopicName(name), num_partitions=partitions, replication_factor=1)
    answer = await wire.send(CreateTopicsRequest(topics=(topic,)))
    code: int = answer.topics[0].error_code
    return code


async def values(wire: Wire, topic: str, index: int = 0) -> list[bytes | None]:
    partition = FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = (FetchTopic(topic=TopicName(topic), partitions=(partition,)),)
    answer = await wire.send(FetchRequest(min_bytes=0, max_bytes=1 << 20, topics=topics), 12)
    found = answer.responses[0].partitions[0]
    assert found.error_code == 0
    return [record.value for one in batches(found.records) for record in one.records()]


def topics_of(node: Node) -> set[str]:
    return {topic.name for topic in node.controller.image.topics.values()}


def two_directories(path: Path) -> dict[str, str]:
    """The metadata log is in the first."""
    return {"log.dirs": f"{path}/a,{path}/b"}


def test_a_stop_while_a_topic_is_being_deleted_leaves_a_node_that_starts_again(
    tmp_path: Path,
) -> None:
    fs = GatedFileSystem()

    async def run() -> None:
        async with running_node(tmp_path, fs=fs) as node:
            wire = await Wire.connect(node)
            await create_topic(wire, "gone")
            await create_topic(wire, "kept")
            assert (await produce(wire, "kept", batch(b"acknowledged"))).error_code == 0
            fs.gate.clear()
            await wire.post(delete("gone"), 6)
            await until(lambda: fs.waiting > 0)
            asyncio.get_running_loop().call_later(0.05, fs.gate.set)
        await wire.close()
        async with running_node(tmp_path) as node, await Wire.connect(node) as wire:
            assert topics_of(node) == {"kept"}
            assert await values(wire, "kept") == [b"acknowledged"]

    asyncio.run(run())


def test_a_start_without_one_of_the_disks_makes_no_empty_logs_in_place_of_those_on_it(
    tmp_path: Path,
) -> None:
    lost, aside = tmp_path / "b", tmp_path / "aside"

    async def run() -> None:
        properties = two_directories(tmp_path)
        async with running_node(tmp_path, properties) as node, await Wire.connect(node) as wire:
            await create_topic(wire, "t", 4)
            for index in range(4):
                for value in (b"1", b"2"):
                    assert (await produce(wire, "t", batch(value), index)).error_code == 0
        on_lost = {int(folder.name[2:]) for folder in lost.glob("t-*")}
        assert len(on_lost) == 2
        lost.rename(aside)
        lost.write_text("not a directory")
        async with running_node(tmp_path, properties) as node, await Wire.connect(node) as wire:
            for index in range(4):
                code = (await produce(wire, "t", batch(b"3"), index)).error_code
                assert (code != 0) == (index in on_lost)
        found = {int(folder.name[2:]) for folder in (tmp_path / "a").glob("t-*")}
        assert found == set(range(4)) - on_lost
        lost.unlink()
        aside.rename(lost)
        async with running_node(tmp_path, properties) as node, await Wire.connect(node) as wire:
            for index in range(4):
                expected = [b"1", b"2"] if index in on_lost else [b"1", b"2", b"3"]
                assert await values(wire, "t", index) == expected

    asyncio.run(run())


def test_maintenance_goes_on_though_no_snapshot_can_be_written(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    properties = {"metadata.log.max.snapshot.interval.ms": "1"}

    async def run() -> None:
        async with (
            running_node(tmp_path, properties, fs=fs) as node,
            await Wire.connect(node) as wire,
        ):
            fs.names["/__cluster_metadata-0/"] = NO_SPACE
            await create_topic(wire, "t", configs={"file.delete.delay.ms": "0"})
            before = fs.failed
            await until(lambda: fs.failed > before)
            await wire.send(delete("t"), 6)
            # Folders of deleted topics are removed by maintenance.
            await until(lambda: not list((tmp_path / "data").glob("t-*")))
            folder = tmp_path / "data" / "__cluster_metadata-0"
            snapshots = set(folder.glob("*.checkpoint"))
            fs.names.clear()
            await until(lambda: set(folder.glob("*.checkpoint")) > snapshots)
            assert node.logs.offline_directories == {}

    asyncio.run(run())


def leader_of(node: Node, topic: str, index: int) -> int:
    return node.images.image.topics[TopicName(topic)].partitions[index].leader


@pytest.mark.parametrize(
    ("order", "reasons"),
    [
        ((0,), ["metadata"]),
        ((1, 0), ["metadata"]),
        ((0, 1), ["metadata", "every log directory"]),
    ],
)
def test_the_failure_of_the_metadata_directory_or_of_the_last_one_is_fatal(
    tmp_path: Path, order: tuple[int, ...], reasons: list[str]
) -> None:
    fs = FaultyFileSystem()
    fatal: list[str] = []
    properties = two_directories(tmp_path) if len(order) == 2 else {}

    async def run() -> None:
        async with (
            watched_node(tmp_path, fatal, properties, fs=fs) as node,
            await Wire.connect(node) as wire,
        ):
            await create_topic(wire, "t", len(order))
            for index in order:
                assert index != order[-1] or len(fatal) == len(reasons) - 1
                fs.writes[f"/t-{index}/"] = NO_SPACE
                answer = await produce(wire, "t", batch(b"v"), index)
                assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
                if not fatal:
                    # The controller is told (D3), and nobody leads what was there.
                    await until(lambda: leader_of(node, "t", 1) == NO_LEADER)
            assert len(fatal) == len(reasons)
            assert all(reason in told for reason, told in zip(reasons, fatal, strict=True))

    asyncio.run(run())


def test_a_start_that_fails_leaves_neither_a_port_nor_a_lock_behind(tmp_path: Path) -> None:
    async def run(taken: int) -> None:
        properties = {
            "listeners": f"PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:{taken}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
        }
        host = SystemNodeHost(files=UnsyncedFileSystem())
        node = Node(node_config(tmp_path, properties), host=host)
        with pytest.raises(OSError, match="is another node running"):
            await node.start()
        (bound,) = node.listeners
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", bound.port), DEADLINE_S)
        async with running_node(tmp_path) as again, await Wire.connect(again) as wire:
            await create_topic(wire, "t")

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        asyncio.run(run(taken.getsockname()[1]))


def test_a_change_that_cannot_be_replayed_is_not_written(tmp_path: Path) -> None:
    """A5: an unexpected error is -1; nothing of it is in the log, so the only node goes on."""
    fatal: list[str] = []

    async def run() -> None:
        async with watched_node(tmp_path, fatal) as node, await Wire.connect(node) as wire:
            await create_topic(wire, "before")
            end_offset = node.controller.quorum.next_offset
            unknown = VersionedRecord(RemoveTopicRecord(topic_id=Uuid(b"0123456789abcdef")), 0)
            with pytest.raises(KafkaError) as refused:
                await node.controller.write([unknown])
            assert refused.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
            assert node.controller.quorum.next_offset == end_offset
            await create_topic(wire, "after")
            assert topics_of(node) == {"before", "after"}
            assert not fatal

    asyncio.run(run())


def test_nothing_is_decided_behind_a_change_that_cannot_be_published(tmp_path: Path) -> None:
    fs = FaultyFileSystem()
    fatal: list[str] = []

    async def run() -> None:
        async with (
            watched_node(tmp_path, fatal, fs=fs) as node,
            await Wire.connect(node) as wire,
        ):
            fs.names["/m-1"] = RuntimeError("nobody thought of this")
            assert await create_code(wire, "m", 3) == ErrorCode.KAFKA_STORAGE_ERROR
            fs.names.clear()
            assert await create_code(wire, "after") == ErrorCode.KAFKA_STORAGE_ERROR
            assert len(fatal) == 1
        # What is on the disk decides: the topic was committed.
        async with running_node(tmp_path) as node, await Wire.connect(node) as wire:
            assert topics_of(node) == {"m"}
            for index in range(3):
                assert (await produce(wire, "m", batch(b"v"), index)).error_code == 0

    asyncio.run(run())


def test_a_topic_deleted_while_its_directory_is_offline_can_be_created_anew(
    tmp_path: Path,
) -> None:
    fs = FaultyFileSystem()

    async def run() -> None:
        properties = two_directories(tmp_path)
        async with (
            running_node(tmp_path, properties, fs=fs) as node,
            await Wire.connect(node) as wire,
        ):
            await create_topic(wire, "t", 4)
            fs.writes[f"{tmp_path}/b/"] = BROKEN
            codes = [(await produce(wire, "t", batch(b"old"), i)).error_code for i in range(4)]
            assert set(codes) == {0, ErrorCode.KAFKA_STORAGE_ERROR}
            assert (await wire.send(delete("t"), 6)).responses[0].error_code == 0
            await create_topic(wire, "t", 4)
            for index in range(4):
                assert (await produce(wire, "t", batch(b"new"), index)).error_code == 0
                assert await values(wire, "t", index) == [b"new"]

    asyncio.run(run())


def test_deleting_many_partitions_costs_a_handful_of_syncs(tmp_path: Path) -> None:
    fs = FaultyFileSystem()

    async def run() -> None:
        async with (
            running_node(tmp_path, fs=fs) as node,
            await Wire.connect(node) as wire,
        ):
            await create_topic(wire, "t", 400)
            before = fs.syncs
            assert (await wire.send(delete("t"), 6)).responses[0].error_code == 0
            assert fs.syncs - before <= 12
            assert topics_of(node) == set()

    asyncio.run(run())


def test_the_metadata_log_may_have_a_directory_of_its_own(tmp_path: Path) -> None:
    """R66: it is locked, too, though it is no directory for data."""
    properties = {**two_directories(tmp_path), "metadata.log.dir": f"{tmp_path}/m"}

    async def run() -> None:
        for partitions in (1, 0):
            async with running_node(tmp_path, properties) as node:
                async with await Wire.connect(node) as wire:
                    if partitions:
                        await create_topic(wire, "t", 3)
                        await produce(wire, "t", batch(b"one"))
                    assert await values(wire, "t") == [b"one"]
                registration = node.controller.image.brokers[node.config.node_id]
                assert len(registration.log_dirs) == 2
                with pytest.raises(LogDirectoryInUse):
                    await Node(node_config(tmp_path, properties)).start()

    asyncio.run(run())
    assert (tmp_path / "m" / "__cluster_metadata-0").is_dir()
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == [
        ".lock",
        "__cluster_metadata-0",
        "meta.properties",
    ]
    for name in "ab":
        assert not (tmp_path / name / "__cluster_metadata-0").exists()


def test_a_node_does_not_start_with_the_metadata_directory_of_another(tmp_path: Path) -> None:
    """M4 of replication.md: cluster.id is checked in every meta.properties."""

    async def run() -> None:
        ours = {**two_directories(tmp_path), "metadata.log.dir": f"{tmp_path}/m"}
        async with running_node(tmp_path, ours):
            pass
        theirs = {**ours, "metadata.log.dir": f"{tmp_path}/n"}
        (tmp_path / "n").mkdir()
        other = "version=1\nnode.id=1\ncluster.id=another\n"
        (tmp_path / "n" / "meta.properties").write_text(other)
        with pytest.raises(InvalidMetaProperties, match=r"cluster\.id another"):
            await Node(node_config(tmp_path, theirs)).start()

    asyncio.run(run())


@pytest.mark.parametrize("beside", [False, True])
def test_a_node_does_not_begin_a_new_metadata_log_beside_its_old_one(
    tmp_path: Path, beside: bool
) -> None:
    """R66."""
    before = two_directories(tmp_path)
    after = {"log.dirs": f"{tmp_path}/b,{tmp_path}/a"}
    if beside:
        after = {**before, "metadata.log.dir": f"{tmp_path}/m"}

    async def run() -> None:
        async with running_node(tmp_path, before) as node, await Wire.connect(node) as wire:
            await create_topic(wire, "t", 2)
        with pytest.raises(InvalidMetaProperties, match=r"/a has a metadata log"):
            await Node(node_config(tmp_path, after)).start()
        async with running_node(tmp_path, before) as node:
            assert topics_of(node) == {"t"}

    asyncio.run(run())


@pytest.mark.parametrize("lost", ["m", "b"])
def test_a_node_does_not_start_with_a_disk_that_is_not_mounted(tmp_path: Path, lost: str) -> None:
    properties = {**two_directories(tmp_path), "metadata.log.dir": f"{tmp_path}/m"}
    disk, aside = tmp_path / lost, tmp_path / "aside"

    async def run() -> None:
        async with running_node(tmp_path, properties) as node, await Wire.connect(node) as wire:
            await create_topic(wire, "t", 2)
            for index in range(2):
                await produce(wire, "t", batch(b"one"), index)
            await until(lambda: not node.broker.moves._tasks)
        disk.rename(aside)
        disk.mkdir()
        for _ in range(2):
            with pytest.raises(InvalidMetaProperties, match=f"/{lost} .*no meta.properties"):
                await Node(node_config(tmp_path, properties)).start()
        assert not [path for path in disk.iterdir() if path.name != ".lock"]
        (disk / ".lock").unlink(missing_ok=True)
        disk.rmdir()
        aside.rename(disk)
        async with running_node(tmp_path, properties) as node, await Wire.connect(node) as wire:
            for index in range(2):
                assert await values(wire, "t", index) == [b"one"]

    asyncio.run(run())


def test_a_directory_can_be_added_and_one_replaced_that_was_formatted(tmp_path: Path) -> None:
    async def run() -> None:
        properties = two_directories(tmp_path)
        async with running_node(tmp_path, properties) as node, await Wire.connect(node) as wire:
            await create_topic(wire, "t", 2)
            await until(lambda: not node.broker.moves._tasks)
        more = {"log.dirs": f"{tmp_path}/a,{tmp_path}/b,{tmp_path}/c"}
        async with running_node(tmp_path, more) as node:
            assert len(node.logs.directories) == 3
            cluster_id = node.cluster_id
        (tmp_path / "b").rename(tmp_path / "aside")
        formatter = Formatter(
            OsFileSystem(),
            cluster_id,
            BrokerId(1),
            beginning(None, (), QuorumPlan(is_dynamic=False)),
        )
        formatter.format(f"{tmp_path}/b", has_metadata=False)
        async with running_node(tmp_path, more) as node:
            assert topics_of(node) == {"t"}

    asyncio.run(run())


def test_behind_the_last_command_of_a_stop_none_is_carried_out(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_node(tmp_path) as node, await Wire.connect(node) as wire:
            await create_topic(wire, "t")
            async with node.controller._turn:
                closing = asyncio.ensure_future(node.controller.close())
                await until(lambda: node.controller.waiting_count == 1)
                late = asyncio.ensure_future(
                    node.controller.send(delete("t"), DeleteTopicsResponse, 6)
                )
                await until(lambda: node.controller.waiting_count == 2)
            await closing
            assert (await late).responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        async with running_node(tmp_path) as node:
            assert topics_of(node) == {"t"}

    asyncio.run(run())


def test_a_log_that_was_not_served_goes_with_its_topic(tmp_path: Path) -> None:
    properties = {**two_directories(tmp_path), "metadata.log.dir": f"{tmp_path}/m"}
    disk, aside = tmp_path / "b", tmp_path / "aside"

    async def run() -> None:
        async with running_node(tmp_path, properties) as node, await Wire.connect(node) as wire:
            await create_topic(wire, "t", 2)
            await until(lambda: not node.broker.moves._tasks)
        (moved,) = disk.glob("t-*")
        # An older copy is found while the log itself is on a disk that is offline.
        shutil.copytree(moved, tmp_path / "a" / moved.name)
        disk.rename(aside)
        disk.write_text("not a directory")
        async with running_node(tmp_path, properties) as node, await Wire.connect(node) as wire:
            index = int(moved.name[2:])
            assert (await produce(wire, "t", batch(b"old"), index)).error_code != 0
            assert (await wire.send(delete("t"), 6)).responses[0].error_code == 0
            await create_topic(wire, "t", 2)
            assert (await produce(wire, "t", batch(b"new"), index)).error_code == 0

    asyncio.run(run())


def test_others_are_served_while_many_partitions_are_made(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_node(tmp_path) as node, await Wire.connect(node) as wire:
            await create_topic(wire, "old")
            async with await Wire.connect(node) as other, await Wire.connect(node) as third:
                making = asyncio.ensure_future(create_code(wire, "t", 600))
                await until(lambda: bool(node.broker.partitions.being_made))
                meanwhile = asyncio.ensure_future(produce(other, "old", batch(b"meanwhile")))
                too_soon = await produce(third, "t", batch(b"too soon"), 599)
                assert too_soon.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                assert (await meanwhile).error_code == 0
                assert not making.done()
                assert await making == 0
                assert not node.broker.partitions.being_made
                assert (await produce(other, "t", batch(b"now"), 599)).error_code == 0

    asyncio.run(run())


def test_a_node_that_stops_takes_no_requests_at_once_though_its_disk_is_stuck(
    tmp_path: Path,
) -> None:
    fs = GatedFileSystem()

    async def run() -> None:
        node = Node(node_config(tmp_path), host=SystemNodeHost(files=fs))
        await node.start()
        wire = await Wire.connect(node)
        await create_topic(wire, "t", 3)
        assert (await produce(wire, "t", batch(b"acknowledged"))).error_code == 0
        fs.gate.clear()
        stop = asyncio.ensure_future(node.stop())
        assert await wire.is_closed()
        with pytest.raises(ConnectionRefusedError):
            await Wire.connect(node)
        await until(lambda: fs.waiting > 0)
        assert not stop.done()
        fs.gate.set()
        await stop
        await wire.close()
        async with running_node(tmp_path) as node, await Wire.connect(node) as wire:
            assert await values(wire, "t") == [b"acknowledged"]
            assert all(one.had_clean_shutdown for one in node.logs.directories)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({}, "needs a store: set rsm.config.url"),
        ({"rsm.config.url": "ftp://x"}, "a store is file:///FOLDER"),
        ({"rsm.config.storage.backend.class": "S3Storage"}, r"set rsm.config.url to s3://BUCKET"),
        (
            {
                "rsm.config.url": "/x",
                "rlmm.config.remote.log.metadata.topic.num.partitions": "many",
            },
            "num.partitions is many: it must be a number",
        ),
    ],
)
def test_a_node_that_is_told_to_tier_but_not_where_says_so_and_does_not_start(
    tmp_path: Path, config: dict[str, str], reason: str
) -> None:
    """T2."""
    config = {"remote.log.storage.system.enable": "true", **config}
    with pytest.raises(KafkaError, match=reason) as refused:
        Broker(config, data=str(tmp_path)).start()
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert not list(tmp_path.glob("remote-log-index-cache"))
