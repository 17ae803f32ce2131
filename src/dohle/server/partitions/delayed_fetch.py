"""A fetch that waits for bytes: answered when there are enough, or when its time is up.

What it keeps is how many bytes there are to read at each partition. Whatever happens to one of them
makes it look at that one, by its positions; the records are read once, when it is answered (Kafka's
DelayedFetch).
"""

from __future__ import annotations

from asyncio import Future
from typing import TYPE_CHECKING, Any, Protocol

from dohle.core.ids import TopicPartition
from dohle.core.steps import Steps
from dohle.protocol.messages.fetch import FetchResponse
from dohle.replication.fetch_sessions import SessionPartition
from dohle.replication.settled import PARTITIONS_PER_STEP
from dohle.server.net.slices import Slices, in_slices, result_of, work_for
from dohle.server.partitions.fetch_pacing import Pace
from dohle.server.partitions.fetch_reader import FetchReader

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer


class WaitingFetch(Protocol):
    """A fetch in the purgatory, as those see it who wake it."""

    @property
    def future(self) -> Future[Any]:
        """Who waits for the answer waits for this, and cancels it when the client has gone."""

    def recheck(self, key: TopicPartition) -> None:
        """Look at a partition that it watches."""

    def answer(self) -> None:
        """Answer with what there is: its time is up."""


class DelayedFetch:
    """A fetch in the purgatory."""

    def __init__(
        self, broker: BrokerServer, reader: FetchReader, deadline_ms: int, pace: Pace | None
    ) -> None:
        """Wait for what happens to the partitions from now on; ``look_at_all`` comes next."""
        self._broker = broker
        self._reader = reader
        self._pace = pace
        self._partitions = reader.wait(self.look)
        #: How much there is at each partition, if anything, and in all.
        self._sizes: dict[SessionPartition, int] = {}
        self._size = 0
        self._is_answered = False
        self.future: Future[FetchResponse] = broker.loop.create_future()
        self.future.add_done_callback(self._gone)
        self._delayed = broker.purgatory.watch(self, self._partitions, deadline_ms)
        broker.expire_delayed_at(deadline_ms)

    def _gone(self, future: Future[FetchResponse]) -> None:
        """Wait no more: it was answered, or the client has gone."""
        self._reader.wait_no_more(self.look)
        self._broker.purgatory.cancel(self._delayed)

    def look_at_all(self) -> Steps[None]:
        """See how much there is already; what changes in between is noted as ever."""
        for number, part in enumerate(self._reader.unsettled, 1):
            if not number % PARTITIONS_PER_STEP:
                yield None
            if self._is_answered:
                return
            self.look(part)

    # What goes wrong is this request's own trouble, not that of its waker.

    def recheck(self, key: TopicPartition) -> None:
        """Look at a partition that was appended to, or has changed."""
        self.look(self._partitions[key])

    def look(self, part: SessionPartition) -> None:
        """See how much there is at a partition now, and answer if that is enough."""
        if self._is_answered:
            return
        try:
            size = self._reader.readable_bytes(part)
        except Exception as error:
            self._fail(error)
            return
        if size is not None:
            known = self._sizes.get(part, 0)
            if size == known:
                return
            self._sizes[part] = size
            self._size += size - known
            if self._size < self._reader.min_bytes:
                return
        self.answer()

    def answer(self) -> None:
        """Answer with what there is, unless the client has gone: that is told a turn later."""
        if self._is_answered or self.future.done():
            return
        self._is_answered = True
        self._broker.purgatory.cancel(self._delayed)
        if self._pace is not None:
            work_for(self._broker.loop, self.future, self._answer_later(self._pace))
            return
        try:
            found = in_slices(self._broker.turns, self._read())
        except Exception as error:
            self.future.set_exception(error)
            return
        if isinstance(found, Future):
            work_for(self._broker.loop, self.future, result_of(found))
        else:
            self.future.set_result(found)

    async def _answer_later(self, pace: Pace) -> FetchResponse:
        """Answer in a turn of its own, and not in that of its waker: it takes a while."""
        await self._broker.turns.turn(0.0)
        return await result_of(await Slices(self._broker.turns).run(pace.timed(self._read())))

    def _read(self) -> Steps[FetchResponse | Future[FetchResponse]]:
        yield from self._reader.read()
        if self._reader.remote:
            return self._broker.answer_from_tier(self._reader)
        if self._pace is not None:
            self._pace.has_found_much = self._reader.has_found_much()
        return (yield from self._reader.response())

    def _fail(self, error: Exception) -> None:
        if not (self._is_answered or self.future.done()):
            self._is_answered = True
            self.future.set_exception(error)
