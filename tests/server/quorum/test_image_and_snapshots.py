"""The image of a node: loaded from the log and its snapshots, which are written beside the rest."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path

import pytest

from dohle.core.errors import KafkaError
from dohle.core.ids import TopicName
from dohle.metadata.delta import Delta
from dohle.metadata.image import ClusterImage
from dohle.protocol.messages.records.cluster_metadata import FeatureLevelRecord
from dohle.server.node import Node
from dohle.server.quorum.image_loader import ImageLoader
from dohle.server.quorum.metadata_log import CorruptMetadataLog, MetadataBatch
from dohle.server.quorum.snapshots import list_snapshots
from tests.server.faults import DEADLINE_S, FaultyFileSystem, until
from tests.server.quorum.often import OFTEN, snapshots
from tests.server.wire import (
    UnsyncedFile,
    UnsyncedFileSystem,
    Wire,
    create_topic,
    node_config,
    on_node,
    running_node,
)


def topic_ids(node: Node) -> dict[str, tuple[bytes, int]]:
    topics = node.images.image.topics.values()
    return {topic.name: (topic.id, len(topic.partitions)) for topic in topics}


def test_a_node_starts_from_its_newest_snapshot_and_what_is_behind_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_node(tmp_path, OFTEN) as node, await Wire.connect(node) as wire:
            for index in range(10):
                await create_topic(wire, f"t{index}", 2)
            await until(lambda: len(snapshots(tmp_path)) >= 2)
        before = topic_ids(node)
        async with running_node(tmp_path, OFTEN) as again:
            assert topic_ids(again) == before
            assert again.images.image.features == node.images.image.features

    asyncio.run(run())


def test_h25_what_a_newer_snapshot_covers_is_removed_when_there_is_too_much(tmp_path: Path) -> None:
    few = {**OFTEN, "metadata.max.retention.bytes": "1"}

    async def run() -> None:
        async with running_node(tmp_path, few) as node, await Wire.connect(node) as wire:
            for index in range(20):
                await create_topic(wire, f"t{index}", 2)
            log = node.member.log
            await until(lambda: log.log.log_start_offset > 0)
            await node.member.snapshotter.stop()
            kept = list_snapshots(UnsyncedFileSystem(), log.folder)
            assert [each.end_offset for each in kept] == [log.log.log_start_offset]
        async with running_node(tmp_path, few) as again:
            assert len(again.images.image.topics) == 20

    asyncio.run(run())


class HeldFileSystem(UnsyncedFileSystem):
    """A disk that takes no snapshot until it is told to."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.released = threading.Event()

    def open(self, path: str, *, write: bool = False, create: bool = False) -> UnsyncedFile:
        if path.endswith(".checkpoint.part"):
            self.asked.set()
            assert self.released.wait(DEADLINE_S)
        return super().open(path, write=write, create=create)


def test_commands_are_carried_out_while_a_snapshot_is_written(tmp_path: Path) -> None:
    fs = HeldFileSystem()

    async def run() -> None:
        async with running_node(tmp_path, OFTEN, fs=fs) as node, await Wire.connect(node) as wire:
            while not fs.asked.is_set():
                await create_topic(wire, f"t{len(node.images.image.topics)}")
            offset = node.images.image.offset
            await create_topic(wire, "meanwhile")
            fs.released.set()
            await until(lambda: bool(snapshots(tmp_path)))
            first = list_snapshots(fs, node.member.log.folder)[0]
            # It is of the image as it was when it was begun.
            assert first.end_offset <= offset + 1

    asyncio.run(run())


