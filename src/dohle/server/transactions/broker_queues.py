"""What this broker asks others, in batches: a queue for each of them (H6, H7).

One request is on its way to a broker at a time, on a connection of its own; all that has come to
wait meanwhile goes with the next. If a broker cannot be reached, or does not answer, whatever was
to go there has failed, and whoever put it into the queue decides what next. Nothing is sent twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from dohle.client.errors import ConnectionClosed, TimedOut
from dohle.client.net.connection import Connection
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId
from dohle.server.links import LinkSettings, NodeLink, broker_address

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer

logger = logging.getLogger("dohle.server")

T = TypeVar("T")


class BatchSender(Protocol[T]):
    """Makes requests of what waits, and hands out the answers."""

    def take(self, waiting: deque[T]) -> list[T]:
        """Take out of the queue what goes with the next request."""

    async def send(self, connection: Connection, batch: Sequence[T]) -> None:
        """Send a request, and tell each what became of it; KafkaError if nobody was told."""

    def failed(self, batch: Sequence[T], error: KafkaError) -> None:
        """Tell each that it is not known what became of it."""


class BrokerQueues(Generic[T]):
    """The queues to all other brokers, for one kind of request."""

    def __init__(self, broker: BrokerServer, name: str, sender: BatchSender[T]) -> None:
        """Prepare; ``name`` tells the connections from others."""
        self._broker = broker
        self._sender = sender
        config = broker.config
        self._settings = LinkSettings(
            f"broker-{broker.node_id}-{name}",
            config.get_int("request.timeout.ms"),
            config.get_int("socket.connection.setup.timeout.ms"),
            security=broker.link_security,
        )
        self._queues: dict[BrokerId, _Queue[T]] = {}
        self._is_stopped = False

    def put(self, broker_id: BrokerId, item: T) -> None:
        """Send something to a broker, with the next request."""
        if self._is_stopped:
            self._sender.failed([item], ConnectionClosed("this broker stops"))
            return
        queue = self._queues.get(broker_id)
        if queue is None:
            link = NodeLink(self._broker.loop, self._broker.host, self._settings)
            queue = _Queue(self._broker, broker_id, link, self._sender)
            self._queues[broker_id] = queue
        queue.put(item)

    def give_up(self, broker_id: BrokerId) -> None:
        """Wait no longer for a broker that is gone: its partitions have other leaders now."""
        queue = self._queues.get(broker_id)
        if queue is not None:
            queue.give_up(ConnectionClosed(f"broker {broker_id} is gone"))

    async def stop(self) -> None:
        """Give up everything, and return when no connection is left."""
        self._is_stopped = True
        queues, self._queues = self._queues, {}
        await asyncio.gather(*(queue.stop() for queue in queues.values()))


class _Queue(Generic[T]):
    """What goes to one broker."""

    def __init__(
        self, broker: BrokerServer, broker_id: BrokerId, link: NodeLink, sender: BatchSender[T]
    ) -> None:
        self._broker = broker
        self._broker_id = broker_id
        self._link = link
        self._sender = sender
        self._waiting: deque[T] = deque()
        self._on_its_way: list[T] = []
        self._task: asyncio.Task[None] | None = None
        self._is_reached = True

    def put(self, item: T) -> None:
        self._waiting.append(item)
        if self._task is None or self._task.done():
            # It begins after this turn of the loop: what comes together goes together.
            self._task = self._broker.loop.create_task(self._work())

    async def _work(self) -> None:
        while self._waiting:
            try:
                await self._exchange()
            except KafkaError as error:
                self._failed(error)
            except Exception as error:
                logger.exception(
                    "a request to broker %d failed. Please report this.", self._broker_id
                )
                self._failed(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
            self._on_its_way = []
        self._task = None

    async def _exchange(self) -> None:
        broker = self._broker
        listener_name = broker.config.placement.inter_broker_listener_name
        address = broker_address(broker.image, self._broker_id, listener_name)
        connection = await self._link.connect(address)
        self._on_its_way = self._sender.take(self._waiting)
        if self._on_its_way:
            await self._sender.send(connection, self._on_its_way)
            self._is_reached = True

    def _failed(self, error: KafkaError) -> None:
        if isinstance(error, ConnectionClosed | TimedOut):
            self._link.cut()
        if self._is_reached:
            self._is_reached = False
            logger.warning(
                "broker %d cannot be reached for transactions: %s; trying again",
                self._broker_id,
                error,
            )
        failed = self._on_its_way
        if not failed:
            failed = list(self._waiting)
            self._waiting.clear()
        self._on_its_way = []
        self._tell(failed, error)

    def _tell(self, failed: Sequence[T], error: KafkaError) -> None:
        """Tell that the outcome of some is not known; a failure in that does not end the queue."""
        try:
            self._sender.failed(failed, error)
        except Exception:
            logger.exception(
                "a failure to ask broker %d was not taken in. Please report this.", self._broker_id
            )

    def give_up(self, error: KafkaError) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        failed = [*self._on_its_way, *self._waiting]
        self._on_its_way = []
        self._waiting.clear()
        self._link.cut()
        self._tell(failed, error)

    async def stop(self) -> None:
        task = self._task
        self.give_up(ConnectionClosed("this broker stops"))
        if task is not None:
            await asyncio.wait([task])
        await self._link.close()
