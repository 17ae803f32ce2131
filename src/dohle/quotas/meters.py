"""The meters of one quota key: one for everybody who shares a quota, on this broker."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, NamedTuple

from dohle.quotas.entities import Bucket, Limit
from dohle.quotas.rate import Meter

#: Client ids are whatever clients say. More meters than these are not kept: the one that was not
#: used for longest goes.
METERS_MAX: Final = 10_000
#: What was not used for this long is told of no more.
IDLE_MS: Final = 3_600_000


class _Metered:
    __slots__ = ("meter", "throttled_count", "throttled_ms", "used_ms")

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.used_ms = 0
        #: How often somebody was told to wait, and for how long in all.
        self.throttled_count = self.throttled_ms = 0


class MeterReading(NamedTuple):
    """What there is to tell about one who is measured."""

    bucket: Bucket
    rate: float
    #: On average, of those times that somebody had to wait.
    throttle_ms: float


class Meters:
    """How much was done lately by each of those who are measured."""

    def __init__(self, windows: int, window_ms: int, meters_max: int = METERS_MAX) -> None:
        self._windows = windows
        self._window_ms = window_ms
        self._meters_max = meters_max
        self._by_bucket: OrderedDict[Bucket, _Metered] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_bucket)

    def at_once_max(self, limit: Limit) -> float:
        """Return what may be done at once by somebody who has done nothing lately."""
        return limit.bound * (self._windows - 1) * self._window_ms / 1000

    def count(self, limit: Limit, size: float, now_ms: int) -> None:
        """Count what was done; nobody waits for it before ``take``."""
        self._metered(limit.bucket, now_ms).meter.record(size, now_ms)

    def take(
        self, limit: Limit, size: float, now_ms: int, throttle_ms_max: int | None = None
    ) -> int:
        """Count what was done; return how long its sender must wait."""
        metered = self._metered(limit.bucket, now_ms)
        metered.meter.record(size, now_ms)
        throttle_ms = metered.meter.throttle_ms(limit.bound, now_ms)
        if throttle_ms_max is not None:
            throttle_ms = min(throttle_ms, throttle_ms_max)
        if throttle_ms:
            metered.throttled_count += 1
            metered.throttled_ms += throttle_ms
        return throttle_ms

    def take_if_allowed(self, limit: Limit, size: float, now_ms: int) -> int:
        """Do the same before it is done: what must wait is not done, and not counted."""
        throttle_ms = self.take(limit, size, now_ms)
        if throttle_ms:
            self.count(limit, -size, now_ms)
        return throttle_ms

    def told(self, now_ms: int) -> Iterator[MeterReading]:
        """Return what there is to tell about everybody, and forget those that were long idle."""
        for bucket, metered in list(self._by_bucket.items()):
            if now_ms - metered.used_ms >= IDLE_MS:
                self._by_bucket.pop(bucket, None)
                continue
            count = metered.throttled_count
            average = metered.throttled_ms / count if count else 0.0
            yield MeterReading(bucket, metered.meter.rate(now_ms), average)

    def _metered(self, bucket: Bucket, now_ms: int) -> _Metered:
        found = self._by_bucket.get(bucket)
        if found is None:
            if len(self._by_bucket) >= self._meters_max:
                self._by_bucket.popitem(last=False)
            meter = Meter(self._windows, self._window_ms)
            found = self._by_bucket[bucket] = _Metered(meter)
        else:
            self._by_bucket.move_to_end(bucket)
        found.used_ms = now_ms
        return found
