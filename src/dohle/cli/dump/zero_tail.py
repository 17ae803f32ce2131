"""Zeros at the end of a file: preallocated space, or what a crash left of a write."""

from __future__ import annotations

from dohle.cli.dump.items import Note
from dohle.storage.files import File

_CHUNK = 1 << 20


def end_of_data(file: File) -> int:
    """Return the position after the last byte that is not zero."""
    end = file.size()
    while end > 0:
        start = max(0, end - _CHUNK)
        data = file.read_at(start, end - start).rstrip(b"\0")
        if data:
            return start + len(data)
        end = start
    return 0


def zero_tail_note(position: int, size: int) -> Note:
    """Return a note that there are only zeros from a position on."""
    return Note(
        f"{size - position} zero bytes up to the end: preallocated, or left by a crash", position
    )
