"""How many entries a request may have: elements of its arrays, at any level.

Decoded, an entry takes ten to fifty times the memory of its bytes. So a frame of the size that is
allowed could take gigabytes, and so could many that are decoded at the same time. What has very
many entries is therefore decoded and answered one after the other, and what has even more is not
decoded to its end: its connection is closed. (A limit of our own: Kafka has none but the bytes.)
"""

from __future__ import annotations

import logging
from asyncio import Lock
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from dohle.core.steps import CountedSteps, PlainSteps, let_go
from dohle.protocol.entries import entries_of
from dohle.server.net.outcome import CloseConnection
from dohle.server.net.slices import Slices

logger = logging.getLogger("dohle.server")

#: From so many on, a request waits until no other has as many.
MANY_ENTRIES = 10_000
#: No request may have more.
ENTRIES_MAX = 1 << 20

T = TypeVar("T")


class Entries(Generic[T]):
    """A request that is being decoded."""

    def __init__(self, decode: Callable[[list[Any]], CountedSteps[tuple[T, int]]]) -> None:
        """Begin to decode; the function puts the request into a list before it is decoded."""
        self._held: list[Any] = []
        self._decoding = decode(self._held)
        self._count = 0

    def decode(self, count_max: int) -> PlainSteps[T | None]:
        """Decode on; None if there are more entries than this, and more to decode."""
        decoding, count = self._decoding, self._count
        try:
            while count <= count_max:
                count += next(decoding)
                yield
        except StopIteration as ended:
            request: T = ended.value[0]
            self._held.clear()
            return request
        self._count = count
        return None

    def give_up(self) -> PlainSteps[None]:
        """Free what was decoded so far."""
        self._decoding.close()
        while self._held:
            entries = yield from entries_of(self._held.pop())
            yield from let_go(entries)


class LargeRequest:
    """Whether a request is the one that may have many entries."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        self._has_lock = False

    async def decode(self, slices: Slices, entries: Entries[T], peer: str) -> T:
        """Decode to the end, when no other has many entries."""
        request = await slices.run(entries.decode(MANY_ENTRIES))
        if request is None:
            await slices.wait_for(self._lock.acquire())
            self._has_lock = True
            request = await slices.run(entries.decode(ENTRIES_MAX))
        if request is None:
            await slices.run(entries.give_up())
            reason = f"a request with more than {ENTRIES_MAX} entries"
            logger.warning("closing the connection of %s, which has sent %s", peer, reason)
            raise CloseConnection(reason)
        return request

    def end(self) -> None:
        """Let others have many entries."""
        if self._has_lock:
            self._has_lock = False
            self._lock.release()
