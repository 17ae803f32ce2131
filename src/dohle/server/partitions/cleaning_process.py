"""The computing of rounds of cleaning, done in a process beside the node.

What computes in a thread takes the interpreter from the loop again and again, after every one of
its system calls; a process does not. Each worker of the cleaner has one, which is started when a
round begins and ended when none has for a while. If it is lost, by whatever kills processes, its
round is given up, and the next ones are done in the worker's thread, before another is tried.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Sequence
from typing import Any

from dohle import __version__
from dohle.core.seams import Clock
from dohle.server.host import ChildProcess, NodeHost
from dohle.server.partitions.cleaning_wire import (
    BuildMap,
    Clear,
    Failed,
    Go,
    Hello,
    Pacing,
    Rewrite,
    Written,
    receive,
    send,
)
from dohle.storage.cleaning.reading import ClosedSegment
from dohle.storage.cleaning.round_values import CleaningAborted
from dohle.storage.cleaning.round_work import Mapped, Rewritten, RoundSpec, RoundWork, Work
from dohle.storage.files import FileSystem

logger = logging.getLogger("dohle.server.cleaner")

_MODULE = "dohle.server.partitions.cleaning_child"
#: How many rounds are done in the thread after a process was lost or could not be started.
_ROUNDS_IN_THREAD = 10


class CleaningProcess:
    """The process of one worker, if it has one now. One round at a time uses it."""

    def __init__(self, host: NodeHost) -> None:
        self._host = host
        self._child: ChildProcess | None = None
        self._was_killed = False
        self._rounds_in_thread = 0

    def new_work(
        self,
        fs: FileSystem,
        clock: Clock,
        throttle: Callable[[int], None],
        on_written: Callable[[int, int], None],
        *,
        is_paced: bool,
    ) -> Work:
        """Return what computes the next round, and whether the throttle is asked."""
        here = RoundWork(fs, clock, throttle, on_written)
        if self._rounds_in_thread:
            self._rounds_in_thread -= 1
            return here
        return _WorkApart(self, here, throttle if is_paced else None, on_written)

    @property
    def is_running(self) -> bool:
        """Tell whether there is one."""
        return self._child is not None

    def start(self) -> ChildProcess | None:
        """Return the process, started if there is none; None if that cannot be. It may block."""
        if self._child is not None and not self._child.has_ended:
            return self._child
        self.end()
        self._was_killed = False
        try:
            child = self._child = self._host.start_child(_MODULE)
            if child is None or receive(child.answers) == Hello(__version__):
                return child
            reason = "the program was replaced while it runs"
        except OSError as error:
            reason = str(error)
        except EOFError:
            if self._was_killed:
                self.end()
                return None
            reason = "it ended at once"
        logger.warning("no process for cleaning can be started, so a thread cleans: %s", reason)
        self.give_up()
        return None

    def kill(self) -> None:
        """End what it does at once; called on the loop. ``end`` is to be called, too."""
        self._was_killed = True
        if (child := self._child) is not None:
            child.kill()

    def give_up(self) -> int:
        """End it because it is of no use, and leave some rounds to the thread; it may block."""
        self._rounds_in_thread = _ROUNDS_IN_THREAD
        return self.end()

    def end(self) -> int:
        """End it if there is one; it may block. Returns how it ended."""
        child, self._child = self._child, None
        return 0 if child is None else child.end()


class _WorkApart:
    """A round whose computing is done in the process."""

    def __init__(
        self,
        process: CleaningProcess,
        here: RoundWork,
        throttle: Callable[[int], None] | None,
        on_written: Callable[[int, int], None],
    ) -> None:
        self._process = process
        #: Does the round if there is no process.
        self._here = here
        self._throttle = throttle
        self._on_written = on_written
        self._child: ChildProcess | None = None
        self._is_stopped = self._is_over = False

    def build_map(self, spec: RoundSpec) -> Mapped:
        """Begin the round."""
        self._child = self._process.start()
        if self._child is None:
            return self._here.build_map(spec)
        result = self._ask(self._child, BuildMap(spec, self._throttle is not None))
        assert isinstance(result, Mapped)
        return result

    def rewrite(self, sources: Sequence[ClosedSegment]) -> Rewritten:
        """Write what stays of a group of segments, and sync it."""
        if self._child is None:
            return self._here.rewrite(sources)
        result = self._ask(self._child, Rewrite(tuple(sources)))
        assert isinstance(result, Rewritten)
        return result

    def clear(self) -> None:
        """End the round."""
        if self._child is None:
            self._here.clear()
        else:
            self._ask(self._child, Clear())
            self._is_over = True

    def stop(self) -> None:
        """End the process: it may compute for long until it listens again."""
        self._is_stopped = True
        self._here.stop()
        if not self._is_over:
            self._is_over = True
            self._process.kill()

    def _ask(self, child: ChildProcess, request: object) -> object:
        try:
            # Either this sees that it was stopped, or whoever stops it sees the process.
            self._ensure_not_stopped()
            answer = self._exchange(child, request)
        except (OSError, EOFError):
            if self._is_stopped:
                self._process.end()
            else:
                code = self._process.give_up()
                logger.warning("the cleaning process %s, so a thread goes on", _end_of(code))
            raise CleaningAborted("the process that does it has ended") from None
        if isinstance(answer, Failed):
            raise answer.error
        return answer.result

    def _exchange(self, child: ChildProcess, request: object) -> Any:
        send(child.requests, request)
        while True:
            match receive(child.answers):
                case Written(size, usable):
                    self._on_written(size, usable)
                case Pacing(size):
                    if self._throttle is not None:
                        self._throttle(size)
                    self._ensure_not_stopped()
                    send(child.requests, Go())
                case answer:
                    return answer

    def _ensure_not_stopped(self) -> None:
        if self._is_stopped:
            raise CleaningAborted("it was stopped")


def _end_of(code: int) -> str:
    if code >= 0:
        return f"has ended with {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
