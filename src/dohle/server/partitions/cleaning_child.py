"""The program of a process that does the computing of rounds of cleaning, for one node.

The node asks over stdin and is answered on stdout. It ends this process by a signal that cannot be
caught, in the middle of whatever it does, and removes the files of the round then. When the node
itself is killed, this process must be gone before another one opens the log directory: Linux sees
to that, and elsewhere it looks after each buffer whether its parent lives.

It imports as little as it can: it should start in a moment and be small.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
import traceback
from contextlib import suppress
from typing import BinaryIO

from dohle import __version__
from dohle.core.seams import SystemClock
from dohle.server.partitions.cleaning_wire import (
    BuildMap,
    Done,
    Failed,
    Hello,
    Pacing,
    Rewrite,
    Written,
    receive,
    send,
)
from dohle.storage.cleaning.round_values import CleaningAborted, Uncleanable
from dohle.storage.cleaning.round_work import RoundWork
from dohle.storage.directory.room import LOOKS_BEFORE_FULL
from dohle.storage.files import OsFileSystem

_PR_SET_PDEATHSIG = 1


class CleaningChild:
    """Does what it is asked to."""

    def __init__(self, source: BinaryIO, out: BinaryIO, parent_id: int) -> None:
        self._source = source
        self._out = out
        self._parent_id = parent_id
        self._is_paced = False
        self._unsaid_bytes = 0
        self._work: RoundWork | None = None

    def run(self) -> None:
        """Do everything that is asked for, until the node is gone."""
        send(self._out, Hello(__version__))
        while True:
            request = receive(self._source)
            try:
                answer: Done | Failed = self._do(request)
            except Exception as error:
                answer = Failed(_portable(error))
            send(self._out, answer)

    def _do(self, request: object) -> Done:
        if isinstance(request, BuildMap):
            self._is_paced = request.is_paced
            self._work = RoundWork(
                OsFileSystem(), SystemClock(), self._pace, self._written, is_alone=True
            )
            return Done(self._work.build_map(request.spec))
        assert self._work is not None, "a round begins with its map"
        if isinstance(request, Rewrite):
            return Done(self._work.rewrite(request.sources))
        self._work.clear()
        self._work = None
        return Done(None)

    def _pace(self, size: int) -> None:
        if os.getppid() != self._parent_id:
            raise SystemExit
        if self._is_paced and size:
            send(self._out, Pacing(size))
            receive(self._source)

    def _written(self, size: int, usable: int) -> None:
        """Tell the node so often that its appends cannot meet the end of the disk by surprise."""
        self._unsaid_bytes += size
        if self._unsaid_bytes > usable // LOOKS_BEFORE_FULL:
            send(self._out, Written(self._unsaid_bytes, usable))
            self._unsaid_bytes = 0


def _portable(error: Exception) -> Exception:
    """Return an error as it can be sent: what is not expected, with where it came from."""
    if not isinstance(error, OSError | Uncleanable | CleaningAborted):
        error.add_note("In the process that cleans:\n" + traceback.format_exc())
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError("".join(traceback.format_exception(error)))
    return error


def main() -> int:
    """Work for the process whose number is the argument."""
    parent_id = int(sys.argv[1])
    # A service manager may tell all processes to stop, but only the node ends this one.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    if os.getppid() != parent_id:
        return 1
    source, out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # Nothing else gets into the pipe.
    os.dup2(2, 1)
    with suppress(EOFError, BrokenPipeError):
        CleaningChild(source, out, parent_id).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
