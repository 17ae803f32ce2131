"""Long work in steps, between which whoever runs it may do something else.

What may take long is a generator that yields after every piece of work of about a millisecond, and
returns its result at the end. :func:`finish` runs it in one go; the server takes a few steps at a
time and lets others have their turn in between (``server.net.slices``). The steps themselves,
and so the result, are the same either way. Between two steps the world may change: work that has
to be about one state takes hold of it first (an image is immutable). What a generator yields says
what it needs to go on:

- None: nothing.
- :class:`Room`: memory, of which there is only so much for all such work together. It is to be
  released.
- a function: its result, which is sent in. It takes long in one piece, but does not hold up others
  if it runs in a thread: compiled code that releases the GIL.
- :class:`Blocking`: the same, of work that waits for a disk, perhaps for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from heapq import merge
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S", bound=str)


class Room:
    """A request for memory: for what is read, or for what is written, which comes second."""

    __slots__ = ("is_for_output", "on_release", "size")

    def __init__(self, size: int, *, is_for_output: bool = False) -> None:
        self.size = size
        self.is_for_output = is_for_output
        #: Set by whoever has granted it.
        self.on_release: Callable[[], None] | None = None

    def release(self) -> None:
        """Give the memory back, if it was granted."""
        on_release, self.on_release = self.on_release, None
        if on_release is not None:
            on_release()


class Blocking:
    """Work that mostly waits, in a thread: others need not wait for its end.

    ``threads`` names those that are for work of its kind, if there are any.
    """

    __slots__ = ("_work", "threads")

    def __init__(self, work: Callable[[], object], threads: str = "") -> None:
        self._work = work
        self.threads = threads

    def __call__(self) -> object:
        """Do the work."""
        return self._work()


Step = Callable[[], object] | Room | None
Steps = Generator[Step, Any, T]
#: Those that need nothing to go on: work over many small entries, which yields after each of them.
PlainSteps = Generator[None, None, T]


#: Those that tell of how many entries each of them was: whoever takes them may set a limit.
CountedSteps = Generator[int, Any, T]


def finish(steps: Steps[T] | CountedSteps[T]) -> T:
    """Take all steps, one after the other."""
    result: object = None
    while True:
        try:
            step = steps.send(result)
        except StopIteration as ended:
            value: T = ended.value
            return value
        result = step() if callable(step) else None


def in_one_step(work: Callable[[], None]) -> PlainSteps[None]:
    """Do short work that is expected to be in steps."""
    work()
    yield


def mapped(function: Callable[[T], R], items: Iterable[T]) -> PlainSteps[tuple[R, ...]]:
    """Call a function for each item, one in each step; return what it returned."""
    found = []
    for item in items:
        found.append(function(item))
        yield
    return tuple(found)


def mapped_steps(
    function: Callable[[T], PlainSteps[R]], items: Iterable[T]
) -> PlainSteps[tuple[R, ...]]:
    """Do the same with a function that itself works in steps."""
    found = []
    for item in items:
        found.append((yield from function(item)))
        yield
    return tuple(found)


#: How many objects are freed in one step.
_FREED_AT_ONCE = 500


def let_go(items: list[Any]) -> PlainSteps[None]:
    """Empty a list in steps: to free very many objects in one go takes long as well."""
    while items:
        del items[-_FREED_AT_ONCE:]
        yield


#: How many items are sorted in one step.
_SORTED_AT_ONCE = 1_000


def sorted_in_steps(items: Iterable[S]) -> PlainSteps[list[S]]:
    """Sort; many items in pieces, which are merged then."""
    pieces: list[list[S]] = [[]]
    for item in items:
        pieces[-1].append(item)
        if len(pieces[-1]) == _SORTED_AT_ONCE:
            pieces.append([])
            yield
    for piece in pieces:
        piece.sort()
        yield
    if len(pieces) == 1:
        return pieces[0]
    found = []
    for item in merge(*pieces):
        found.append(item)
        yield
    return found
