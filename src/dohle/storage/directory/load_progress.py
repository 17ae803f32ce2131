"""What an operator sees of a start with many logs: how many there are, and how far it has come."""

from __future__ import annotations

import logging

from dohle.core.seams import Clock

logger = logging.getLogger("dohle.storage")

#: How often progress is told.
_TOLD_EACH_S = 5.0


class LoadProgress:
    """Tells of the logs of one directory that are being opened."""

    def __init__(self, clock: Clock, path: str, count: int, had_clean_shutdown: bool) -> None:
        self._clock = clock
        self._path = path
        self._count = count
        self._doing = "loaded" if had_clean_shutdown else "checked"
        self._begun_s = self._told_s = clock.monotonic_s()
        if count and not had_clean_shutdown:
            logger.info("%s was not closed cleanly: its %d logs are checked", path, count)

    def tell(self, done: int) -> None:
        """Tell how many are done, from time to time."""
        now_s = self._clock.monotonic_s()
        if now_s - self._told_s >= _TOLD_EACH_S:
            self._told_s = now_s
            logger.info(
                "%s: %d of %d logs are %s after %.0f s",
                self._path,
                done,
                self._count,
                self._doing,
                now_s - self._begun_s,
            )

    def done(self) -> None:
        """Tell how long it took."""
        if self._count:
            logger.info(
                "%s: %d logs were %s in %.1f s",
                self._path,
                self._count,
                self._doing,
                self._clock.monotonic_s() - self._begun_s,
            )
