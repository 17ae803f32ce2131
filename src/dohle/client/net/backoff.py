"""How long to wait before a retry: twice as long each time up to a limit, with jitter.

The jitter of 20 % keeps clients that failed together from coming back together.
"""

from __future__ import annotations

from dataclasses import dataclass

from dohle.core.seams import Rng

_JITTER = 0.2
_DOUBLINGS_MAX = 32


@dataclass(frozen=True, slots=True)
class Backoff:
    """The delays between attempts: ``retry.backoff.ms`` to ``retry.backoff.max.ms``."""

    first_ms: int
    max_ms: int
    rng: Rng

    def delay_s(self, failures: int) -> float:
        """Return the seconds to wait after this many consecutive failures."""
        doublings = min(max(failures - 1, 0), _DOUBLINGS_MAX)
        delay_ms = min(self.first_ms << doublings, self.max_ms)
        return delay_ms * self.rng.uniform(1 - _JITTER, 1 + _JITTER) / 1000
