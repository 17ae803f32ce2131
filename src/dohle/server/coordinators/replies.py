"""Those who wait for the reply of a coordinator's machine, by the ticket that it keeps of them."""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

from dohle.coordination.effects import Ticket
from dohle.core.errors import KafkaError
from dohle.protocol.schema import Response

Refuse = Callable[[KafkaError], Response]


class _Waiting(NamedTuple):
    """Who waits for a reply, and how to make one from an error."""

    future: Future[Any]
    refuse: Refuse | None
    shard_index: int


class Replies:
    """All who wait. Each is answered once; one that has gone is not missed."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._tickets = count(1)
        self._waiting: dict[Ticket, _Waiting] = {}

    def new_ticket(self) -> Ticket:
        """Return a ticket for a new request."""
        return Ticket(next(self._tickets))

    def wait(self, ticket: Ticket, shard_index: int, refuse: Refuse | None) -> Future[Any]:
        """Wait for the reply; without ``refuse`` an error is raised."""
        future: Future[Any] = self._loop.create_future()
        self._waiting[ticket] = _Waiting(future, refuse, shard_index)
        return future

    def answer(self, ticket: Ticket, answer: object) -> None:
        """Reply with what was asked for, or with an error."""
        if isinstance(answer, KafkaError):
            self.refuse(ticket, answer)
            return
        waiting = self._waiting.pop(ticket, None)
        if waiting is not None and not waiting.future.done():
            waiting.future.set_result(answer)

    def refuse(self, ticket: Ticket, error: KafkaError) -> None:
        """Reply with an error."""
        waiting = self._waiting.pop(ticket, None)
        if waiting is None or waiting.future.done():
            return
        if waiting.refuse is None:
            waiting.future.set_exception(error)
        else:
            waiting.future.set_result(waiting.refuse(error))

    def refuse_all(self, shard_index: int, error: KafkaError) -> None:
        """Reply with an error to all who wait for one shard."""
        for ticket, waiting in list(self._waiting.items()):
            if waiting.shard_index == shard_index:
                self.refuse(ticket, error)
