"""Disks that fill up or become read-only: warnings, refusals, reads, and the next start."""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import TopicName
from dohle.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from dohle.storage.directory.disk_space import RESERVE_FILE
from tests.interop.process import BrokerProcess
from tests.server.faults import until
from tests.server.wire import UnsyncedFileSystem, Wire, batch, create_topic, produce, running_node

TOTAL = 1 << 40


class FillingFileSystem(UnsyncedFileSystem):
    """Real files on a disk of which a test says how full it is."""

    used_percent = 10

    def free_bytes(self, path: str) -> tuple[int, int]:
        """Return (total, usable) bytes."""
        return TOTAL, TOTAL * (100 - self.used_percent) // 100


def test_an_operator_is_warned_once_at_each_mark_and_told_what_may_be_freed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fs = FillingFileSystem()

    def warnings() -> list[str]:
        return [one.getMessage() for one in caplog.records if "% full" in one.getMessage()]

    async def run() -> None:
        async with running_node(tmp_path, fs=fs) as node, await Wire.connect(node) as wire:
            await create_topic(wire, "large")
            assert (await produce(wire, "large", batch(b"v" * 1000))).error_code == 0
            for percent, count in ((89, 0), (90, 1), (93, 1), (96, 2), (91, 2), (50, 2), (92, 3)):
                fs.used_percent = percent
                for _ in range(2):
                    node.logs.directories[0].space.check()
                assert len(warnings()) == count

    with caplog.at_level(logging.WARNING, "dohle.storage"):
        asyncio.run(run())
    assert "is 90 % full" in warnings()[0]
    assert "retention.ms" in warnings()[0]
    assert "large 1," in warnings()[0]


