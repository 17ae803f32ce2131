"""What a node and its cleaning processes say to each other, over a pipe for each direction.

Both ends are the same program, which ``Hello`` makes sure of: so messages are pickled.

    node                                    process
                                            Hello, when it is ready
    BuildMap, Rewrite or Clear
                                            any number of Written, and of Pacing, ...
    Go, after each Pacing
                                            Done or Failed, at last
"""

from __future__ import annotations

import pickle
from typing import Any, BinaryIO, NamedTuple

from dohle.storage.cleaning.reading import ClosedSegment
from dohle.storage.cleaning.round_work import Mapped, Rewritten, RoundSpec


class Hello(NamedTuple):
    """The process has started, with this version of the program."""

    version: str


class BuildMap(NamedTuple):
    """Begin a round."""

    spec: RoundSpec
    #: Whether to ask before going on after each buffer, as there is a limit to bytes per second.
    is_paced: bool


class Rewrite(NamedTuple):
    """Rewrite a group of segments."""

    sources: tuple[ClosedSegment, ...]


class Clear(NamedTuple):
    """The round is over."""


class Written(NamedTuple):
    """So many bytes may have been written since the last time, and so many were free."""

    size: int
    usable: int


class Pacing(NamedTuple):
    """So many bytes were read or written."""

    size: int


class Go(NamedTuple):
    """They are within the limit."""


class Done(NamedTuple):
    """What was asked for is done."""

    result: Mapped | Rewritten | None


class Failed(NamedTuple):
    """It is not; the process can be asked for another round."""

    error: Exception


def send(out: BinaryIO, message: object) -> None:
    """Send a message. OSError if the other end is gone."""
    pickle.dump(message, out, pickle.HIGHEST_PROTOCOL)
    out.flush()


def receive(source: BinaryIO) -> Any:
    """Wait for the next message. EOFError if the other end is gone."""
    try:
        return pickle.load(source)
    except pickle.UnpicklingError as error:
        raise EOFError(str(error)) from error
