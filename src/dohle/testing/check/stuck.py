"""Clients that do not come to their end, and what they are doing."""

from __future__ import annotations

import sys
import threading
import traceback
from typing import NamedTuple


class StuckClient(NamedTuple):
    """A client that has not come to its end."""

    name: str
    #: The functions that it is in, from the outside to the inside.
    calls: list[traceback.FrameSummary]
    #: The function that calls librdkafka where that is known not to end by itself.
    defect: str

    @property
    def is_known_defect(self) -> bool:
        """Whether librdkafka is to blame."""
        return bool(self.calls) and self.calls[-1].name == self.defect

    def __str__(self) -> str:
        place = ", ".join(f"{call.name} line {call.lineno}" for call in self.calls)
        return f"{self.name}, at {place or 'its end'}"


def calls_of(thread: threading.Thread, file: str) -> list[traceback.FrameSummary]:
    """Return the functions of a file that a thread is in."""
    frame = sys._current_frames().get(thread.ident or 0)
    calls = traceback.extract_stack(frame) if frame is not None else []
    return [call for call in calls if call.filename == file]
