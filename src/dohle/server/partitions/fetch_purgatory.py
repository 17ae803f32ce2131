"""The fetches that wait for records, and the timer that answers them when their time is up."""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle

from dohle.core.ids import TopicPartition
from dohle.core.seams import Clock
from dohle.replication.purgatory import Purgatory
from dohle.server.partitions.delayed_fetch import WaitingFetch


class FetchPurgatory(Purgatory[TopicPartition, WaitingFetch]):
    """The fetches that wait at partitions of a broker."""

    def __init__(self, loop: AbstractEventLoop, clock: Clock) -> None:
        super().__init__()
        self._loop = loop
        self._clock = clock
        self._expiry: TimerHandle | None = None
        self._expiry_ms = 0

    def recheck(self, key: TopicPartition) -> None:
        """Let the fetches that wait at a partition look at it."""
        if not self.count:
            return
        for delayed in self.watching(key):
            if delayed.is_waiting:
                delayed.request.recheck(key)

    def expire_at(self, deadline_ms: int) -> None:
        """Make sure that a fetch with this deadline is answered by then."""
        if self._expiry is not None:
            if deadline_ms >= self._expiry_ms:
                return
            self._expiry.cancel()
        self._expiry_ms = deadline_ms
        delay_ms = max(0, deadline_ms - self._clock.monotonic_ms())
        self._expiry = self._loop.call_later(delay_ms / 1000, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        for delayed in self.expire(self._clock.monotonic_ms()):
            delayed.request.answer()
        following = self.next_deadline_ms()
        if following is not None:
            self.expire_at(following)
