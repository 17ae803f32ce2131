"""AlterReplicaLogDirs: replicas move between directories while clients go on."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import TopicName, TopicPartition, Uuid
from dohle.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from dohle.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from dohle.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from dohle.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
)
from dohle.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from dohle.records.batch import batches
from dohle.server.node import Node
from tests.server.faults import FaultyFileSystem, until, watched_node
from tests.server.wire import (
    Wire,
    batch,
    create_topic,
    on_node,
    produce,
    running_node,
)

KEY = TopicPartition(TopicName("t"), 0)
BROKEN = OSError(errno.EIO, "the disk is broken")

Scenario = Callable[[Node, Wire], Awaitable[None]]


def directories(path: Path) -> dict[str, str]:
    """Three of them; the metadata log is in the first."""
    return {"log.dirs": ",".join(f"{path}/{name}" for name in "abc")}


def slow_directories(path: Path) -> dict[str, str]:
    return {**directories(path), "replica.alter.log.dirs.io.max.bytes.per.second": "65536"}


def alter(path: Path | str, *keys: TopicPartition) -> AlterReplicaLogDirsRequest:
    topics = tuple(
        AlterReplicaLogDirTopic(name=key.topic, partitions=(key.partition,)) for key in keys
    )
    return AlterReplicaLogDirsRequest(dirs=(AlterReplicaLogDir(path=str(path), topics=topics),))


async def alter_code(wire: Wire, path: Path | str, key: TopicPartition = KEY) -> int:
    answer = await wire.send(alter(path, key))
    code: int = answer.results[0].partitions[0].error_code
    return code


def place(node: Node, key: TopicPartition = KEY) -> str:
    """The last part of the directory's path."""
    directory = node.logs.directory_of(key)
    assert directory is not None
    return directory.path[-1]


def assigned(node: Node, key: TopicPartition = KEY) -> Uuid:
    image = node.controller.image.partition(*key)
    assert image is not None
    return image.directories[0]


def directory_id(node: Node, name: str) -> Uuid:
    return next(d.directory_id for d in node.logs.directories if d.path.endswith(name))


def folders(path: Path, name: str) -> list[str]:
    return sorted(p.name for p in (path / name).iterdir() if p.name.startswith("t-"))


async def settled(node: Node, name: str, key: TopicPartition = KEY) -> None:
    """Wait until a replica is there, and the metadata says so."""
    await until(lambda: place(node, key) == name)
    await until(lambda: assigned(node, key) == directory_id(node, name))


async def values(wire: Wire, start: int = 0) -> list[bytes | None]:
    found: list[bytes | None] = []
    while True:
        partition = FetchPartition(partition=0, fetch_offset=start, partition_max_bytes=1 << 20)
        topics = (FetchTopic(topic=TopicName("t"), partitions=(partition,)),)
        answer = await wire.send(FetchRequest(min_bytes=0, max_bytes=1 << 20, topics=topics), 12)
        data = answer.responses[0].partitions[0]
        assert data.error_code == 0
        if not data.records:
            return found
        for one in batches(data.records):
            found += [record.value for record in one.records()]
            start = one.next_offset


async def described(wire: Wire) -> dict[str, list[DescribeLogDirsPartition]]:
    answer = await wire.send(DescribeLogDirsRequest(topics=None))
    return {
        result.log_dir[-1]: [p for topic in result.topics for p in topic.partitions]
        for result in answer.results
    }


@pytest.mark.parametrize("version", [1, 2])
def test_a_replica_moves_with_everything_in_it(tmp_path: Path, version: int) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t", configs={"segment.bytes": "1048576"})
        old = place(node)
        target = "b" if old != "b" else "c"
        sent = [b"%d" % number * 50_000 for number in range(60)]
        for value in sent:
            assert (await produce(wire, "t", batch(value))).error_code == 0
        answer = await wire.send(alter(tmp_path / target, KEY), version)
        assert answer.results[0].partitions[0].error_code == 0
        await settled(node, target)
        assert (await produce(wire, "t", batch(b"last"))).base_offset == 60
        assert await values(wire) == [*sent, b"last"]
        assert folders(tmp_path, target) == ["t-0"]
        assert all(name.endswith("-delete") for name in folders(tmp_path, old))

    on_node(tmp_path, scenario, directories(tmp_path))


