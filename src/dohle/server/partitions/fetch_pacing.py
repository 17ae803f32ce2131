"""Fetches of very many partitions, one after the other: some time passes from one to the next.

A consumer that asks again as soon as it is answered would have most of the loop's time if each of
its requests takes milliseconds, and what it finds is the little that came since the last one. So
the next one is looked at when some multiple of that time has passed, and finds what many appends
have brought. Requests for few partitions, and those that come seldom, are never held up; nor is a
consumer that is behind, and finds something in most of its partitions each time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar
from weakref import WeakKeyDictionary

from dohle.core.steps import Steps
from dohle.protocol.messages.fetch import FetchRequest
from dohle.server.net.connection import Connection

T = TypeVar("T")

#: A request for fewer partitions is not held up.
PARTITIONS_MIN = 100
#: How long the next request waits, as a multiple of what this one takes, and at most.
_PAUSE = 4
_PAUSE_S_MAX = 0.25


class FetchPacing:
    """The paces of connections that ask for very many partitions."""

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._paces: WeakKeyDictionary[Connection, Pace] = WeakKeyDictionary()

    def of(self, connection: Connection, request: FetchRequest, session_size: int) -> Pace | None:
        """Return the pace to keep, if there is one."""
        count = session_size
        for topic in request.topics:
            count += len(topic.partitions)
            if count >= PARTITIONS_MIN:
                break
        if count < PARTITIONS_MIN:
            return None
        pace = self._paces.get(connection)
        if pace is None:
            pace = self._paces[connection] = Pace(self._time)
        return pace


class Pace:
    """When the next request of a connection is looked at."""

    __slots__ = ("_time", "has_found_much", "next_at")

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self.next_at = 0.0
        #: Whether most of the partitions of the last request had something: asking again pays.
        self.has_found_much = False

    def timed(self, steps: Steps[T]) -> Steps[T]:
        """Go on with a request, and take note of how long it has the loop."""
        begun = self._time()
        self.has_found_much = False
        result: object = None
        try:
            while True:
                step = steps.send(result)
                self._took(begun)
                result = yield step
                begun = self._time()
        except StopIteration as stop:
            self._took(begun)
            if self.has_found_much:
                self.next_at = 0.0
            value: T = stop.value
            return value
        finally:
            steps.close()

    def _took(self, begun: float) -> None:
        now = self._time()
        self.next_at = min(max(self.next_at, now) + _PAUSE * (now - begun), now + _PAUSE_S_MAX)
