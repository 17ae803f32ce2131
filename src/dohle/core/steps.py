"""Long work in steps, between which whoever runs it may do something else.

What may take long is a generator that yields after every piece of work of about a millisecond, and
returns its result at the end. :func:`finish` runs it in one go; the server takes a few steps at a
time and lets others have their turn in between (``server.net.long_work``). The steps themselves,
and so the result, are the same either way. What a generator yields says what it needs to go on:

- None: nothing.
- :class:`Room`: memory, of which there is only so much for all such work together. It holds the
  memory until it ends.
- a function: its result, which is sent in. It takes long in one piece, but does not hold up others
  if it runs in a thread: compiled code that releases the GIL.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class Room(NamedTuple):
    """A request for memory."""

    size: int


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
