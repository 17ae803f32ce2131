"""Data that can only be decompressed whole, handed out in pieces.

It is decompressed into memory of its own that the system hands out as it is touched and takes back
at once. Large data is decompressed by a function that whoever reads the pieces runs, in a thread if
others must not wait; and it asks for room first.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from mmap import mmap
from typing import Any

from dohle.core.steps import Room
from dohle.records.errors import CorruptBatch, DecompressedTooLarge

#: Up to this size it is done on the spot.
WHOLE_BYTES_MIN = 1024 * 1024
#: No more than this is decompressed whole, or than so many times its compressed size.
WHOLE_BYTES_MAX = 32 * 1024 * 1024
_WHOLE_TIMES_MAX = 32

_PIECE_BYTES = 128 * 1024

#: Yields pieces, and steps (``core.steps``) that whoever reads the pieces takes.
Pieces = Generator[bytes | memoryview | Room | Callable[[], object], Any, None]


def whole_bytes_max(compressed_size: int, max_bytes: int) -> int:
    """Return how much may be decompressed whole, where ``max_bytes`` are allowed otherwise."""
    return min(max_bytes, max(WHOLE_BYTES_MAX, _WHOLE_TIMES_MAX * compressed_size))


def whole_pieces(read_into: Callable[[bytearray | mmap], int], size: int) -> Pieces:
    """Decompress up to ``size`` bytes with ``read_into``, which returns how many there are."""
    if size <= WHOLE_BYTES_MIN:
        small = bytearray(size)
        yield memoryview(small)[: read_into(small)]
        return
    room = Room(size)
    output: mmap | None = None
    try:
        yield room
        output = mmap(-1, size)
        # A thread hands over what it has raised as well.
        written = yield partial(_outcome, read_into, output)
        if isinstance(written, Exception):
            raise written
        for start in range(0, written, _PIECE_BYTES):
            yield output[start : min(start + _PIECE_BYTES, written)]
    finally:
        if output is not None:
            # A thread may still be at it, if nobody waits for it any more.
            with suppress(BufferError):
                output.close()
        room.release()


def _outcome(
    read_into: Callable[[bytearray | mmap], int], output: mmap
) -> int | CorruptBatch | DecompressedTooLarge:
    try:
        return read_into(output)
    except (CorruptBatch, DecompressedTooLarge) as error:
        return error
