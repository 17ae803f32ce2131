"""The log cleaner of a running node: its workers, its settings, its metrics, and its stop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from dohle.protocol.extensions import CLEANING_TAG, CleaningDescription, extension
from dohle.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from dohle.server.node import Node
from dohle.storage.files import OsFileSystem
from tests.server.metrics.scraping import scrape, value
from tests.server.partitions.compacted import (
    QUICK,
    TOPIC,
    filled,
    is_clean,
    until,
)
from tests.server.wire import (
    Wire,
    create_topic,
    on_node,
    running_node,
)

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for its processes")


def test_a_compacted_topic_is_cleaned_and_metrics_tell_of_it(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        log = await filled(node, wire)
        size = log.size
        await until(lambda: is_clean(log))
        assert log.size < size / 2
        series = await scrape(node)
        assert value(series, "dohle_log_cleaner_rounds_total") >= 1
        assert 0 < value(series, "kafka_log_logcleaner_cleaner_recopy_percent") < 100
        assert value(series, "kafka_log_logcleanermanager_time_since_last_run_ms") >= 0
        labels = {"logDirectory": log.directory.rpartition("/")[0]}
        name = "kafka_log_logcleanermanager_uncleanable_partitions_count"
        assert value(series, name, **labels) == 0

    on_node(tmp_path, scenario, QUICK)


def test_a_log_that_cannot_be_cleaned_is_told_by_metrics(tmp_path: Path) -> None:
    async def fill(node: Node, wire: Wire) -> None:
        await filled(node, wire)

    async def look(node: Node, wire: Wire) -> None:
        await until(lambda: bool(node.cleaning.cleaner.uncleanable))
        log = node.broker.partitions.of_topic(TOPIC)[0].log
        series = await scrape(node)
        labels = {"logDirectory": log.directory.rpartition("/")[0]}
        manager = "kafka_log_logcleanermanager_uncleanable"
        assert value(series, f"{manager}_partitions_count", **labels) == 1
        assert value(series, f"{manager}_bytes", **labels) == log.size
        told = (await described(wire, (CLEANING_TAG, b"")))[TOPIC]
        assert told is not None
        assert "checksum" in (told.uncleanable_reason or "")

    on_node(tmp_path, fill, {**QUICK, "log.cleaner.enable": "false"})
    first = min((tmp_path / "data" / f"{TOPIC}-0").glob("*.log"))
    content = bytearray(first.read_bytes())
    content[-1] ^= 0xFF
    first.write_bytes(content)
    on_node(tmp_path, look, QUICK)


async def described(wire: Wire, *tags: tuple[int, bytes]) -> dict[str, CleaningDescription | None]:
    """What is told of how far each topic is cleaned."""
    answer = await wire.send(DescribeLogDirsRequest(topics=None, unknown_tags=tags))
    found = {}
    for topic in answer.results[0].topics:
        content = extension(topic.partitions[0], CLEANING_TAG)
        found[topic.name] = None if content is None else CleaningDescription.decode(0, content)[0]
    return found


def test_who_asks_is_told_how_far_a_compacted_topic_is_cleaned(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await create_topic(wire, "other")
        log = await filled(node, wire)
        # The log is clean a little before the round that cleaned it is over.
        await until(lambda: is_clean(log) and node.cleaning.cleaner.round_count > 0)
        now_ms = node.broker.clock.now_ms()
        found = await described(wire, (CLEANING_TAG, b""))
        assert found["other"] is None
        told = found[TOPIC]
        assert told is not None
        assert (told.dirty_ratio, told.uncleanable_reason) == (0.0, None)
        assert now_ms - 60_000 < told.last_cleaned_ms <= now_ms
        assert await described(wire) == {"other": None, TOPIC: None}

    on_node(tmp_path, scenario, QUICK)


def test_a_log_that_nobody_cleans_is_told_to_be_dirty(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        await filled(node, wire)
        found = await described(wire, (CLEANING_TAG, b""))
        assert found == {TOPIC: CleaningDescription(dirty_ratio=1.0)}

    on_node(tmp_path, scenario, {**QUICK, "log.cleaner.enable": "false"})


def test_a_stop_in_the_middle_of_a_round_leaves_nothing_of_it(tmp_path: Path) -> None:
    slow = {**QUICK, "log.cleaner.io.max.bytes.per.second": "1000"}

    async def scenario(node: Node, wire: Wire) -> None:
        log = await filled(node, wire)
        await until(lambda: log.cleaning is not None)

    on_node(tmp_path, scenario, slow)
    left = [path.name for path in (tmp_path / "data" / f"{TOPIC}-0").iterdir()]
    assert not [name for name in left if name.endswith((".cleaned", ".swap"))]


def children() -> set[str]:
    """The processes that this one has started, and not seen the end of."""
    found = set[str]()
    for listed in Path("/proc/self/task").glob("*/children"):
        with suppress(FileNotFoundError):
            found.update(listed.read_text().split())
    return found


def on_real_files(
    path: Path,
    scenario: Callable[[Node, Wire], Awaitable[None]],
    properties: Mapping[str, str],
) -> None:
    """Run a scenario against a node that may have other processes use its files."""

    async def run() -> None:
        async with (
            running_node(path, properties, fs=OsFileSystem()) as node,
            await Wire.connect(node) as wire,
        ):
            await scenario(node, wire)

    asyncio.run(run())


@ON_LINUX
def test_a_stop_in_the_middle_of_a_round_leaves_no_process(tmp_path: Path) -> None:
    before = children()
    slow = {**QUICK, "log.cleaner.io.max.bytes.per.second": "1000"}

    async def scenario(node: Node, wire: Wire) -> None:
        await filled(node, wire)
        await until(lambda: children() > before)

    on_real_files(tmp_path, scenario, slow)
    assert children() == before
    left = [path.name for path in (tmp_path / "data" / f"{TOPIC}-0").iterdir()]
    assert not [name for name in left if name.endswith((".cleaned", ".swap"))]


@ON_LINUX
def test_a_process_cleans_and_ends_when_it_is_not_needed_for_long(tmp_path: Path) -> None:
    before = children()

    async def fill(node: Node, wire: Wire) -> None:
        await filled(node, wire)

    async def clean(node: Node, wire: Wire) -> None:
        log = node.broker.partitions.of_topic(TOPIC)[0].log
        await until(lambda: children() > before or is_clean(log))
        await until(lambda: is_clean(log))
        await until(lambda: children() == before)

    on_node(tmp_path, fill, {**QUICK, "log.cleaner.enable": "false"})
    # The next look is so late that it is not worth while to keep the process.
    on_real_files(tmp_path, clean, {**QUICK, "log.cleaner.backoff.ms": "60000"})


def test_the_loop_gets_its_turn_sooner_while_a_log_is_cleaned(tmp_path: Path) -> None:
    slow = {**QUICK, "log.cleaner.io.max.bytes.per.second": "1000"}
    usual_s = sys.getswitchinterval()

    async def scenario(node: Node, wire: Wire) -> None:
        log = await filled(node, wire)
        await until(lambda: log.cleaning is not None)
        assert sys.getswitchinterval() < usual_s / 4

    on_node(tmp_path, scenario, slow)
    assert sys.getswitchinterval() == usual_s


@pytest.mark.parametrize("setting", ["log.cleaner.enable=false", "log.cleaner.threads=0"])
def test_no_cleaner_no_cleaning(tmp_path: Path, setting: str) -> None:
    """Compaction 2."""
    name, _, text = setting.partition("=")

    async def scenario(node: Node, wire: Wire) -> None:
        log = await filled(node, wire)
        cleaner = node.cleaning.cleaner
        assert cleaner.last_run_ms is None
        assert log.cleaner_offset is None

    on_node(tmp_path, scenario, {**QUICK, name: text})


def test_a_node_that_is_stopped_at_once_does_not_wait_for_its_cleaners(tmp_path: Path) -> None:
    """They may not even have begun; each would pause after its first look."""

    async def run() -> None:
        async with asyncio.timeout(30):
            async with running_node(tmp_path, {"log.cleaner.backoff.ms": "3600000"}):
                pass

    asyncio.run(run())
