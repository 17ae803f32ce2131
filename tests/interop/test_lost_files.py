"""Segment files that somebody cuts or deletes under a running broker: noticed and told.

The partition answers KAFKA_STORAGE_ERROR to reads and appends from a few milliseconds later on; the
others go on.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import TopicName
from dohle.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.interop.process import BrokerProcess
from tests.server.wire import Wire, batch, create_topic, produce

SEGMENT = "00000000000000000000.log"


def delete(folder: Path) -> None:
    (folder / SEGMENT).unlink()


def cut(folder: Path) -> None:
    with (folder / SEGMENT).open("r+b") as file:
        file.truncate(200)


def empty(folder: Path) -> None:
    (folder / SEGMENT).write_bytes(b"")


def delete_folder(folder: Path) -> None:
    shutil.rmtree(folder)


async def fetch(wire: Wire, topic: str, offset: int, *, min_bytes: int = 1) -> int:
    """Fetch from one partition and return the error code."""
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = (FetchTopic(topic=TopicName(topic), partitions=(partition,)),)
    request = FetchRequest(
        max_wait_ms=10_000, min_bytes=min_bytes, max_bytes=1 << 20, topics=topics
    )
    code: int = (await wire.send(request, 12)).responses[0].partitions[0].error_code
    return code


SMALL, LARGE = b"v", b"v" * 100_000


@pytest.mark.parametrize(
    ("lose", "by", "value"),
    [
        (delete, "read", SMALL),
        (delete, "append", SMALL),
        (delete, "read", LARGE),
        (cut, "read", SMALL),
        (cut, "append", LARGE),
        (cut, "read", LARGE),
        (empty, "append", SMALL),
        (delete_folder, "read", LARGE),
    ],
    ids=lambda one: one.__name__ if callable(one) else str(one)[:6],
)
def test_a_lost_segment_takes_its_partition_offline_and_no_other(
    tmp_path: Path, lose: Callable[[Path], None], by: str, value: bytes
) -> None:
    async def run(broker: BrokerProcess) -> None:
        async with await Wire.connect(broker.bootstrap) as wire:
            await create_topic(wire, "hurt")
            await create_topic(wire, "well")
            for topic in ("hurt", "well"):
                for _ in range(5):
                    assert (await produce(wire, topic, batch(value))).error_code == 0
            # Reads of this connection take their fast path from now on.
            for _ in range(2):
                assert await fetch(wire, "hurt", 3) == 0
            lose(tmp_path / "data" / "hurt-0")
            async with asyncio.timeout(20):
                while by == "read" and await fetch(wire, "hurt", 3) == 0:
                    pass
                while (await produce(wire, "hurt", batch(value))).error_code == 0:
                    assert by == "append"
            code = (await produce(wire, "hurt", batch(value))).error_code
            assert code == ErrorCode.KAFKA_STORAGE_ERROR
            # Not even the end of the log is waited at.
            assert await fetch(wire, "hurt", 5) == ErrorCode.KAFKA_STORAGE_ERROR
            assert (await produce(wire, "well", batch(value))).error_code == 0
            assert await fetch(wire, "well", 5) == 0

    with BrokerProcess(tmp_path) as broker:
        asyncio.run(run(broker))
        assert broker.stop() == 0
        assert "hurt-0 goes offline" in broker.log
        assert SEGMENT in broker.log
        assert "Traceback" not in broker.log
    # No clean stop is claimed for what was not closed.
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    with BrokerProcess(tmp_path) as broker:
        asyncio.run(serves(broker, value))
        assert broker.stop() == 0


async def serves(broker: BrokerProcess, value: bytes) -> None:
    async with await Wire.connect(broker.bootstrap) as wire:
        for topic in ("hurt", "well"):
            assert (await produce(wire, topic, batch(value))).error_code == 0
        assert await fetch(wire, "well", 6) == 0
