"""The lines of an input, and the records they represent."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

_CHUNK_BYTES = 1 << 18
#: An input that pauses for this long gets what it wrote sent.
_PAUSE_S = 0.005


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

    def split_all(self, lines: Iterable[bytes]) -> list[tuple[bytes | None, bytes | None]]:
        """Do the same for many lines."""
        if self.key_separator is None and not self.empty_is_null:
            return [(None, line) for line in lines]
        return list(map(self.split, lines))


async def read_lines(descriptor: int) -> AsyncIterator[list[bytes]]:
    """Yield the lines of an input without their ends, as they arrive; none when it pauses.

    The last line counts even without a line end.
    """
    rest: list[bytes] = []
    async for chunk in _read_chunks(descriptor):
        if not chunk:
            yield []
            continue
        first, *others = chunk.split(b"\n")
        rest.append(first)
        if others:
            lines = [b"".join(rest), *others]
            rest = [lines.pop()]
            yield lines
    last = b"".join(rest)
    if last:
        yield [last]


async def _read_chunks(descriptor: int) -> AsyncIterator[bytes]:
    """Yield what can be read; nothing (once) when there is nothing for a moment."""
    while True:
        if not await _wait_until_readable(descriptor, _PAUSE_S):
            yield b""
            await _wait_until_readable(descriptor, None)
        chunk = os.read(descriptor, _CHUNK_BYTES)
        if not chunk:
            return
        yield chunk


async def _wait_until_readable(descriptor: int, timeout_s: float | None) -> bool:
    """Wait for a pipe or a terminal without a thread: a thread could not be interrupted.

    The loop must not call back a second time: there may be nothing to read then, and reading
    blocks. Tells whether it can be read.
    """
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
    except PermissionError:
        # A file on disk always is, and the loop cannot wait for it.
        await asyncio.sleep(0)
        return True
    try:
        async with asyncio.timeout(timeout_s):
            await readable.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(descriptor)
    return True
