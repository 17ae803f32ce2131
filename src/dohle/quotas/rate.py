"""Rates over a few windows of time, as Kafka's metrics measure them (SampledStat).

What is recorded is added up in samples. A sample is complete when a window has passed since it
began; one more than there are windows is kept, and one whose last event is older than all windows
is dropped. Replication throttles and client quotas share this, and divide by different times.
"""

from __future__ import annotations

from collections import deque


class _Sample:
    __slots__ = ("last_ms", "size", "start_ms")

    def __init__(self, now_ms: int) -> None:
        self.start_ms = self.last_ms = now_ms
        self.size = 0.0


class WindowedSamples:
    """What happened in the last windows."""

    __slots__ = ("_samples", "window_ms", "windows")

    def __init__(self, windows: int, window_ms: int) -> None:
        self.windows = windows
        self.window_ms = window_ms
        self._samples: deque[_Sample] = deque()

    def record(self, size: float, now_ms: int) -> None:
        """Count something; what is counted by mistake is taken back by its negative."""
        samples = self._samples
        if not samples or now_ms - samples[-1].start_ms >= self.window_ms:
            samples.append(_Sample(now_ms))
            # Besides the windows that count in full, one that reaches into their time.
            if len(samples) > self.windows + 1:
                samples.popleft()
        samples[-1].size += size
        samples[-1].last_ms = now_ms

    def total(self, now_ms: int) -> float:
        """Return how much the samples have that are not too old."""
        self._drop_old(now_ms)
        return sum(sample.size for sample in self._samples)

    def elapsed_ms(self, now_ms: int) -> int:
        """Return how long ago the first of them began."""
        self._drop_old(now_ms)
        return now_ms - self._samples[0].start_ms if self._samples else 0

    def _drop_old(self, now_ms: int) -> None:
        samples, age_ms = self._samples, self.windows * self.window_ms
        while samples and now_ms - samples[0].last_ms >= age_ms:
            samples.popleft()


class Meter:
    """The rate of one who has a quota (Kafka's Rate), and how long it must wait.

    The time that the rate is measured over is never less than all windows but one: who begins may
    do at once what the quota allows in that time.
    """

    __slots__ = ("_samples",)

    def __init__(self, windows: int, window_ms: int) -> None:
        self._samples = WindowedSamples(windows, window_ms)

    def record(self, size: float, now_ms: int) -> None:
        """Count something, however much there was already."""
        self._samples.record(size, now_ms)

    def window_ms(self, now_ms: int) -> int:
        """Return the time that the rate is measured over."""
        samples = self._samples
        elapsed_ms = samples.elapsed_ms(now_ms)
        missing = samples.windows - 1 - elapsed_ms // samples.window_ms
        if missing > 0:
            elapsed_ms += missing * samples.window_ms
        return max(elapsed_ms, 1)

    def rate(self, now_ms: int) -> float:
        """Return how much there was in a second."""
        return self._samples.total(now_ms) * 1000 / self.window_ms(now_ms)

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """Return how long to wait until the rate is within the bound; 0 if it is."""
        rate = self.rate(now_ms)
        if rate <= bound:
            return 0
        # As Java rounds: half a millisecond counts as one.
        return int((rate - bound) / bound * self.window_ms(now_ms) + 0.5)
