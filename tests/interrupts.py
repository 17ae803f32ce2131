"""Tests of Ctrl-C must pass also where the tests themselves were started with SIGINT ignored.

Shells ignore SIGINT for what they start in the background, and so do many CI systems. What is
ignored stays ignored across ``exec``, so every process that a test starts would ignore it too; a
handler does not outlive ``exec``.
"""

from __future__ import annotations

import signal
from types import FrameType


def let_children_be_interrupted() -> None:
    """Go on ignoring SIGINT if we do, but by a handler that processes we start do not inherit."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, _ignore)


def _ignore(number: int, frame: FrameType | None) -> None:
    pass