def test_a_replica_is_there_after_a_restart_too(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_node(tmp_path, directories(tmp_path)) as node:
            wire = await Wire.connect(node)
            await create_topic(wire, "t")
            await produce(wire, "t", batch(b"one"))
            for target in "bcab":
                assert await alter_code(wire, tmp_path / target) == 0
                await settled(node, target)
                await produce(wire, "t", batch(target.encode()))
            await wire.close()
        async with running_node(tmp_path, directories(tmp_path)) as node:
            assert place(node) == "b"
            wire = await Wire.connect(node)
            assert await values(wire) == [b"one", b"b", b"c", b"a", b"b"]
            await wire.close()

    asyncio.run(run())


def test_the_metadata_tells_in_which_directory_a_new_replica_is(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t", 3)
        for index in range(3):
            key = TopicPartition(TopicName("t"), index)
            await settled(node, place(node, key), key)

    on_node(tmp_path, scenario, directories(tmp_path))


def test_appends_and_waiting_consumers_go_on_while_it_moves(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t", configs={"segment.bytes": "1048576"})
        sent = [b"%d" % number * 30_000 for number in range(50)]
        for value in sent:
            await produce(wire, "t", batch(value))
        async with await Wire.connect(node) as waiter:
            partition = FetchPartition(fetch_offset=1_000_000, partition_max_bytes=1 << 20)
            for target in "bca":
                assert await alter_code(wire, tmp_path / target) == 0
                while place(node) != target:
                    sent.append(b"%d" % len(sent) * 1_000)
                    assert (await produce(wire, "t", batch(sent[-1]))).error_code == 0
                end = len(sent)
                partition = FetchPartition(fetch_offset=end, partition_max_bytes=1 << 20)
                topics = (FetchTopic(topic=TopicName("t"), partitions=(partition,)),)
                request = FetchRequest(
                    min_bytes=1, max_wait_ms=10_000, max_bytes=1 << 20, topics=topics
                )
                await waiter.post(request, 12)
                await until(lambda: node.broker.purgatory.count == 1)
                following = "bca"["bca".index(target) - 2]
                assert await alter_code(wire, tmp_path / following) == 0
                await settled(node, following)
                sent.append(b"wake up")
                await produce(wire, "t", batch(sent[-1]))
                answer = await waiter.answer(FetchRequest.API_KEY, 12)
                assert answer.responses[0].partitions[0].records
        assert await values(wire) == sent

    on_node(tmp_path, scenario, directories(tmp_path))


def test_what_cannot_be_moved_is_refused(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t")
        here = tmp_path / place(node)
        assert await alter_code(wire, here) == 0
        assert await alter_code(wire, tmp_path / "d") == ErrorCode.LOG_DIR_NOT_FOUND
        assert await alter_code(wire, "b") == ErrorCode.LOG_DIR_NOT_FOUND
        nobody = TopicPartition(TopicName("nobody"), 0)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await alter_code(wire, here, nobody) == unknown
        long = TopicPartition(TopicName("t" * 249), 0)
        assert await alter_code(wire, here, long) == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert place(node) == here.name

    on_node(tmp_path, scenario, directories(tmp_path))


def test_a_replica_that_is_not_there_yet_is_made_where_it_was_wished(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        for index in range(6):
            key = TopicPartition(TopicName("t"), index)
            await alter_code(wire, tmp_path / "c", key)
        await create_topic(wire, "t", 6)
        places = {place(node, TopicPartition(TopicName("t"), index)) for index in range(6)}
        assert places == {"c"}

    on_node(tmp_path, scenario, directories(tmp_path))


def test_a_move_can_be_watched_redirected_and_called_off(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t")
        old = place(node)
        second, third = (name for name in "abc" if name != old)
        for number in range(20):
            await produce(wire, "t", batch(b"%d" % number * 60_000))
        await settled(node, old)
        assert await alter_code(wire, tmp_path / second) == 0
        found = await described(wire)
        assert [p.is_future_key for p in found[old]] == [False]
        future = found[second][0]
        assert (future.is_future_key, future.offset_lag) == (True, 20)
        await until(lambda: node.broker.moves._running[KEY].move.size > 0)
        assert (await described(wire))[second][0].partition_size > 0
        assert await alter_code(wire, tmp_path / third) == 0
        assert [p.is_future_key for p in (await described(wire))[third]] == [True]
        assert (await described(wire))[second] == []
        assert await alter_code(wire, tmp_path / old) == 0
        assert (await described(wire))[third] == []
        await until(lambda: not node.broker.moves._tasks)
        assert (place(node), assigned(node)) == (old, directory_id(node, old))
        assert folders(tmp_path, old) == ["t-0"]
        for name in (second, third):
            assert all(folder.endswith("-delete") for folder in folders(tmp_path, name))
        assert len(await values(wire)) == 20

    # A bit more than a megabyte at this rate: no move ends by itself.
    on_node(tmp_path, scenario, slow_directories(tmp_path))


@pytest.mark.parametrize("following", [0, 1])
def test_a_move_that_is_called_off_while_the_metadata_is_told_leaves_it_right(
    tmp_path: Path, following: int
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t")
        await produce(wire, "t", batch(b"one"))
        old = place(node)
        await settled(node, old)
        second, third = (name for name in "abc" if name != old)
        then = (old, third)[following]
        async with node.controller._turn:
            assert await alter_code(wire, tmp_path / second) == 0
            await until(lambda: node.broker.moves._running[KEY].is_assigned)
            # The command is in the queue.
            await until(lambda: node.controller.waiting_count == 1)
            assert await alter_code(wire, tmp_path / then) == 0
        async with node.controller._turn:
            # It has been carried out, though nobody waits for it any more.
            pass
        await until(lambda: not node.broker.moves._tasks)
        assert (place(node), assigned(node)) == (then, directory_id(node, then))

    on_node(tmp_path, scenario, directories(tmp_path))


def test_others_are_served_while_many_moves_are_begun(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "t", 300)
        keys = [TopicPartition(TopicName("t"), index) for index in range(300)]
        async with await Wire.connect(node) as other:
            begun = asyncio.ensure_future(wire.send(alter(tmp_path / "c", *keys)))
            await until(lambda: bool(node.broker.moves._running))
            assert len(node.broker.moves._running) < 200
            assert (await produce(other, "t", batch(b"meanwhile"))).error_code == 0
            codes = [p.error_code for t in (await begun).results for p in t.partitions]
            assert codes == [0] * 300
        await until(lambda: not node.broker.moves._running)
        assert {place(node, key) for key in keys} == {"c"}

    on_node(tmp_path, scenario, directories(tmp_path))


def test_a_replica_that_is_being_made_is_not_available_yet(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        async with await Wire.connect(node) as other:
            making = asyncio.ensure_future(create_topic(wire, "t", 400))
            being_made = node.broker.partitions.being_made
            await until(lambda: bool(being_made))
            key = max(being_made)
            code = await alter_code(other, tmp_path / "c", key)
            assert code == ErrorCode.REPLICA_NOT_AVAILABLE
            await making
            assert place(node, key) == "c"

    on_node(tmp_path, scenario, directories(tmp_path))


def test_moves_share_the_rate_and_follow_its_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    async def wait(seconds: float) -> None:
        waits.append(seconds)

    async def scenario(node: Node, wire: Wire) -> None:
        moves, rate = node.broker.moves, 1_000
        monkeypatch.setattr(moves, "_bytes_per_second", lambda: rate)
        monkeypatch.setattr(moves, "_copying", 2)
        with monkeypatch.context() as patch:
            patch.setattr(asyncio, "sleep", wait)
            await moves._keep_pace(1_750)
            assert waits == [1, 1, 1, 0.5]
            waits.clear()
            pace = moves._keep_pace(1_000_000)
            task = asyncio.ensure_future(pace)
            rate = 4_000_000
            await task
            assert waits == [0.5]

    on_node(tmp_path, scenario, directories(tmp_path))


def test_a_topic_can_be_deleted_and_made_again_while_it_moves(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        deletion = DeleteTopicsRequest(
            topics=(DeleteTopicState(name=TopicName("t")),), timeout_ms=5_000
        )
        for round_ in range(6):
            await create_topic(wire, "t")
            await produce(wire, "t", batch(b"%d" % round_))
            target = "abc"["abc".index(place(node)) - 1]
            assert await alter_code(wire, tmp_path / target) == 0
            for _ in range(round_ * 3):
                await asyncio.sleep(0)
            answer = await wire.send(deletion)
            assert answer.responses[0].error_code == 0
        await create_topic(wire, "t")
        await until(lambda: not node.broker.moves._tasks)
        assert await values(wire) == []
        assert assigned(node) == directory_id(node, place(node))

    on_node(tmp_path, scenario, directories(tmp_path))


def test_deleted_records_do_not_come_back_where_the_log_has_moved_to(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_node(tmp_path, directories(tmp_path)) as node:
            wire = await Wire.connect(node)
            await create_topic(wire, "t")
            for number in range(10):
                await produce(wire, "t", batch(b"%d" % number))
            partition = DeleteRecordsPartition(partition_index=0, offset=4)
            topics = (DeleteRecordsTopic(name=TopicName("t"), partitions=(partition,)),)
            await wire.send(DeleteRecordsRequest(topics=topics, timeout_ms=1_000))
            target = "c" if place(node) != "c" else "b"
            await alter_code(wire, tmp_path / target)
            await settled(node, target)
            await wire.close()
            # As after a kill: no checkpoints are written any more.
            node.logs.release()
        async with running_node(tmp_path, directories(tmp_path)) as node:
            log = node.logs.get(KEY)
            assert log is not None
            assert (place(node), log.log_start_offset, log.log_end_offset) == (target, 4, 10)

    asyncio.run(run())


def test_a_move_that_a_stop_has_interrupted_is_begun_anew(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_node(tmp_path, slow_directories(tmp_path)) as node:
            wire = await Wire.connect(node)
            await create_topic(wire, "t")
            for number in range(20):
                await produce(wire, "t", batch(b"%d" % number * 60_000))
            target = "c" if place(node) != "c" else "b"
            assert await alter_code(wire, tmp_path / target) == 0
            await until(lambda: node.broker.moves._running[KEY].move.size > 0)
            await wire.close()
        assert folders(tmp_path, target)[0].endswith("-future")
        async with running_node(tmp_path, directories(tmp_path)) as node:
            await settled(node, target)
            wire = await Wire.connect(node)
            assert len(await values(wire)) == 20
            await wire.close()
        assert "t-0" in folders(tmp_path, target)

    asyncio.run(run())


def test_a_target_that_fails_goes_offline_and_the_log_goes_on(tmp_path: Path) -> None:
    async def run() -> None:
        fs, fatal = FaultyFileSystem(), list[str]()
        async with watched_node(tmp_path, fatal, directories(tmp_path), fs=fs) as node:
            wire = await Wire.connect(node)
            await create_topic(wire, "t")
            await produce(wire, "t", batch(b"one"))
            old = place(node)
            target = "c" if old != "c" else "b"
            await settled(node, old)
            fs.writes["-future/0"] = BROKEN
            assert await alter_code(wire, tmp_path / target) == 0
            await until(lambda: bool(node.logs.offline_directories))
            await until(lambda: not node.broker.moves._tasks)
            assert list(node.logs.offline_directories) == [f"{tmp_path}/{target}"]
            assert (place(node), assigned(node)) == (old, directory_id(node, old))
            assert (await produce(wire, "t", batch(b"two"))).error_code == 0
            assert await values(wire) == [b"one", b"two"]
            offline = ErrorCode.KAFKA_STORAGE_ERROR
            assert await alter_code(wire, tmp_path / target) == offline
            other = next(name for name in "abc" if name not in (old, target))
            assert await alter_code(wire, tmp_path / other) == offline
            await wire.close()

    asyncio.run(run())
