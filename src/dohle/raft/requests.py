"""One request per node at a time, and a pause after each that failed (rule R37)."""

from __future__ import annotations

from dataclasses import dataclass

from dohle.core.ids import BrokerId
from dohle.protocol.schema import Request
from dohle.raft.values import Node


@dataclass(frozen=True, slots=True)
class InFlight:
    """A request that waits for its response."""

    correlation_id: int
    node: Node
    request: Request
    deadline_ms: float


class Requests:
    """The requests under way. A change of state drops them all: late answers are ignored."""

    def __init__(self, timeout_ms: float, backoff_ms: float) -> None:
        self._timeout_ms = timeout_ms
        self._backoff_ms = backoff_ms
        self._in_flight: dict[BrokerId, InFlight] = {}
        self._backing_off: dict[BrokerId, float] = {}
        self._next_id = 0

    def reset(self) -> None:
        """Forget all requests and pauses."""
        self._in_flight.clear()
        self._backing_off.clear()

    def begin(self, node: Node, request: Request, now_ms: float) -> int:
        """Note that a request is sent; return its correlation id."""
        self._next_id += 1
        sent = InFlight(self._next_id, node, request, now_ms + self._timeout_ms)
        self._in_flight[node.id] = sent
        return self._next_id

    def take(self, correlation_id: int) -> InFlight | None:
        """Return the request that was answered, and free its node; None if it is an old one."""
        for sent in self._in_flight.values():
            if sent.correlation_id == correlation_id:
                return self._in_flight.pop(sent.node.id)
        return None

    def back_off(self, id: BrokerId, now_ms: float) -> None:
        """Send nothing to a node for a moment."""
        self._backing_off[id] = now_ms + self._backoff_ms

    def is_ready(self, id: BrokerId, now_ms: float) -> bool:
        """Tell whether a request may be sent to the node."""
        self.expire(now_ms)
        return id not in self._in_flight and id not in self._backing_off

    def any_in_flight(self, now_ms: float) -> bool:
        """Tell whether a response of any node is awaited."""
        self.expire(now_ms)
        return bool(self._in_flight)

    @property
    def deadline_ms(self) -> float:
        """When a node becomes ready, at the earliest."""
        times = [sent.deadline_ms for sent in self._in_flight.values()]
        return min([*times, *self._backing_off.values()], default=float("inf"))

    def expire(self, now_ms: float) -> None:
        """Give up what was not answered in time, and end pauses.

        Silence is a failure: the node gets a pause, in which others may be asked.
        """
        for id, sent in list(self._in_flight.items()):
            if sent.deadline_ms <= now_ms:
                del self._in_flight[id]
                self.back_off(id, now_ms)
        for id, until in list(self._backing_off.items()):
            if until <= now_ms:
                del self._backing_off[id]
