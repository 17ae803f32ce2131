"""What the active controller knows beyond what is committed, for as long as it leads.

It decides on the image as it will be once everything that it has appended is committed, and answers
when that is so. If it stops leading before, nobody knows what becomes of the rest: all of that is
thrown away, and whoever waits for it is told to ask the next controller.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future
from collections import deque

from dohle.metadata.decision import ApiError
from dohle.metadata.heartbeats import BrokerHeartbeats
from dohle.metadata.image import ClusterImage


def stable_offset(image: ClusterImage) -> int:
    """Return the last offset of which the effect is certain: a transaction may be aborted."""
    transaction = image.transaction
    return image.offset if transaction is None else transaction.start_offset - 1


class Claim:
    """The leadership of one epoch."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        epoch: int,
        committed: ClusterImage,
        heartbeats: BrokerHeartbeats,
    ) -> None:
        self.epoch = epoch
        #: As it is after everything that was appended.
        self.image = committed
        self.heartbeats = heartbeats
        #: Done when the log was completed, so that requests can be decided.
        self.activated: Future[None] = loop.create_future()
        self._loop = loop
        self._stable_offset = stable_offset(committed)
        # In the order of their offsets.
        self._waiting: deque[tuple[int, Future[None]]] = deque()
        self._lost: ApiError | None = None

    def commit(self, offset: int) -> None:
        """Let those go on who wait for this offset or a lower one."""
        self._stable_offset = offset
        waiting = self._waiting
        while waiting and waiting[0][0] <= offset:
            _, future = waiting.popleft()
            if not future.done():
                future.set_result(None)

    def settled(self) -> Future[None]:
        """Return what is done when all that was appended until now is committed, or never will."""
        future: Future[None] = self._loop.create_future()
        if self._lost is not None:
            future.set_exception(self._lost.exception())
        elif self.image.offset <= self._stable_offset:
            future.set_result(None)
        else:
            self._waiting.append((self.image.offset, future))
        return future

    def fail(self, error: Exception) -> None:
        """Give those who wait for the beginning this error."""
        if not self.activated.done():
            self.activated.set_exception(error)
            # Perhaps nobody waits for it.
            self.activated.exception()

    def lose(self, error: ApiError) -> None:
        """Give everybody who waits this error, and all who come later."""
        self._lost = error
        self.fail(error.exception())
        waiting, self._waiting = self._waiting, deque()
        for _, future in waiting:
            if not future.done():
                future.set_exception(error.exception())
