"""How fast throttled replicas are copied (KIP-73, F18): Kafka's ReplicationQuotaManager.

A topic names the replicas that are throttled, and a broker's rates bound how much it sends to such
replicas, or fetches for them, in a second: all of them together, and on average over a few windows
of time. Only what is out of sync is held back: otherwise the throttle itself would push replicas
out of the ISR.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Self

from dohle.quotas.rate import WindowedSamples

_ALL = "*"
#: Kafka's default: no limit.
UNLIMITED = 2**63 - 1


class ThrottledReplicas(NamedTuple):
    """The replicas of a topic that are throttled."""

    are_all: bool = False
    #: By partition and broker.
    some: frozenset[tuple[int, int]] = frozenset()

    @classmethod
    def of(cls, items: Iterable[str]) -> Self:
        """Parse ``partition:broker`` of each, or ``*``."""
        texts = [item.strip() for item in items]
        if texts == [_ALL]:
            return cls(are_all=True)
        pairs = (text.split(":") for text in texts)
        return cls(some=frozenset((int(partition), int(broker)) for partition, broker in pairs))

    def has(self, partition: int, broker: int) -> bool:
        """Tell whether the replica of a partition on a broker is one of them."""
        return self.are_all or (partition, broker) in self.some


class ReplicationQuota:
    """Counts what is copied of throttled replicas, and tells when it is too much.

    The rate is Kafka's SimpleRate: all that the last windows have, by the time since the first of
    them began, which counts as one window at least.
    """

    def __init__(self, windows: int, window_ms: int) -> None:
        self.bytes_per_second = UNLIMITED
        self._samples = WindowedSamples(windows, window_ms)

    def record(self, size: int, now_ms: int) -> None:
        """Count what was copied, however much there was already."""
        self._samples.record(size, now_ms)

    def rate(self, now_ms: int) -> float:
        """Return the bytes in a second."""
        return self._samples.total(now_ms) * 1000 / self._elapsed_ms(now_ms)

    def is_exceeded(self, now_ms: int) -> bool:
        """Tell whether no more may be copied now."""
        return self.bytes_per_second != UNLIMITED and self.rate(now_ms) > self.bytes_per_second

    def wait_ms(self, now_ms: int) -> int:
        """Return when to look again; 0 if more may be copied now."""
        if not self.is_exceeded(now_ms):
            return 0
        samples = self._samples
        longest = samples.window_ms
        if not self.bytes_per_second:
            return longest
        due_ms = samples.total(now_ms) * 1000 / self.bytes_per_second
        # Windows may go out of sight before.
        return min(int(due_ms - samples.elapsed_ms(now_ms)) + 1, longest)

    def _elapsed_ms(self, now_ms: int) -> int:
        """Return how long what is measured has taken."""
        return max(self._samples.elapsed_ms(now_ms), self._samples.window_ms)
