"""A disk that the kernel makes read-only under a running broker, as it does after an error.

An ordinary remount is refused while files are open for writing. Ext4 can be told that its journal
has failed (``remount,abort``): from then on it takes no more writes, open files or not.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import TopicName
from dohle.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.interop.process import BrokerProcess
from tests.interop.waiting import DEADLINE_S, wait_until
from tests.server.wire import Wire, batch, create_topic, produce

REFUSED = ErrorCode.KAFKA_STORAGE_ERROR


class Ext4:
    """A disk in a file, mounted at ``path``."""

    def __init__(self, image: Path, path: Path) -> None:
        self._image = image
        self.path = path

    def mount(self) -> None:
        command = ["mount", "-o", "loop", str(self._image), str(self.path)]
        if subprocess.run(command, capture_output=True).returncode:
            pytest.skip("files cannot be mounted as disks here")

    def unmount(self) -> None:
        subprocess.run(["umount", str(self.path)], check=True)

    def fail(self) -> None:
        """Take no more writes."""
        command = ["mount", "-o", "remount,abort", str(self.path)]
        if subprocess.run(command, capture_output=True).returncode:
            pytest.skip("disks cannot be remounted here")
        with pytest.raises(OSError, match="Read-only"):
            (self.path / "probe").touch()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Ext4]:
    """A disk of 64 MB of its own, if this machine lets us have one."""
    for tool in ("mount", "mkfs.ext4"):
        if shutil.which(tool) is None:
            pytest.skip(f"there is no {tool}")
    image, path = tmp_path / "image", tmp_path / "disk"
    path.mkdir()
    with image.open("wb") as file:
        file.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    found = Ext4(image, path)
    found.mount()
    try:
        yield found
    finally:
        found.unmount()


async def create(bootstrap: str) -> None:
    async with await Wire.connect(bootstrap) as wire:
        await create_topic(wire, "t", 2)


async def produce_to_both(bootstrap: str) -> list[int]:
    async with await Wire.connect(bootstrap) as wire:
        return [(await produce(wire, "t", batch(b"v"), n)).error_code for n in range(2)]


async def read(bootstrap: str, partition: int) -> tuple[int, int]:
    """Read a partition from the beginning: return the error, and how many bytes were found."""
    asked = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = (FetchTopic(topic=TopicName("t"), partitions=(asked,)),)
    async with await Wire.connect(bootstrap) as wire:
        answer = await wire.send(FetchRequest(min_bytes=0, max_bytes=1 << 20, topics=topics), 12)
        found = answer.responses[0].partitions[0]
        return found.error_code, len(found.records or b"")


def test_the_directory_goes_offline_and_the_others_are_written_and_read(
    disk: Ext4, tmp_path: Path
) -> None:
    with BrokerProcess(tmp_path, {"log.dirs": f"{tmp_path}/other,{disk.path}"}) as broker:
        asyncio.run(create(broker.bootstrap))
        assert asyncio.run(produce_to_both(broker.bootstrap)) == [0, 0]
        hurt = 0 if (disk.path / "t-0").exists() else 1
        disk.fail()
        for times in (2, 3):
            codes = asyncio.run(produce_to_both(broker.bootstrap))
            assert (codes[hurt], codes[1 - hurt]) == (REFUSED, 0)
            assert asyncio.run(read(broker.bootstrap, hurt)) == (REFUSED, 0)
            error, size = asyncio.run(read(broker.bootstrap, 1 - hurt))
            assert (error, size) == (0, times * len(batch(b"v")))
        assert broker.stop() == 0
        told = f"log directory {disk.path} goes offline, appending to t-{hurt} failed: [Errno 30]"
        assert broker.log.count(told) == 1
        assert "Traceback" not in broker.log
        disk.unmount()
        disk.mount()
        broker.start()
        assert asyncio.run(produce_to_both(broker.bootstrap)) == [0, 0]
        assert broker.stop() == 0


def test_without_its_metadata_log_a_node_says_so_and_stops(disk: Ext4, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, {"log.dirs": str(disk.path)}) as broker:
        asyncio.run(create(broker.bootstrap))
        assert asyncio.run(produce_to_both(broker.bootstrap)) == [0, 0]
        disk.fail()
        # It may be answered before the connection ends.
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            assert set(asyncio.run(produce_to_both(broker.bootstrap))) == {REFUSED}
        told = f"stopping: the metadata log's directory {disk.path} has failed"
        wait_until(lambda: told in broker.log, DEADLINE_S)
        assert broker.stop() == 1
        assert "Traceback" not in broker.log
