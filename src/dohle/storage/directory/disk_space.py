"""How full the disk of a log directory is: warnings in time, and no appends when it is full.

An append that meets the end of the disk takes the directory offline, and with a single directory
the broker. So appends are refused a little before that, with KAFKA_STORAGE_ERROR, while everything
can still be read; they are taken again when there is room. A start needs a little room itself: as
soon as the disk is nearly full, a file reserves it, and the start on a full disk removes that file.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping

from dohle.core.ids import TopicPartition
from dohle.storage.directory.disk_status import DiskStatus
from dohle.storage.directory.room import LOOKS_BEFORE_FULL, full_below
from dohle.storage.directory.strays import list_strays
from dohle.storage.files import FileSystem, join
from dohle.storage.log import Log

logger = logging.getLogger("dohle.storage")

#: Reserves room for the next start; the broker makes and removes it.
RESERVE_FILE = ".dohle-reserve"

_WARN_PERCENT = (90, 95)
#: A warning is due again when the disk was emptier than its mark by this much.
_SLACK_PERCENT = 2
_RESERVE_BYTES_MAX = 16 << 20
_NAMED_MAX = 3


class DiskSpace:
    """Watches the room on the disk of one directory."""

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        disk: DiskStatus,
        logs: Mapping[TopicPartition, Log],
        *,
        holds_records: bool = True,
    ) -> None:
        """``holds_records`` is False for a directory that has nothing but the metadata log."""
        self._fs = fs
        self._path = path
        self._disk = disk
        self._logs = logs
        self._holds_records = holds_records
        self._warned_percent = 0
        disk.on_budget_spent = self._look_again

    def make_room(self) -> None:
        """Give the reserved room back if there is no other: a start has to write a little."""
        total, usable = self._fs.free_bytes(self._path)
        reserve = join(self._path, RESERVE_FILE)
        if usable < full_below(total) and self._fs.exists(reserve):
            self._fs.remove(reserve)

    def check(self) -> None:
        """Look how much room there is, warn, and refuse appends or take them again."""
        total, usable = self._fs.free_bytes(self._path)
        self._disk.budget_bytes = usable // LOOKS_BEFORE_FULL
        if total <= 0:
            return
        used_percent = 100 * (total - usable) // total
        self._warn(used_percent, usable)
        if self._holds_records:
            self._refuse_or_take(total, usable)
        if used_percent >= _WARN_PERCENT[0] and self._disk.full is None:
            self._reserve(total, usable)

    def _refuse_or_take(self, total: int, usable: int) -> None:
        if self._disk.full is None and usable < full_below(total):
            self._disk.full = f"the disk of {self._path} is full, {usable:,} bytes are free"
            logger.error(
                "%s. Records are refused from now on, and can be read. %s",
                self._disk.full,
                self._what_may_be_freed(),
            )
        elif self._disk.full is not None and usable >= 2 * full_below(total):
            self._disk.full = None
            logger.warning(
                "there are %s bytes free on the disk of %s: records are taken again",
                f"{usable:,}",
                self._path,
            )

    def _look_again(self) -> None:
        try:
            self.check()
        except OSError as error:
            self._disk.failed("looking for free space", error)

    def _warn(self, used_percent: int, usable: int) -> None:
        passed = max((mark for mark in _WARN_PERCENT if used_percent >= mark), default=0)
        if passed > self._warned_percent:
            self._warned_percent = passed
            logger.warning(
                "the disk of %s is %d %% full, %s bytes are free. %s",
                self._path,
                used_percent,
                f"{usable:,}",
                self._what_may_be_freed(),
            )
        elif used_percent < self._warned_percent - _SLACK_PERCENT:
            self._warned_percent = passed

    def _what_may_be_freed(self) -> str:
        if not self._holds_records:
            return "It has the metadata log, without which the broker stops: make room on the disk."
        sizes: Counter[str] = Counter()
        for key, log in self._logs.items():
            sizes[key.topic] += log.size
        largest = ", ".join(f"{topic} {size:,}" for topic, size in sizes.most_common(_NAMED_MAX))
        text = "What may be freed: lower retention.ms or retention.bytes of large topics"
        if largest:
            text += f" (bytes: {largest})"
        strays = sum(stray.size for stray in list_strays(self._fs, [self._path]))
        if strays:
            text += f", or delete stray folders ({strays:,} bytes: dohle storage strays)"
        return text + "."

    def _reserve(self, total: int, usable: int) -> None:
        """Make the file that keeps room for the next start, while there is room for it."""
        # Less than what counts as full: what is given back is not for records.
        size = min(_RESERVE_BYTES_MAX, full_below(total) // 2)
        path = join(self._path, RESERVE_FILE)
        if self._fs.exists(path) or usable < size + 2 * full_below(total):
            return
        try:
            file = self._fs.open(path, write=True, create=True)
            try:
                file.allocate(size)
            finally:
                file.close()
        except OSError as error:
            logger.warning("%s: no room could be reserved for the next start: %s", path, error)
