"""What a stop leaves behind, and what the next start makes of it (A35, A54)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from dohle.core.ids import Uuid
from dohle.metadata.delta import Delta
from dohle.metadata.image import ClusterImage
from dohle.server.node import Node
from dohle.storage.directory.clean_shutdown import CLEAN_SHUTDOWN_FILE, write_clean_shutdown
from dohle.storage.files import OsFileSystem
from tests.server.wire import Wire, create_topic, running_node

NAMES = "abc"


def directories(path: Path) -> dict[str, str]:
    return {"log.dirs": ",".join(f"{path}/{name}" for name in NAMES)}


def marks(path: Path) -> list[Path]:
    return [path / name / CLEAN_SHUTDOWN_FILE for name in NAMES]


def nothing(path: Path) -> None:
    pass


def remove_one(path: Path) -> None:
    marks(path)[1].unlink()


def remove_all(path: Path) -> None:
    for mark in marks(path):
        mark.unlink()


def change_one(path: Path) -> None:
    write_clean_shutdown(OsFileSystem(), str(path / "b"), 123_456)


def empty_one(path: Path) -> None:
    marks(path)[2].write_bytes(b"")


def take_one_disk(path: Path) -> None:
    """A file is where the directory was: it cannot be opened."""
    (path / "c").rename(path / "away")
    (path / "c").write_text("not a directory")


@pytest.mark.parametrize(
    ("change", "is_clean"),
    [
        (nothing, True),
        (remove_one, False),
        (remove_all, False),
        (change_one, False),
        (empty_one, False),
        (take_one_disk, False),
    ],
)
def test_a35_a_stop_counts_as_clean_if_all_directories_have_the_same_mark_and_none_is_offline(
    tmp_path: Path, change: Callable[[Path], None], is_clean: bool
) -> None:
    async def run() -> None:
        async with running_node(tmp_path, directories(tmp_path)) as node:
            async with await Wire.connect(node) as wire:
                await create_topic(wire, "t", 6)
            assert not any(mark.exists() for mark in marks(tmp_path)), "it runs"
            epoch = node.broker_role.lifecycle.broker_epoch
        contents = {mark.read_text() for mark in marks(tmp_path)}
        assert contents == {f'{{"version":0,"brokerEpoch":{epoch}}}'}
        change(tmp_path)
        async with running_node(tmp_path, directories(tmp_path)) as again:
            assert again.broker_role.previous_epoch == (epoch if is_clean else -1)
            assert bool(again.logs.offline_directories) == (change is take_one_disk)
            registered = again.images.image.brokers[again.config.node_id]
            assert list(registered.log_dirs) == sorted(registered.log_dirs), "A35: by their ids"

    asyncio.run(run())


def test_a54_the_broker_of_a_combined_node_stops_before_its_controller(tmp_path: Path) -> None:
    """Its controller has still written that nobody is to rely on the broker any more."""
    told: list[bool] = []

    async def listen(image: ClusterImage, delta: Delta) -> None:
        told.extend(change.after.fenced for change in delta.changed_brokers if change.after)

    async def run() -> tuple[Node, int]:
        async with running_node(tmp_path) as node:
            node.images.subscribe(listen)
            (registered,) = node.images.image.brokers.values()
            assert not registered.fenced
            assert told == []
        return node, registered.epoch

    node, epoch = asyncio.run(run())
    assert told == [True], "fenced by its own controller, which stopped later"
    assert node.images.image.brokers[node.config.node_id].epoch == epoch
    assert (tmp_path / "data" / CLEAN_SHUTDOWN_FILE).exists()


def test_a54_each_start_of_a_process_is_another_incarnation(tmp_path: Path) -> None:
    async def run() -> Uuid:
        async with running_node(tmp_path) as node:
            (registered,) = node.images.image.brokers.values()
            return registered.incarnation_id

    assert len({asyncio.run(run()) for _ in range(3)}) == 3
