"""Long work in steps, between which whoever runs it may do something else.

What may take long is a generator that yields after every piece of work of about a millisecond, and
returns its result at the end. :func:`finish` runs it in one go; the server takes a few steps at a
time and lets others have their turn in between (``server.net.long_work``). The steps themselves,
and so the result, are the same either way. What a generator yields says what it needs to go on:

- None: nothing.
- :class:`Room`: memory, of which there is only so much for all such work together. It is to be
  released.
- a function: its result, which is sent in. It takes long in one piece, but does not hold up others
  if it runs in a thread: compiled code that releases the GIL.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

T = TypeVar("T")


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


Step = Callable[[], object] | Room | None
Steps = Generator[Step, Any, T]


def finish(steps: Steps[T]) -> T:
    """Take all steps, one after the other."""
    result: object = None
    while True:
        try:
            step = steps.send(result)
        except StopIteration as ended:
            value: T = ended.value
            return value
        result = step() if callable(step) else None
