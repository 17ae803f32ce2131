"""A broker that does what a test tells it to, over real sockets, with the project's own messages.

It knows no more of Kafka than framing: every answer comes from a handler. A handler gets a decoded
request and returns the answer, :data:`SILENCE` for none, or :data:`HANG_UP` to close the
connection. What was asked is kept in order in ``requests``.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from enum import Enum
from typing import Any, NamedTuple, Self, TypeVar

from dohle.client.net.addresses import Address
from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, TopicName, Uuid
from dohle.protocol.apis import ApiKey, find_api
from dohle.protocol.framing import encode_response, parse_request_header
from dohle.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from dohle.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from dohle.protocol.schema import Request, Response

T = TypeVar("T")


class Action(Enum):
    SILENCE = "no answer"
    HANG_UP = "close the connection"


SILENCE, HANG_UP = Action.SILENCE, Action.HANG_UP

Reply = Response | Action | bytes
Handler = Callable[[Any, int], Reply | Awaitable[Reply]]


class Asked(NamedTuple):
    """A request as it came."""

    api_key: int
    version: int
    message: Request


def within(seconds: float, body: Coroutine[Any, Any, T]) -> T:
    """Run a test's body in a loop of its own, for so long at most."""

    async def bounded() -> T:
        async with asyncio.timeout(seconds):
            return await body

    return asyncio.run(bounded())


async def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    """Let the loop turn until a condition holds."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0)


class ScriptedBroker:
    """One listener; use it as an async context manager."""

    def __init__(self, **handlers: Handler) -> None:
        """Take handlers by the names of their API keys, in small letters."""
        self.handlers: dict[int, Handler] = {}
        for name, handler in handlers.items():
            self.handlers[ApiKey[name.upper()]] = handler
        self.versions: dict[int, tuple[int, int]] = {}
        self.requests: list[Asked] = []
        self.connections = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def serve(
        self, api_key: ApiKey, handler: Handler, versions: tuple[int, int] | None = None
    ) -> None:
        """Answer an API with a handler, and advertise it in some versions or in all."""
        self.handlers[api_key] = handler
        if versions is not None:
            self.versions[api_key] = versions

    def asked(self, api_key: ApiKey) -> list[Any]:
        """Return the requests of one API."""
        return [each.message for each in self.requests if each.api_key == api_key]

    @property
    def address(self) -> Address:
        assert self._server is not None
        return Address(*self._server.sockets[0].getsockname()[:2])

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def hang_up(self) -> None:
        """Close all connections that are open now."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                if not await self._answer(await reader.readexactly(size), writer):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except asyncio.CancelledError:
            pass  # asked to hang up; nobody waits for this task's outcome
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, frame: bytes, writer: asyncio.StreamWriter) -> bool:
        head = parse_request_header(frame)
        api = find_api(head.api_key)
        if head.api_key == ApiKey.API_VERSIONS and head.api_key not in self.handlers:
            reply: Reply = self._api_versions(head.version)
            version = head.version if self._knows_api_versions(head.version) else 0
        else:
            message, _ = api.request().decode(head.version, frame, head.body_offset)
            self.requests.append(Asked(head.api_key, head.version, message))
            made = self.handlers[head.api_key](message, head.version)
            reply = await made if isinstance(made, Awaitable) else made
            version = head.version
        if reply is HANG_UP:
            return False
        if isinstance(reply, bytes):
            writer.write(reply)
        elif isinstance(reply, Response):
            writer.writelines(encode_response(reply, version, head.correlation_id))
        await writer.drain()
        return True

    def _knows_api_versions(self, version: int) -> bool:
        lowest, highest = self.versions.get(ApiKey.API_VERSIONS, (0, 4))
        return lowest <= version <= highest

    def _api_versions(self, version: int) -> ApiVersionsResponse:
        if not self._knows_api_versions(version):
            lowest, highest = self.versions[ApiKey.API_VERSIONS]
            entry = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=lowest, max_version=highest)
            return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=(entry,))
        return ApiVersionsResponse(api_keys=self.api_keys())

    def api_keys(self) -> tuple[ApiVersion, ...]:
        """Return what is served, as ApiVersions tells it."""
        entries = []
        for key in {*self.handlers, ApiKey.API_VERSIONS}:
            lowest, highest = self.versions.get(key, find_api(key).versions)
            entries.append(ApiVersion(api_key=key, min_version=lowest, max_version=highest))
        return tuple(entries)


class Topic(NamedTuple):
    """A topic of a scripted cluster: leader and epoch of each partition."""

    topic_id: Uuid
    leaders: list[tuple[int, int]]


class ScriptedCluster:
    """Scripted brokers, numbered from 1, that agree on metadata."""

    def __init__(self, brokers: int = 1, *, topics: Mapping[str, int] | None = None) -> None:
        """Take topics as numbers of partitions; leaders are given out in turn."""
        self.brokers = {number: ScriptedBroker() for number in range(1, brokers + 1)}
        self.controller_id = 1
        self.topics: dict[str, Topic] = {}
        for name, partitions in (topics or {}).items():
            leaders = [(1 + partition % brokers, 5) for partition in range(partitions)]
            self.topics[name] = Topic(Uuid(name.encode().ljust(16, b"-")[:16]), leaders)
        for broker in self.brokers.values():
            broker.serve(ApiKey.METADATA, self.metadata)

    def __getitem__(self, number: int) -> ScriptedBroker:
        return self.brokers[number]

    def serve(
        self, api_key: ApiKey, handler: Handler, versions: tuple[int, int] | None = None
    ) -> None:
        """Answer an API alike on all brokers."""
        for broker in self.brokers.values():
            broker.serve(api_key, handler, versions)

    def asked(self, api_key: ApiKey) -> list[Any]:
        """Return the requests of one API, broker by broker."""
        return [message for broker in self.brokers.values() for message in broker.asked(api_key)]

    @property
    def bootstrap(self) -> str:
        return str(self.brokers[1].address)

    async def __aenter__(self) -> Self:
        for broker in self.brokers.values():
            await broker.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        for broker in self.brokers.values():
            await broker.__aexit__()

    def metadata(self, request: MetadataRequest, version: int) -> MetadataResponse:
        """Answer a Metadata request."""
        names: Iterable[str]
        if request.topics is None:
            names = self.topics
        else:
            names = [topic.name or "" for topic in request.topics]
        return MetadataResponse(
            brokers=tuple(
                MetadataResponseBroker(
                    node_id=BrokerId(number), host=broker.address.host, port=broker.address.port
                )
                for number, broker in self.brokers.items()
            ),
            cluster_id="scripted",
            controller_id=BrokerId(self.controller_id),
            topics=tuple(map(self._topic, names)),
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        topic = self.topics.get(name)
        if topic is None:
            return MetadataResponseTopic(
                name=TopicName(name), error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        everyone = tuple(map(BrokerId, self.brokers))
        return MetadataResponseTopic(
            name=TopicName(name),
            topic_id=topic.topic_id,
            partitions=tuple(
                MetadataResponsePartition(
                    partition_index=number,
                    leader_id=BrokerId(leader),
                    leader_epoch=epoch,
                    replica_nodes=everyone,
                    isr_nodes=everyone,
                )
                for number, (leader, epoch) in enumerate(topic.leaders)
            ),
        )
