"""What is known of the requests of each kind: how many, with which errors, and how long they took.

Counts are exact. Times are of samples (``samples``): every request that takes the slow path, and of
those that a shortcut serves what one read event in some brought, with the weight of all.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from dohle.metrics.samples import Samples


class RequestMetrics:
    """One kind of request. Names are those of Kafka's ``RequestMetrics``."""

    __slots__ = ("by_version", "errors", "name", "samples")

    def __init__(self, name: str) -> None:
        self.name = name
        self.by_version: Counter[int] = Counter()
        #: How often each error code was answered; 0 is none.
        self.errors: Counter[int] = Counter()
        #: Seconds in all, waiting to be handled, being handled, waiting for others, being sent; the
        #: request's bytes; how many requests the sample stands for.
        self.samples = Samples()

    def record(
        self,
        arrived: float,
        started: float,
        handled: float,
        answered: float,
        sent: float,
        size: int,
        weight: float = 1.0,
    ) -> None:
        """Keep the times of a request, of the monotonic clock in seconds."""
        self.samples.add(
            sent - arrived,
            started - arrived,
            handled - started,
            answered - handled,
            sent - answered,
            size,
            weight,
        )


class Serving(Protocol):
    """Whatever serves requests of one kind and version, and counts them."""

    served: int


class ShortcutUsage:
    """What a shortcut has served, and how much of it is in the counts of its kind."""

    __slots__ = ("_counted", "_metrics", "_version", "shortcut")

    def __init__(self, metrics: RequestMetrics, version: int, shortcut: Serving) -> None:
        self.shortcut = shortcut
        self._metrics = metrics
        self._version = version
        self._counted = shortcut.served

    @property
    def metrics(self) -> RequestMetrics:
        """The counts of its kind."""
        return self._metrics

    def count(self) -> None:
        """Add what was served since the last time to the counts of its kind."""
        served = self.shortcut.served - self._counted
        if served:
            self._counted += served
            self._metrics.by_version[self._version] += served
            # Whatever was refused is counted where that is said: see ``AllRequests.refused``.
            self._metrics.errors[0] += served


class AllRequests:
    """The requests of a broker, by the name of their kind."""

    def __init__(self) -> None:
        self.by_name: dict[str, RequestMetrics] = {}

    def of(self, name: str) -> RequestMetrics:
        """Return those of one kind. Kinds are Kafka's: no client can make one up."""
        found = self.by_name.get(name)
        if found is None:
            found = self.by_name[name] = RequestMetrics(name)
        return found

    def refused(self, name: str, code: int) -> None:
        """Take note that a request which a shortcut has served was answered with an error."""
        errors = self.of(name).errors
        errors[code] += 1
        errors[0] -= 1
