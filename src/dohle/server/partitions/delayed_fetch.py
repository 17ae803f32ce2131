"""A fetch that waits for bytes: answered when there are enough, or when its time is up."""

from __future__ import annotations

from asyncio import Future
from typing import TYPE_CHECKING

from dohle.protocol.messages.fetch import FetchResponse
from dohle.server.partitions.fetch_reader import FetchReader

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer


class DelayedFetch:
    """A fetch in the purgatory. Any change of its partitions makes it look again."""

    def __init__(self, broker: BrokerServer, reader: FetchReader, deadline_ms: int) -> None:
        self._broker = broker
        self._reader = reader
        self._deadline_ms = deadline_ms
        self.future: Future[FetchResponse] = broker.loop.create_future()
        self.future.add_done_callback(self._gone)
        self._watch()

    def _watch(self) -> None:
        self._delayed = self._broker.purgatory.watch(self, self._reader.keys, self._deadline_ms)
        self._broker.expire_delayed_at(self._deadline_ms)

    def _gone(self, future: Future[FetchResponse]) -> None:
        if future.cancelled():
            self._broker.purgatory.cancel(self._delayed)

    def recheck(self) -> None:
        """Look again: something has been appended, or a partition has changed."""
        if self._look():
            if self._reader.is_enough:
                self._answer()
            else:
                self._watch()

    def expire(self) -> None:
        """Answer with what there is."""
        if self._look():
            self._answer()

    # An error here belongs to this request alone: it must not reach whoever woke it.

    def _look(self) -> bool:
        """Read again; tell whether the request still has to be answered."""
        if self.future.done():
            return False
        try:
            self._reader.read()
        except Exception as error:
            self.future.set_exception(error)
        return not self.future.done()

    def _answer(self) -> None:
        try:
            self.future.set_result(self._reader.response())
        except Exception as error:
            self.future.set_exception(error)
