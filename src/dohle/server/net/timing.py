"""How long requests take, from the bytes' arrival until the answer is handed to the socket.

A request that takes the slow path is timed itself; of those of a kind that come one after the other
within a few milliseconds, one of ``THICK_PER_SAMPLE``. One that a shortcut serves costs little more
than a look at the clock, so those are timed together, by the read event that brought them, and of
a connection only one event in ``EVENTS_PER_SAMPLE``. Each request of an event has waited for the
others, and took its share of the time.

A request's time begins when its bytes have arrived or, if requests before it on its connection had
to be answered first, when they were: as in Kafka, which reads the next one only then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from dohle.metrics.requests import RequestMetrics, ShortcutUsage
from dohle.server.net.metering import Charge

#: Each request, when it was answered, at DEBUG.
request_log = logging.getLogger("dohle.request")

#: Of so many read events of a connection one is timed, if shortcuts serve what it brings.
EVENTS_PER_SAMPLE = 64

#: Of so many requests of a kind one is timed, if less than this lies between two that were. (An odd
#: number: requests that come in groups are not always timed at the same place of the group.)
THICK_PER_SAMPLE = 7
THICK_S = 0.005


class TimedRequest:
    """A request on its way through the broker. Times are the monotonic clock's, in seconds."""

    __slots__ = (
        "answered",
        "arrived",
        "charge",
        "handled",
        "metrics",
        "request_bytes",
        "response_bytes",
        "started",
        "times",
        "told",
        "weight",
    )

    def __init__(
        self,
        metrics: RequestMetrics,
        times: ConnectionTimes | None,
        arrived: float = 0.0,
        started: float = 0.0,
        request_bytes: int = 0,
        weight: int = 1,
    ) -> None:
        """Time a request of a kind; without ``times``, what is noted here is not written down."""
        self.times = times
        #: The counts of its kind.
        self.metrics = metrics
        #: How many requests it stands for.
        self.weight = weight
        self.arrived = arrived
        self.started = self.handled = self.answered = started
        self.request_bytes = request_bytes
        self.response_bytes = 0
        #: Who has asked what, if the request log wants to know.
        self.told: str | None = None
        #: What it costs, if its sender has quotas.
        self.charge: Charge | None = None

    def sent(self, now: float) -> None:
        """Write down what it took, now that the answer is sent."""
        self.metrics.record(
            self.arrived,
            self.started,
            self.handled,
            self.answered,
            now,
            self.request_bytes,
            self.weight,
        )
        if self.told is not None:
            request_log.debug(
                "%s requestBytes=%d responseBytes=%d totalTimeMs=%.3f requestQueueTimeMs=%.3f"
                " localTimeMs=%.3f remoteTimeMs=%.3f sendTimeMs=%.3f",
                self.told,
                self.request_bytes,
                self.response_bytes,
                (now - self.arrived) * 1000,
                (self.started - self.arrived) * 1000,
                (self.handled - self.started) * 1000,
                (self.answered - self.handled) * 1000,
                (now - self.answered) * 1000,
            )


class RequestKind:
    """The requests of one kind on the slow path: which of them are timed."""

    __slots__ = ("_left", "_timed_at", "_untimed", "_weight", "metrics")

    def __init__(self, metrics: RequestMetrics) -> None:
        self.metrics = metrics
        self._untimed = TimedRequest(metrics, None)
        #: How many more come before one is timed, and how many that one will stand for.
        self._left = 0
        self._weight = 1
        self._timed_at = -THICK_S

    def begin(
        self,
        times: ConnectionTimes,
        arrived: float,
        now: Callable[[], float],
        request_bytes: int,
        *,
        always: bool = False,
    ) -> TimedRequest:
        """Begin to time a request, if it is one of those."""
        if self._left and not always:
            self._left -= 1
            return self._untimed
        weight, self._weight = self._weight, 1
        if arrived - self._timed_at < THICK_S and not always:
            self._left = THICK_PER_SAMPLE - 1
            self._weight = THICK_PER_SAMPLE
        self._timed_at = arrived
        return TimedRequest(self.metrics, times, arrived, now(), request_bytes, weight)


class SharedEvent(NamedTuple):
    """The requests of one kind that shortcuts have served in one read event."""

    metrics: RequestMetrics
    number: int
    #: How many requests of all kinds the event had.
    event_count: int
    arrived: float
    #: Of the request, on average.
    request_bytes: int

    def sent(self, answered: float, now: float) -> None:
        """Write down how long each took: its share of the event, and the wait for the others."""
        share = (answered - self.arrived) / self.event_count
        self.metrics.record(
            self.arrived,
            answered - share,
            answered,
            answered,
            now,
            self.request_bytes,
            self.number * EVENTS_PER_SAMPLE,
        )


class ConnectionTimes:
    """What is being timed of one connection; mostly nothing."""

    __slots__ = ("_answered", "_now", "_shared", "_timed", "is_due", "untimed_events", "usages")

    def __init__(self, now: Callable[[], float]) -> None:
        #: How much use was made of the connection's shortcuts, by API key.
        self.usages: dict[int, ShortcutUsage] = {}
        #: Whether anything is timed whose answer is not sent yet.
        self.is_due = False
        #: Requests that were answered, and whose answers are not sent yet.
        self._timed: list[TimedRequest] = []
        #: How many more read events come before one is timed.
        self.untimed_events = 0
        self._now = now
        #: What shortcuts have served in the event that is being timed.
        self._shared: list[SharedEvent] = []
        self._answered = 0.0

    def begin_event(self) -> dict[int, int]:
        """Begin to time a read event; return what is to be given to ``end_event``."""
        self.untimed_events = EVENTS_PER_SAMPLE - 1
        return {key: usage.shortcut.served for key, usage in self.usages.items()}

    def end_event(self, before: Mapping[int, int], arrived: float, count: int, size: int) -> None:
        """Take note of what shortcuts have served in an event of so many requests and bytes."""
        self._shared = [
            SharedEvent(usage.metrics, served, count, arrived, size // count)
            for key, usage in self.usages.items()
            if key in before and (served := usage.shortcut.served - before[key]) > 0
        ]
        self.is_due = bool(self._shared or self._timed)

    def add(self, timed: TimedRequest) -> None:
        """Take note of a request that is answered, and about to be sent."""
        self._timed.append(timed)
        self.is_due = True

    def answered(self) -> None:
        """Take note that the requests of the event are answered."""
        if self._shared:
            self._answered = self._now()

    def sent(self) -> None:
        """Write down how long the requests took, now that their answers are sent."""
        if not self.is_due:
            return
        self.is_due = False
        now = self._now()
        timed, self._timed = self._timed, []
        for request in timed:
            request.sent(now)
        if self._shared:
            shared, self._shared = self._shared, []
            for event in shared:
                event.sent(self._answered, now)