def test_a_full_disk_refuses_records_serves_reads_and_takes_records_again(tmp_path: Path) -> None:
    fs = FillingFileSystem()

    async def run() -> None:
        async with running_node(tmp_path, fs=fs) as node, await Wire.connect(node) as wire:
            await create_topic(wire, "t")
            assert (await produce(wire, "t", batch(b"before"))).error_code == 0
            disk = node.logs.directories[0].disk
            fs.used_percent = 100
            await until(lambda: disk.full is not None)
            for _ in range(2):
                code = (await produce(wire, "t", batch(b"v"))).error_code
                assert code == ErrorCode.KAFKA_STORAGE_ERROR
            assert disk.failure is None
            # What the controller decides still has the room that is left.
            await create_topic(wire, "another")
        async with running_node(tmp_path, fs=fs) as node, await Wire.connect(node) as wire:
            code = (await produce(wire, "t", batch(b"v"))).error_code
            assert code == ErrorCode.KAFKA_STORAGE_ERROR
            assert node.logs.directories[0].logs
            fs.used_percent = 80
            disk = node.logs.directories[0].disk
            await until(lambda: disk.full is None)
            answer = await produce(wire, "t", batch(b"after"))
            assert (answer.error_code, answer.base_offset) == (0, 1)

    asyncio.run(run())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A data directory on a disk of 64 MB of its own, if this machine lets us have one."""
    path = tmp_path / "data"
    path.mkdir()
    if shutil.which("mount") is None:
        pytest.skip("there is no mount")
    mounted = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(path)]
    if subprocess.run(mounted, capture_output=True).returncode:
        pytest.skip("disks cannot be mounted here")
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


async def fill(bootstrap: str) -> int:
    """Produce until it is refused, and return how many records were taken."""
    async with await Wire.connect(bootstrap) as wire:
        await create_topic(wire, "t")
        for count in range(10_000):
            code = (await produce(wire, "t", batch(b"v" * 30_000))).error_code
            if code:
                assert code == ErrorCode.KAFKA_STORAGE_ERROR
                return count
    raise AssertionError("the disk was never full")


async def read_last(bootstrap: str, count: int) -> None:
    """Read the last record, and see another one refused."""
    partition = FetchPartition(partition=0, fetch_offset=count - 1, partition_max_bytes=1 << 20)
    topics = (FetchTopic(topic=TopicName("t"), partitions=(partition,)),)
    async with await Wire.connect(bootstrap) as wire:
        answer = await wire.send(FetchRequest(min_bytes=0, max_bytes=1 << 20, topics=topics), 12)
        found = answer.responses[0].partitions[0]
        assert found.error_code == 0
        assert len(found.records) > 30_000
        code = (await produce(wire, "t", batch(b"v"))).error_code
        assert code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_broker_on_a_disk_that_is_full_to_the_last_byte_starts_and_serves_reads(
    small_disk: Path, tmp_path: Path
) -> None:
    with BrokerProcess(tmp_path) as broker:
        taken = asyncio.run(fill(broker.bootstrap))
        asyncio.run(read_last(broker.bootstrap, taken))
        assert broker.stop() == 0
        assert (small_disk / RESERVE_FILE).exists()
        assert "What may be freed" in broker.log
        assert re.search(r"is 9[0-4] % full", broker.log)
        assert re.search(r"is 9[5-9] % full", broker.log)
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(b"x" * 4096) == 4096:
            pass
    with BrokerProcess(tmp_path) as broker:
        asyncio.run(read_last(broker.bootstrap, taken))
        broker.kill()
    with BrokerProcess(tmp_path) as broker:
        asyncio.run(read_last(broker.bootstrap, taken))
        filler.unlink()
        assert broker.stop() == 0
        assert "Traceback" not in broker.log


def test_a_disk_that_becomes_read_only_takes_its_directory_offline_and_loses_nothing(
    small_disk: Path, tmp_path: Path
) -> None:
    def remount(how: str) -> None:
        command = ["mount", "-o", f"remount,{how}", str(small_disk)]
        if subprocess.run(command, capture_output=True).returncode:
            pytest.skip("disks cannot be remounted here")

    async def codes(bootstrap: str) -> list[int]:
        async with await Wire.connect(bootstrap) as wire:
            return [(await produce(wire, "t", batch(b"v"), n)).error_code for n in range(2)]

    async def create(bootstrap: str) -> None:
        async with await Wire.connect(bootstrap) as wire:
            await create_topic(wire, "t", 2)

    config = {"log.dirs": f"{tmp_path}/other,{small_disk}"}
    with BrokerProcess(tmp_path, config) as broker:
        asyncio.run(create(broker.bootstrap))
        assert asyncio.run(codes(broker.bootstrap)) == [0, 0]
        hurt = 0 if (small_disk / "t-0").exists() else 1
        # A file that is open for writing keeps a disk from being remounted: so it is killed first,
        # and starts on a disk that cannot be written to.
        broker.kill()
        remount("ro")
        try:
            broker.start()
            found = asyncio.run(codes(broker.bootstrap))
            assert found[hurt] == ErrorCode.KAFKA_STORAGE_ERROR
            assert found[1 - hurt] == 0
            assert broker.stop() == 0
            assert "Traceback" not in broker.log
            assert f"log directory {small_disk}" in broker.log
        finally:
            remount("rw")
        broker.start()
        assert asyncio.run(codes(broker.bootstrap)) == [0, 0]
        assert broker.stop() == 0


def test_the_disk_of_the_metadata_log_is_watched_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    apart = str(tmp_path / "metadata")

    class Files(FillingFileSystem):
        def free_bytes(self, path: str) -> tuple[int, int]:
            """Let the disk of the metadata log be full, and no other."""
            return (TOTAL, TOTAL // 200) if path == apart else super().free_bytes(path)

    async def run() -> None:
        files = Files()
        async with (
            running_node(tmp_path, {"metadata.log.dir": apart}, fs=files) as node,
            await Wire.connect(node) as wire,
        ):
            # Nothing of it is refused.
            await create_topic(wire, "t")
            assert (await produce(wire, "t", batch(b"v"))).error_code == 0

    with caplog.at_level(logging.WARNING, "dohle.storage"):
        asyncio.run(run())
    (warning,) = [one.getMessage() for one in caplog.records if "% full" in one.getMessage()]
    assert apart in warning
    assert "metadata log" in warning
