"""Between a member of a group and whoever reads: partitions move only when both are ready.

Partitions are revoked when the caller asks for more: then the records before can be considered
processed. While partitions are moving the caller waits, so that it gets no record of others'.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class ReaderGate:
    """Open, until the member holds the reader."""

    def __init__(self, wake_reader: Callable[[], None]) -> None:
        #: Whether the caller must come in before it reads on.
        self.is_reader_wanted = False
        self._is_ended = False
        self._wake_reader = wake_reader
        self._reader_came = asyncio.Event()
        self._turn_over = asyncio.Event()

    async def let_reader_in(self) -> None:
        """Say that the caller is back, and wait until it may read on."""
        self._reader_came.set()
        while self.is_reader_wanted and not self._is_ended:
            await self._turn_over.wait()

    async def hold_reader(self, *, wait: bool) -> None:
        """Let the caller not read on; ``wait`` until it has come."""
        if not self.is_reader_wanted:
            self._reader_came.clear()
            self._turn_over.clear()
            self.is_reader_wanted = True
        self._wake_reader()
        if wait:
            await self._reader_came.wait()

    def release_reader(self) -> None:
        """Let the caller read on."""
        self.is_reader_wanted = False
        self._turn_over.set()
        self._wake_reader()

    def end(self) -> None:
        """Never hold the caller again: the membership has ended."""
        self._is_ended = True
        self.release_reader()
