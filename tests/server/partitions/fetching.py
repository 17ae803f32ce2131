"""Fetches over the wire from a node, which may have two directories."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dohle.core.ids import TopicName
from dohle.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from dohle.records.batch import batches
from dohle.server.node import Node
from tests.server.wire import Wire, running_node

FETCH_VERSION = 12


def two_directories(path: Path) -> dict[str, str]:
    """The first topic goes to the first directory; the metadata log is not in it."""
    paths = [str(path / "one"), str(path / "two")]
    return {"log.dirs": ",".join(paths), "metadata.log.dir": paths[1]}


def fetch_of(topic: str, *, wait_ms: int = 0, min_bytes: int = 1) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=1 << 20,
        topics=(FetchTopic(topic=TopicName(topic), partitions=(partition,)),),
    )


async def fetch(wire: Wire, topic: str) -> PartitionData:
    answer = await wire.send(fetch_of(topic), FETCH_VERSION)
    found: PartitionData = answer.responses[0].partitions[0]
    return found


async def values(wire: Wire, topic: str) -> list[bytes | None]:
    found = await fetch(wire, topic)
    assert found.error_code == 0
    return [record.value for one in batches(found.records or b"") for record in one.records()]


@contextmanager
def on_node(path: Path) -> Iterator[tuple[asyncio.Runner, Node, Wire]]:
    """Run a node on a loop that runs when it is told to."""
    with asyncio.Runner() as runner:
        context = running_node(path)
        node = runner.run(context.__aenter__())
        wire = runner.run(Wire.connect(node))
        try:
            yield runner, node, wire
        finally:
            runner.run(wire.close())
            runner.run(context.__aexit__(None, None, None))
