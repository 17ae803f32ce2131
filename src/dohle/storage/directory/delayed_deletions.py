"""Files and folders of a log directory that are removed when ``file.delete.delay.ms`` has passed.

They have been renamed to ``.deleted`` or ``-delete`` before; after a stop, the next start finds
them by these names.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterable

from dohle.core.seams import Clock
from dohle.core.steps import PlainSteps
from dohle.storage.directory.partition_dirs import PartitionDirKind
from dohle.storage.files import FileSystem, join

logger = logging.getLogger("dohle.storage")


class DelayedDeletions:
    """What is to be removed, and when by the monotonic clock."""

    def __init__(self, fs: FileSystem, clock: Clock) -> None:
        self._fs = fs
        self._clock = clock
        # (due, order, paths)
        self._heap: list[tuple[int, int, tuple[str, ...]]] = []
        self._order = 0

    def add(self, paths: Iterable[str], delay_ms: int) -> None:
        """Have files or folders removed by the first ``run`` after the delay."""
        due_ms = self._clock.monotonic_ms() + delay_ms
        self._order += 1
        heapq.heappush(self._heap, (due_ms, self._order, tuple(paths)))

    @property
    def next_due_ms(self) -> int | None:
        """When the next removal is due."""
        return self._heap[0][0] if self._heap else None

    def run(self, now_ms: int) -> PlainSteps[None]:
        """Remove what is due, a file in each step."""
        while self._heap and self._heap[0][0] <= now_ms:
            for path in heapq.heappop(self._heap)[2]:
                yield from self._remove(path)

    def _remove(self, path: str) -> PlainSteps[None]:
        try:
            if path.endswith(PartitionDirKind.DELETE.value):
                for entry in self._fs.list_dir(path):
                    inner = join(path, entry.name)
                    (self._fs.remove_tree if entry.is_dir else self._fs.remove)(inner)
                    yield
                self._fs.remove_tree(path)
            else:
                self._fs.remove(path)
            logger.debug("deleted %s", path)
        except FileNotFoundError:
            logger.debug("%s was gone already", path)
        yield