def test_a_snapshot_that_cannot_be_written_is_told_and_written_another_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fs = FaultyFileSystem()
    fs.writes[".checkpoint"] = OSError(errno.ENOSPC, "the disk is full")

    async def run() -> None:
        async with running_node(tmp_path, OFTEN, fs=fs) as node, await Wire.connect(node) as wire:
            for index in range(10):
                await create_topic(wire, f"t{index}")
            await until(lambda: "a metadata snapshot could not be written" in caplog.text)
            assert snapshots(tmp_path) == []
            fs.writes.clear()
            await create_topic(wire, "after")
            await until(lambda: bool(snapshots(tmp_path)))

    asyncio.run(run())


def test_a_snapshot_without_its_end_is_not_taken_for_one(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_node(tmp_path, OFTEN) as node, await Wire.connect(node) as wire:
            for index in range(10):
                await create_topic(wire, f"t{index}")
            await until(lambda: bool(snapshots(tmp_path)))
        newest = snapshots(tmp_path)[-1]
        content = newest.read_bytes()
        newest.write_bytes(content[: len(content) - 40])
        with pytest.raises(CorruptMetadataLog, match="checkpoint"):
            await Node(node_config(tmp_path, OFTEN)).start()

    asyncio.run(run())


def test_others_have_their_turns_while_an_image_is_loaded(tmp_path: Path) -> None:
    async def run() -> None:
        fs = UnsyncedFileSystem()
        async with running_node(tmp_path, fs=fs) as node, await Wire.connect(node) as wire:
            for index in range(5):
                await create_topic(wire, f"t{index}", 400)
            loader = ImageLoader(node.broker.turns, fs, node.member.log)
            loading = asyncio.ensure_future(loader.load())
            turns = 0
            while not loading.done():
                await asyncio.sleep(0)
                turns += 1
            await loading
            assert loader.image == node.images.image
            assert turns > 2

    asyncio.run(run())


def test_everyone_who_subscribed_is_told_of_each_change_before_it_is_answered(
    tmp_path: Path,
) -> None:
    told: list[list[str]] = [[], []]

    async def run() -> None:
        async with running_node(tmp_path) as node, await Wire.connect(node) as wire:
            for names in told:

                async def listen(
                    image: ClusterImage, delta: Delta, names: list[str] = names
                ) -> None:
                    assert all(image.topic(topic.name) for topic in delta.created_topics)
                    names += [topic.name for topic in delta.created_topics]

                node.images.subscribe(listen)
            await create_topic(wire, "one")
            assert told == [["one"], ["one"]]
            await create_topic(wire, "two")
            assert told == [["one", "two"]] * 2
            assert node.images.image.topic(TopicName("two")) is not None

    asyncio.run(run())


def test_a_snapshot_of_another_node_replaces_the_image_and_tells_what_differs(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        fs = UnsyncedFileSystem()
        async with running_node(tmp_path, OFTEN, fs=fs) as node, await Wire.connect(node) as wire:
            for index in range(10):
                await create_topic(wire, f"t{index}")
            await until(lambda: bool(snapshots(tmp_path)))
            snapshot = list_snapshots(fs, node.member.log.folder)[-1]
            told: list[Delta] = []

            async def listen(image: ClusterImage, delta: Delta) -> None:
                told.append(delta)

            loader = ImageLoader(node.broker.turns, fs, node.member.log)
            loader.subscribe(listen)
            await loader.on_snapshot(snapshot)
            assert loader.image.offset == snapshot.end_offset - 1
            (first,) = told
            assert [topic.name for topic in first.created_topics] == list(loader.image.topics)
            await loader.on_snapshot(snapshot)
            assert not told[1]

    asyncio.run(run())


def test_a_controller_goes_no_further_than_it_understands(tmp_path: Path) -> None:
    """A24: a level that this release does not support is fatal."""

    async def scenario(node: Node, _: Wire) -> None:
        image = node.images.image
        level = FeatureLevelRecord(name="metadata.version", feature_level=99)
        batch = MetadataBatch([level], image.offset + 1, image.epoch, size=1)
        with pytest.raises(KafkaError, match="is finalized at level 99"):
            await node.images.on_commit(batch)

    on_node(tmp_path, scenario)
