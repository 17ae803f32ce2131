"""Waiting for something to become true, with a deadline."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic

DEADLINE_S = 20.0
_LOOK_AGAIN_S = 0.005


def wait_until(condition: Callable[[], bool], deadline_s: float = DEADLINE_S) -> None:
    """Return as soon as the condition holds; fail if it does not in time."""
    give_up = monotonic() + deadline_s
    pause = threading.Event()
    while not condition():
        assert monotonic() < give_up, "it did not happen in time"
        pause.wait(_LOOK_AGAIN_S)
