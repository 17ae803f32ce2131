"""A node on the test's own loop, and the smallest client that can speak to it.

Requests go out exactly as the test writes them, at the version it says; nothing is retried.
``on_node`` runs a test's scenario; ``create_topic`` and ``produce`` are what most of them need.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dohle.core.config.static import SINGLE_NODE, BrokerConfig
from dohle.core.ids import ProducerId, TopicName
from dohle.protocol.apis import find_api
from dohle.protocol.framing import encode_request, parse_response_header
from dohle.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from dohle.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from dohle.protocol.schema import Request
from dohle.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from dohle.records.builder import BatchBuilder
from dohle.server.host import SystemNodeHost
from dohle.server.node import Node
from dohle.storage.files import FileSystem, OsFile, OsFileSystem

ANSWER_TIMEOUT_S = 20


def node_config(path: Path, properties: Mapping[str, str] | None = None) -> BrokerConfig:
    """Settings of a node that listens on a free port and keeps its data in ``path``."""
    config, _ = BrokerConfig.from_properties(
        {
            **SINGLE_NODE,
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(path / "data"),
            **(properties or {}),
        }
    )
    return config


class UnsyncedFileSystem(OsFileSystem):
    """Real files without the waiting: syncs are most of a test's time, and no test cuts power.

    A test may set ``sync_error`` for the disk to fail.
    """

    sync_error: OSError | None = None

    def open(self, path: str, *, write: bool = False, create: bool = False) -> UnsyncedFile:
        """Open a file."""
        flags = os.O_CLOEXEC | (os.O_RDWR if write else os.O_RDONLY) | (os.O_CREAT if create else 0)
        return UnsyncedFile(os.open(path, flags, 0o644), path, self)

    def sync_dir(self, path: str) -> None:
        """Return at once, or fail."""
        self.sync()

    def sync(self) -> None:
        """Return at once, or fail."""
        if self.sync_error is not None:
            raise self.sync_error


class UnsyncedFile(OsFile):
    """A file that says it is on the disk when it is not."""

    __slots__ = ("_fs",)

    def __init__(self, fd: int, path: str, fs: UnsyncedFileSystem) -> None:
        super().__init__(fd, path)
        self._fs = fs

    def sync(self) -> None:
        """Return at once, or fail."""
        self._fs.sync()


@asynccontextmanager
async def running_node(
    path: Path, properties: Mapping[str, str] | None = None, *, fs: FileSystem | None = None
) -> AsyncIterator[Node]:
    """Run a node for as long as the block lasts."""
    host = SystemNodeHost(files=fs or UnsyncedFileSystem())
    node = Node(node_config(path, properties), host=host)
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


class Wire:
    """One connection to a node."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        client_id: str | None = "test",
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._client_id = client_id
        self._correlation_id = 0

    @classmethod
    async def connect(cls, node: Node | str, client_id: str | None = "test") -> Self:
        """Connect to a node's first listener, or to ``host:port``."""
        address = node if isinstance(node, str) else node.bootstrap.split(",")[0]
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)), client_id)

    async def send(self, request: Request, version: int | None = None) -> Any:
        """Send a request, at the newest version unless told, and return its response."""
        if version is None:
            api = find_api(request.API_KEY)
            version = api.release_versions.highest - api.latest_version_unstable
        await self.post(request, version)
        return await self.answer(request.API_KEY, version)

    async def post(self, request: Request, version: int) -> None:
        """Send a request without waiting for the answer."""
        self._correlation_id += 1
        chunks = encode_request(request, version, self._correlation_id, self._client_id)
        await self.send_bytes(b"".join(chunks))

    async def send_bytes(self, frame: bytes) -> None:
        """Send any bytes at all."""
        self._writer.write(frame)
        await self._writer.drain()

    def end(self) -> None:
        """Say that nothing more is sent; answers may still come."""
        self._writer.write_eof()

    async def answer(self, api_key: int, version: int) -> Any:
        """Read the next response, which must be to a request of this kind."""
        frame = await self.read_frame()
        _, offset = parse_response_header(api_key, version, frame)
        return find_api(api_key).response().from_bytes(version, frame[offset:])

    async def read_frame(self) -> bytes:
        """Read a frame; IncompleteReadError if the node has closed the connection."""
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            return await self._reader.readexactly(size)

    async def is_closed(self) -> bool:
        """Tell whether the node closes the connection without another byte."""
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            try:
                return await self._reader.read(1) == b""
            except ConnectionResetError:
                return True

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            return

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


def on_node(
    path: Path,
    scenario: Callable[[Node, Wire], Awaitable[None]],
    properties: Mapping[str, str] | None = None,
) -> None:
    """Run a scenario against a node of its own."""

    async def run() -> None:
        async with running_node(path, properties) as node, await Wire.connect(node) as wire:
            await scenario(node, wire)

    asyncio.run(run())


async def create_topic(
    wire: Wire, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
) -> CreatableTopicResult:
    """Create a topic, which must succeed."""
    topic = CreatableTopic(
        name=TopicName(name),
        num_partitions=partitions,
        replication_factor=1,
        configs=tuple(CreatableTopicConfig(name=k, value=v) for k, v in (configs or {}).items()),
    )
    response = await wire.send(CreateTopicsRequest(topics=(topic,)))
    result: CreatableTopicResult = response.topics[0]
    assert result.error_code == 0, result
    return result


def batch(
    *values: bytes,
    key: bytes | None = None,
    timestamp: int = 1_000,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> bytes:
    """Return a batch of records of one key, or without keys."""
    builder = BatchBuilder(
        producer_id=ProducerId(producer_id),
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    for value in values:
        builder.append(timestamp, key, value)
    return bytes(builder.build())


def produce_request(
    topic: str, records: bytes, partition: int = 0, acks: int = -1
) -> ProduceRequest:
    """Make a request to append a batch."""
    data = PartitionProduceData(index=partition, records=records)
    topics = (TopicProduceData(name=TopicName(topic), partition_data=(data,)),)
    return ProduceRequest(acks=acks, timeout_ms=5_000, topic_data=topics)


async def produce(
    wire: Wire, topic: str, records: bytes, partition: int = 0, acks: int = -1
) -> PartitionProduceResponse:
    """Append a batch, and return the answer for its partition. (v12 is the last with names.)"""
    response = await wire.send(produce_request(topic, records, partition, acks), 12)
    result: PartitionProduceResponse = response.responses[0].partition_responses[0]
    return result
