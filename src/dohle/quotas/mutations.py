"""How many partitions clients may have created and deleted (KIP-599): buckets of tokens.

A bucket starts full and fills up steadily. Partitions cost a token each; a bucket may be overdrawn
once, and its client then has to wait until it is out of debt.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from dohle.core.errors import ErrorCode, KafkaError
from dohle.quotas.entities import Bucket, Limit

#: More buckets than these are not kept: the one that was not used for longest goes.
BUCKETS_MAX: Final = 10_000

#: Pays for so many partitions; raises THROTTLING_QUOTA_EXCEEDED if there is no more to spend.
Spend = Callable[[int], None]


def free(count: int) -> None:
    """Take what has no limit."""


class TokenBucket:
    """Kafka's TokenBucket."""

    __slots__ = ("_filled_ms", "_tokens")

    def __init__(self, burst: float, now_ms: int) -> None:
        self._tokens = burst
        self._filled_ms = now_ms

    def tokens(self, rate: float, burst: float, now_ms: int) -> float:
        """Return how many there are, after what has come since the last time."""
        came = rate * (now_ms - self._filled_ms) / 1000
        self._tokens, self._filled_ms = min(burst, self._tokens + came), now_ms
        return self._tokens

    def take(self, count: int) -> None:
        """Take tokens, also such that are not there."""
        self._tokens -= count


class Spending:
    """What one request spends.

    A strict one is refused what comes when the bucket is overdrawn already. Others are served, and
    have to wait afterwards.
    """

    def __init__(
        self,
        bucket: TokenBucket,
        rate: float,
        burst: float,
        now_ms: Callable[[], int],
        *,
        is_strict: bool,
    ) -> None:
        self._bucket = bucket
        self._rate = rate
        self._burst = burst
        self._now_ms = now_ms
        self._is_strict = is_strict
        self._until_ms = 0

    def spend(self, count: int) -> None:
        """Pay for so many partitions."""
        now_ms = self._now_ms()
        tokens = self._bucket.tokens(self._rate, self._burst, now_ms)
        if self._is_strict:
            if tokens < 0:
                self._wait(tokens, now_ms)
                raise KafkaError(
                    ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded."
                )
            self._bucket.take(count)
        else:
            self._bucket.take(count)
            if tokens - count < 0:
                self._wait(tokens - count, now_ms)

    def _wait(self, tokens: float, now_ms: int) -> None:
        self._until_ms = now_ms + int(-tokens / self._rate * 1000 + 0.5)

    def throttle_ms(self) -> int:
        """Return how long its client has to wait from now on."""
        return max(0, self._until_ms - self._now_ms())


class Buckets:
    """The buckets of all who have such a quota."""

    def __init__(self, window_s: float, buckets_max: int = BUCKETS_MAX) -> None:
        """``window_s`` is the time for which a bucket has tokens when it is full."""
        self._window_s = window_s
        self._buckets_max = buckets_max
        self._by_bucket: OrderedDict[Bucket, TokenBucket] = OrderedDict()

    def spending(self, limit: Limit, now_ms: Callable[[], int], *, is_strict: bool) -> Spending:
        """Return what a request of one of them pays by."""
        burst = limit.bound * self._window_s
        found = self._by_bucket.get(limit.bucket)
        if found is None:
            if len(self._by_bucket) >= self._buckets_max:
                self._by_bucket.popitem(last=False)
            found = self._by_bucket[limit.bucket] = TokenBucket(burst, now_ms())
        else:
            self._by_bucket.move_to_end(limit.bucket)
        return Spending(found, limit.bound, burst, now_ms, is_strict=is_strict)
