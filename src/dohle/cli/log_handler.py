"""Where log lines go: through a bounded queue to a thread that writes them.

Whoever logs never waits for the reader of the log. If that is stuck, the queue fills up, what does
not fit is dropped, and the number of dropped lines is told as soon as lines are written again. Only
a critical message waits until it is written, for a moment at most: the node is about to end.

The thread writes to the descriptor itself. The lock of ``sys.stderr`` must not be held by somebody
who is stuck while the process ends.
"""

from __future__ import annotations

import logging
import os
import select
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Final

from dohle.cli.log_limits import LogLimits
from dohle.core.host import start_daemon_thread

QUEUED_BYTES_MAX: Final = 4 << 20
#: How long a flush waits for a reader who does not read.
PATIENCE_S: Final = 2.0

_WRITE_BYTES = 1 << 16
#: How often the thread looks whether an interval with suppressed lines is over.
_LOOK_S = 1.0
_LOGGER = "dohle.log"


class LogHandler(logging.Handler):
    """Writes lines to a descriptor from a thread of its own."""

    def __init__(
        self,
        descriptor: int,
        formatter: logging.Formatter,
        *,
        limits: LogLimits | None = None,
        queued_bytes_max: int = QUEUED_BYTES_MAX,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self._descriptor = descriptor
        self._limits = limits or LogLimits()
        self._queued_bytes_max = queued_bytes_max
        self._clock = clock
        # A garbage collection may log in the middle of logging: this queue can bear that, and so
        # can this lock.
        self._queue: SimpleQueue[bytes | threading.Event] = SimpleQueue()
        self._own_lock = threading.RLock()
        # Each is changed by one side only: the difference is what the queue holds.
        self._queued_bytes = 0
        self._done_bytes = 0
        self._dropped = 0
        self._is_finished = False
        start_daemon_thread(self._write_all, "dohle-log")

    # The side of those who log

    def emit(self, record: logging.LogRecord) -> None:
        """Queue the line, unless there are too many like it or the queue is full."""
        with self._own_lock:
            was_suppressing = self._limits.is_suppressing
            if self._limits.admits(record, self._clock()):
                self._queue_line(self._line(record))
            elif not was_suppressing:
                # The thread has to wake up when the interval is over.
                self._queue.put(b"")
        if record.levelno >= logging.CRITICAL:
            self.flush()

    def _line(self, record: logging.LogRecord) -> bytes:
        try:
            text = self.format(record)
        except Exception as error:
            # What a logged object may raise when it is shown is anybody's guess.
            where = f"{record.pathname}:{record.lineno}"
            text = self._note(logging.ERROR, "a message of %s cannot be shown: %r", where, error)
        return f"{text}\n".encode(errors="backslashreplace")

    def _note(self, level: int, message: str, *arguments: object) -> str:
        return self.format(logging.LogRecord(_LOGGER, level, __file__, 0, message, arguments, None))

    def _queue_line(self, line: bytes) -> None:
        if self._queued_bytes - self._done_bytes + len(line) > self._queued_bytes_max:
            self._dropped += 1
            return
        self._queue_drops()
        self._put(line)

    def _queue_drops(self) -> None:
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            told = "%d lines were dropped here: they were not read, or could not be written"
            self._put(f"{self._note(logging.WARNING, told, dropped)}\n".encode())

    def _put(self, line: bytes) -> None:
        self._queued_bytes += len(line)
        self._queue.put(line)

    def _queue_suppressed(self, now: float) -> None:
        for one in self._limits.take_suppressed(now):
            told = "%d more lines of %s like this one: %s"
            text = self._note(one.level, told, one.count, one.name, one.template)
            self._queue_line(f"{text}\n".encode(errors="backslashreplace"))

    def flush(self) -> None:
        """Wait until all that was logged so far is written, but not long for a stuck reader."""
        if not self._is_finished:
            self._is_written_within(PATIENCE_S)

    def _is_written_within(self, seconds: float) -> bool:
        written = threading.Event()
        with self._own_lock:
            self._queue_drops()
        self._queue.put(written)
        return written.wait(seconds)

    def finish(self) -> bool:
        """Write what is left, counts of suppressed lines included; return whether that worked."""
        with self._own_lock:
            self._queue_suppressed(float("inf"))
        self._is_finished = True
        return self._is_written_within(PATIENCE_S)

    # The side of the thread

    def _write_all(self) -> None:
        while True:
            for item in self._next_items():
                if isinstance(item, bytes):
                    self._write(item)
                else:
                    item.set()

    def _next_items(self) -> list[bytes | threading.Event]:
        """Wait for something to write; return it with what has come meanwhile, lines joined."""
        try:
            first = self._queue.get(timeout=_LOOK_S if self._limits.is_suppressing else None)
        except Empty:
            first = b""
        items = [first]
        size = 0
        while size < _WRITE_BYTES:
            try:
                item = self._queue.get_nowait()
            except Empty:
                break
            last = items[-1]
            if isinstance(item, bytes) and isinstance(last, bytes):
                items[-1] = last + item
                size += len(item)
            else:
                items.append(item)
        if self._limits.is_suppressing:
            with self._own_lock:
                self._queue_suppressed(self._clock())
        return items

    def _write(self, lines: bytes) -> None:
        left = memoryview(lines)
        try:
            while left:
                try:
                    left = left[os.write(self._descriptor, left) :]
                except BlockingIOError:
                    # Somebody else has made it non-blocking, as terminals' programs do.
                    select.select([], [self._descriptor], [])
            has_failed = False
        except OSError:
            has_failed = True
        self._done_bytes += len(lines)
        with self._own_lock:
            if has_failed:
                self._dropped += bytes(left).count(b"\n")
            elif self._queue.empty():
                self._queue_drops()
