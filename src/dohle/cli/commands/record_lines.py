"""The lines of an input, and the records they represent."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass

_CHUNK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class LineFormat:
    """How a line is parsed."""

    #: The separator of key and value; None if lines are values only.
    key_separator: bytes | None = None
    #: Whether an empty key or value is null.
    empty_is_null: bool = False

    def split(self, line: bytes) -> tuple[bytes | None, bytes | None]:
        """Return key and value; a line without separator is a value without key."""
        key: bytes | None = None
        value: bytes | None = line
        if self.key_separator is not None:
            before, separator, after = line.partition(self.key_separator)
            if separator:
                key, value = before, after
        if self.empty_is_null:
            key, value = key or None, value or None
        return key, value


async def read_lines(descriptor: int) -> AsyncIterator[list[bytes]]:
    """Yield the lines of an input without their ends, as they arrive.

    The last line counts even without a line end.
    """
    rest = b""
    async for chunk in _read_chunks(descriptor):
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield lines
    if rest:
        yield [rest]


async def _read_chunks(descriptor: int) -> AsyncIterator[bytes]:
    while True:
        await _wait_until_readable(descriptor)
        chunk = os.read(descriptor, _CHUNK_BYTES)
        if not chunk:
            return
        yield chunk


async def _wait_until_readable(descriptor: int) -> None:
    """Wait for a pipe or a terminal without a thread: a thread could not be interrupted.

    The loop must not call back a second time: there may be nothing to read then, and reading
    blocks.
    """
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
    except PermissionError:
        # A file on disk always is, and the loop cannot wait for it.
        await asyncio.sleep(0)
        return
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
