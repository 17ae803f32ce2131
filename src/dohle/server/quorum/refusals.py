"""Warnings of requests that the controller refuses, each of them only now and then.

A broker that is refused asks again, perhaps for ever: one that was unregistered and goes on running
sends a heartbeat every two seconds.
"""

from __future__ import annotations

import logging

from dohle.core.seams import Clock

logger = logging.getLogger("dohle.server")

#: The same warning comes again no sooner.
_TOLD_EACH_MS = 600_000
#: How many different ones are remembered.
_REMEMBERED = 100


class Refusals:
    """What was told, and when."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told_ms: dict[str, int] = {}

    def tell(self, request: object, reason: str) -> None:
        """Warn of a request that was refused, unless the same was told a short time ago."""
        text = f"{type(request).__name__} was refused: {reason}"
        now_ms = self._clock.monotonic_ms()
        last_ms = self._told_ms.get(text)
        if last_ms is not None and now_ms - last_ms < _TOLD_EACH_MS:
            return
        # The oldest come first, and go first.
        self._told_ms.pop(text, None)
        self._told_ms[text] = now_ms
        if len(self._told_ms) > _REMEMBERED:
            del self._told_ms[next(iter(self._told_ms))]
        logger.warning("%s", text)
