"""Access to a cluster: connections to its brokers, its metadata, and the handling of failures.

Rules it keeps:

- The bootstrap list is only the way in: afterwards brokers are known by their ids and reached at
  their advertised addresses. If none of them can be reached, the list is used again.
- One connection per broker, opened when it is first needed and again after it was lost. A broker
  answers the requests of a connection in order, so requests that may wait at the broker (a fetch, a
  JoinGroup) use a separate channel: further connections that are not shared.
- Metadata is requested when something is missing, known to be wrong or too old. Concurrent callers
  share the response.
- :meth:`Cluster.retry` is the only place that retries: as long as the error is retriable, with
  growing pauses, within the time for the operation; metadata is refreshed if the error says that it
  was wrong.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Self, TypeVar

from dohle.client.config import ClientConfig
from dohle.client.coordinators import CoordinatorRouter
from dohle.client.errors import (
    ClientClosed,
    ConnectionClosed,
    TimedOut,
    answered_error,
    is_retriable,
)
from dohle.client.metadata import BrokerInfo, ClusterMetadata, PartitionInfo, TopicInfo
from dohle.client.net.addresses import Address, parse_bootstrap
from dohle.client.net.backoff import Backoff
from dohle.client.net.connection import SHARED, Channel, Connection
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.host import Host, SystemHost
from dohle.core.ids import BrokerId, TopicName, TopicPartition
from dohle.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

_Result = TypeVar("_Result")

logger = logging.getLogger("dohle.client")


class Cluster:
    """Connections and metadata that producers, consumers and admin clients share.

    Use it as an async context manager, or :meth:`close` it. Nothing is sent before it is needed.
    """

    def __init__(
        self,
        bootstrap: str | Iterable[str],
        config: ClientConfig | None = None,
        *,
        host: Host | None = None,
    ) -> None:
        self.config = config or ClientConfig()
        #: What is known now; a new value after each answer.
        self.metadata = ClusterMetadata()
        #: Told what is waited for when a request has not been answered for some seconds.
        self.on_wait: Callable[[str], None] | None = None
        self.host: Host = host or SystemHost()
        self.rng = self.host.rng
        self.backoff = Backoff(
            self.config.retry_backoff_ms, self.config.retry_backoff_max_ms, self.rng
        )
        self._bootstrap = parse_bootstrap(bootstrap)
        self.coordinators = CoordinatorRouter(self)
        self._connections: dict[tuple[Address, Channel], Connection] = {}
        self._opening: dict[tuple[Address, Channel], asyncio.Lock] = {}
        self._channels = 0
        self._refreshing = asyncio.Lock()
        #: When the answer that tells of a topic was asked for, on the loop's clock.
        self._asked_at: dict[TopicName, float] = {}
        self._brokers_asked_at = float("-inf")
        self._is_closed = False
        #: Whether it has been told that no broker can be reached.
        self._is_unreachable = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; whoever waits on one gets an error."""
        self._is_closed = True
        connections, self._connections = self._connections, {}
        await asyncio.gather(*(connection.close() for connection in connections.values()))

    def new_channel(self, purpose: str) -> Channel:
        """Return a channel that nobody else uses."""
        self._channels += 1
        return Channel(f"{purpose} {self._channels}")

    async def close_channel(self, channel: Channel) -> None:
        """Close a channel's connections; whoever waits on one gets an error."""
        for key in [key for key in self._connections if key[1] == channel]:
            self._opening.pop(key, None)
            await self._connections.pop(key).close()

    async def any_connection(self) -> Connection:
        """Return a connection to some broker: an open one, else to one known, else bootstrap."""
        open_ones = [
            each
            for (_, channel), each in self._connections.items()
            if channel == SHARED and not each.is_closed
        ]
        if open_ones:
            return min(open_ones, key=lambda connection: connection.in_flight_requests)
        known = [broker.address for broker in self.metadata.brokers.values()]
        self.rng.shuffle(known)
        failures = []
        for address in dict.fromkeys((*known, *self._bootstrap)):
            try:
                return await self._connect(address)
            except (ConnectionClosed, TimedOut) as error:
                failures.append(str(error.args[0]))
        reason = f"no broker can be reached: {'; '.join(failures)}"
        if not self._is_unreachable:
            # Whoever waits for it is told at the end of its time, which may be a minute away.
            logger.warning("%s; still trying", reason)
            self._is_unreachable = True
        raise ConnectionClosed(reason)

    async def connection(self, node_id: BrokerId, channel: Channel = SHARED) -> Connection:
        """Return a connection to one broker."""
        broker = self.metadata.brokers.get(node_id)
        if broker is None:
            await self.refresh(())
            broker = self.metadata.brokers.get(node_id)
        if broker is None:
            raise KafkaError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id} is not in the cluster now"
            )
        return await self._connect(broker.address, channel)

    async def controller_connection(self) -> Connection:
        """Return a connection to the broker that takes requests for the controller."""
        if self.metadata.controller_id not in self.metadata.brokers:
            await self.refresh(())
        if self.metadata.controller_id not in self.metadata.brokers:
            return await self.any_connection()
        return await self.connection(self.metadata.controller_id)

    async def brokers(self) -> tuple[BrokerInfo, ...]:
        """Return all brokers, asking for them if nobody has yet."""
        if not self.metadata.brokers:
            await self.retry("the list of brokers", lambda: self.refresh(()))
        return tuple(self.metadata.brokers.values())

    def known_topic(self, name: TopicName) -> TopicInfo | None:
        """Return a topic if it is known and what is known is not too old."""
        known = self.metadata.topics.get(name)
        if known is not None:
            age_s = asyncio.get_running_loop().time() - self._asked_at[name]
            if age_s * 1000 > self.config.metadata_max_age_ms:
                return None
        return known

    async def topic(self, name: TopicName, *, allow_auto_topic_creation: bool = False) -> TopicInfo:
        """Return a topic, from memory if it is known and not too old; raise if it cannot be had."""
        known = self.known_topic(name)
        if known is None:
            await self.refresh((name,), allow_auto_topic_creation=allow_auto_topic_creation)
            known = self.metadata.topics.get(name)
        if known is None:
            raise self.metadata.errors.get(name) or KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name}"
            )
        return known

    async def leader_of(self, partition: TopicPartition) -> tuple[BrokerInfo, PartitionInfo]:
        """Return a partition's leader, or raise a retriable error if there is none now."""
        topic = await self.topic(partition.topic)
        found = topic.partitions.get(partition.partition)
        if found is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"{partition.topic} has {len(topic.partitions)} partitions and no "
                f"{partition.partition}",
            )
        leader = self.metadata.brokers.get(found.leader_id)
        if leader is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader now")
        return leader, found

    async def refresh(
        self,
        topics: Iterable[TopicName] | None,
        *,
        allow_auto_topic_creation: bool = False,
    ) -> ClusterMetadata:
        """Ask a broker about these topics, or all of them if None, and take what it says."""
        loop = asyncio.get_running_loop()
        wanted_at = loop.time()
        names = None if topics is None else tuple(sorted(set(topics)))
        async with self._refreshing:
            if names is not None and self._is_newer(names, wanted_at):
                return self.metadata
            connection = await self.any_connection()
            await asyncio.sleep(0)  # those who ask in the same turn of the loop share the answer
            asked_at = loop.time()
            answer = await connection.request(
                MetadataRequest(
                    topics=None
                    if names is None
                    else tuple(MetadataRequestTopic(name=name) for name in names),
                    allow_auto_topic_creation=allow_auto_topic_creation,
                ),
                MetadataResponse,
            )
            if answer.error_code:
                raise answered_error(answer.error_code, f"metadata of {connection.address}")
            self.metadata = self.metadata.updated(answer, complete=names is None)
            self._brokers_asked_at = asked_at
            if names is None:
                self._asked_at = {}
            for entry in answer.topics:
                if entry.name is not None:
                    self._asked_at[entry.name] = asked_at
        await self._drop_unknown_brokers()
        return self.metadata

    def note_leader(
        self,
        of: TopicPartition,
        leader_id: BrokerId,
        leader_epoch: int,
        endpoints: Iterable[BrokerInfo] = (),
    ) -> None:
        """Take a new leader that a broker named beside an error."""
        self.metadata = self.metadata.with_leader(of, leader_id, leader_epoch, endpoints)

    async def retry(
        self,
        what: str,
        operation: Callable[[], Awaitable[_Result]],
        *,
        topics: Iterable[TopicName] = (),
        timeout_ms: int | None = None,
    ) -> _Result:
        """Run an operation again while it fails with a retriable error and there is time.

        ``topics`` are those whose metadata may be the cause. What ends it is the last error, or
        :class:`TimedOut` naming that error as the cause.
        """
        timeout_s = (timeout_ms or self.config.api_timeout_ms) / 1000
        last: KafkaError | None = None
        failures = 0
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    try:
                        if last is not None and last.code.refreshes_metadata:
                            await self.refresh(topics)
                        return await operation()
                    except KafkaError as error:
                        failures += 1
                        if not self._worth_another_try(error, failures):
                            raise
                        last = error
                    await asyncio.sleep(self.backoff.delay_s(failures))
        except TimeoutError:
            because = "" if last is None else f"; the last error was {last}"
            raise TimedOut(f"{what}: no success within {timeout_s:g} s{because}") from last

    def _worth_another_try(self, error: KafkaError, failures: int) -> bool:
        if self._is_closed or failures > self.config.retries:
            return False
        return is_retriable(error)

    def _is_newer(self, names: tuple[TopicName, ...], than: float) -> bool:
        if self._brokers_asked_at < than:
            return False
        return all(self._asked_at.get(name, float("-inf")) >= than for name in names)

    async def _connect(self, address: Address, channel: Channel = SHARED) -> Connection:
        """Return the connection to an address, opening it unless another caller just does."""
        key = (address, channel)
        connection = self._connections.get(key)
        if connection is not None and not connection.is_closed:
            return connection
        async with self._opening.setdefault(key, asyncio.Lock()):
            connection = self._connections.get(key)
            if connection is not None and not connection.is_closed:
                return connection
            self._check_open()
            connection = await Connection.open(address, self.config, self.host)
            try:
                self._check_open()
            except ClientClosed:
                await connection.close()
                raise
            self._connections[key] = connection
            if self._is_unreachable:
                logger.warning("connected to %s", address)
                self._is_unreachable = False
            return connection

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed("the client is closed")

    async def _drop_unknown_brokers(self) -> None:
        """Forget connections to what is no broker any more, once they are idle."""
        known = {broker.address for broker in self.metadata.brokers.values()}
        for key in [key for key in self._connections if key[0] not in known]:
            connection = self._connections[key]
            if not connection.in_flight_requests:
                del self._connections[key]
                self._opening.pop(key, None)
                await connection.close()
