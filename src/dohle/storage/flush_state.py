"""How much of a log is on the disk, and when more of it has to be. Pure: no I/O.

The recovery point is the offset below which everything is on the disk; recovery begins there. It
moves only after the files were synced, and goes back before a truncated log is written to again.
A flush is due at once after a roll, for the segments that were closed, and ``flush.ms`` after the
first append behind the last flush. Times are the monotonic clock's.
"""

from __future__ import annotations

from dohle.storage.config import NEVER


class FlushState:
    """The recovery point of one log, and its due flushes."""

    __slots__ = (
        "_rolled_ms",
        "recovery_point",
        "timer_ms",
        "wanted_up_to",
    )

    def __init__(self, recovery_point: int) -> None:
        self.recovery_point = recovery_point
        #: After a roll, the closed segments up to this offset must be flushed at once.
        self.wanted_up_to = recovery_point
        #: When ``flush.ms`` will have passed; None while no append waits for that.
        self.timer_ms: int | None = None
        self._rolled_ms = 0

    @property
    def due_ms(self) -> int | None:
        """When a flush is due; None if none is wanted."""
        if self.wanted_up_to > self.recovery_point:
            return self._rolled_ms
        return self.timer_ms

    def due_up_to(self, log_end_offset: int, now_ms: int) -> int:
        """Return the offset up to which the log should be on the disk by now."""
        if self.timer_ms is not None and self.timer_ms <= now_ms:
            return log_end_offset
        return self.wanted_up_to

    def rolled(self, base_offset: int, now_ms: int) -> None:
        """Ask for a flush of everything before a new segment."""
        self.wanted_up_to, self._rolled_ms = base_offset, now_ms

    def start_timer(self, log_end_offset: int, flush_ms: int, now_ms: int) -> None:
        """Ask for a flush in ``flush_ms`` if that is configured and not all is on the disk."""
        if flush_ms != NEVER and log_end_offset > self.recovery_point:
            self.timer_ms = now_ms + flush_ms

    def flushed_up_to(self, offset: int) -> None:
        """Move the recovery point up to an offset, unless it is there already."""
        self.recovery_point = max(self.recovery_point, offset)

    def truncated_to(self, end_offset: int) -> bool:
        """Follow the log end back; tell whether the recovery point on the disk is too high now."""
        self.wanted_up_to = min(self.wanted_up_to, end_offset)
        if self.recovery_point <= end_offset:
            return False
        self.recovery_point = end_offset
        return True
