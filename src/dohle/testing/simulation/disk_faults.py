"""The faults of a simulated disk: which calls fail, where, how often and with what error.

And which are interrupted by another thread, as if it had run just then.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum


class Operation(Enum):
    """What can be counted, cut off or made to fail."""

    OPEN = "open"
    READ = "read"
    STAT = "stat"
    LIST = "list"
    CREATE = "create"
    WRITE = "write"
    TRUNCATE = "truncate"
    ALLOCATE = "allocate"
    SYNC = "sync"
    SYNC_DIR = "sync_dir"
    MAKE_DIR = "make_dir"
    RENAME = "rename"
    REMOVE = "remove"
    SET_MTIME = "set_mtime"


#: What changes nothing: not counted, and no place to die.
HARMLESS = frozenset({Operation.OPEN, Operation.READ, Operation.STAT, Operation.LIST})


class Fault:
    """A part of the disk that fails; :meth:`SimulatedFileSystem.fail` makes it."""

    __slots__ = ("_matches", "_operations", "_skip", "_times", "error_number", "partial_bytes")

    def __init__(
        self,
        operations: frozenset[Operation],
        matches: Callable[[str], bool],
        error_number: int,
        partial_bytes: int,
        skip: int,
        times: int | None,
    ) -> None:
        self._operations = operations
        self._matches = matches
        self._skip = skip
        self._times = times
        self.error_number = error_number
        self.partial_bytes = partial_bytes

    def strikes(self, operation: Operation, path: str) -> bool:
        """Tell whether this call fails, and count it."""
        if operation not in self._operations or self._times == 0 or not self._matches(path):
            return False
        if self._skip > 0:
            self._skip -= 1
            return False
        if self._times is not None:
            self._times -= 1
        return True


class Interruption:
    """Something that another thread does within an operation, once."""

    __slots__ = ("_matches", "_operation", "_step")

    def __init__(
        self, operation: Operation, matches: Callable[[str], bool], step: Callable[[], object]
    ) -> None:
        self._operation = operation
        self._matches = matches
        self._step: Callable[[], object] | None = step

    def meet(self, operation: Operation, path: str) -> None:
        """Take the step if this is the operation."""
        step = self._step
        if step is not None and operation is self._operation and self._matches(path):
            self._step = None
            step()


def is_below(prefix: str) -> Callable[[str], bool]:
    """Return a function that tells whether a path is this one or lies below it."""
    prefix = prefix.rstrip("/")
    return lambda path: path == prefix or path.startswith(prefix + "/")
