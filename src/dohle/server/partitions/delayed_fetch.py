"""A fetch that waits for bytes: answered when there are enough, or when its time is up.

What it keeps is how much there is to read at each partition. Whatever happens to one of them makes
it look at that one, by its positions; the records are read once, when it is answered (Kafka's
DelayedFetch).
"""

from __future__ import annotations

from asyncio import Future
from typing import TYPE_CHECKING

from dohle.core.ids import TopicPartition
from dohle.protocol.messages.fetch import FetchResponse
from dohle.server.partitions.fetch_reader import FetchReader, Waiting

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer


class DelayedFetch:
    """A fetch in the purgatory."""

    def __init__(
        self,
        broker: BrokerServer,
        reader: FetchReader,
        partitions: dict[TopicPartition, Waiting],
        deadline_ms: int,
    ) -> None:
        self._broker = broker
        self._reader = reader
        self._partitions = partitions
        self._size = sum(size for _, size in partitions.values())
        self.future: Future[FetchResponse] = broker.loop.create_future()
        self.future.add_done_callback(self._gone)
        self._delayed = broker.purgatory.watch(self, partitions, deadline_ms)
        broker.expire_delayed_at(deadline_ms)

    def _gone(self, future: Future[FetchResponse]) -> None:
        """Be answered, or wait no more because the client has gone."""
        self._broker.purgatory.cancel(self._delayed)

    # What goes wrong is this request's own trouble, not that of its waker.

    def recheck(self, key: TopicPartition) -> None:
        """Look at a partition that was appended to, or has changed."""
        part, known = self._partitions[key]
        try:
            size = self._reader.readable_bytes(part)
        except Exception as error:
            self._fail(error)
            return
        if size is not None:
            self._partitions[key] = Waiting(part, size)
            self._size += size - known
            if self._size < self._reader.min_bytes:
                return
        self.answer()

    def answer(self) -> None:
        """Answer with what there is."""
        if self.future.done():
            return
        self._broker.purgatory.cancel(self._delayed)
        try:
            self._reader.read()
            self.future.set_result(self._reader.response())
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if not self.future.done():
            self._broker.purgatory.cancel(self._delayed)
            self.future.set_exception(error)
