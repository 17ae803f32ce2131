"""Whether the disk of a log directory works, and the files of one log are there.

The first ``OSError`` takes the directory offline as a whole and for good: its logs answer
KAFKA_STORAGE_ERROR, and nothing is written to it any more. The other directories, and the broker,
go on. A file that somebody has deleted or cut says nothing about the disk: it takes its own log
offline, and no other. If there is no descriptor to read with, the reader is refused, and nothing
else changes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import ENOSPC

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicPartition
from dohle.storage.files import NO_DESCRIPTOR

logger = logging.getLogger("dohle.storage")


class DiskStatus:
    """Online until a failure is reported."""

    def __init__(self, path: str, on_failed: Callable[[], None] = lambda: None) -> None:
        self._path = path
        self._on_failed = on_failed
        #: Why the directory is offline. Only the text: an exception would keep the buffers of the
        #: failed append alive.
        self.failure: str | None = None
        #: Why nothing can be appended, though everything can be read.
        self.full: str | None = None
        #: How many bytes may be appended before the room on the disk is to be looked at again, and
        #: who does that.
        self.budget_bytes = 0
        self.on_budget_spent: Callable[[], None] = lambda: None

    def look_soon(self, _size: int, _usable: int) -> None:
        """Let the next append look how much room is left, since something else is written.

        It may be called in any thread. (An append at this very moment may undo this: then the one
        after the next call looks.)
        """
        self.budget_bytes = 0

    def ensure_online(self) -> None:
        """Raise KAFKA_STORAGE_ERROR if the directory is offline."""
        if self.failure is not None:
            raise self.offline_error()

    def offline_error(self) -> KafkaError:
        """Return the error of whoever wants to use it though it is offline."""
        return KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {self._path} is offline: {self.failure}"
        )

    def failed(self, doing: str, error: OSError) -> KafkaError:
        """Take the directory offline; return the error to raise."""
        if self.failure is None:
            self.failure = str(error)
            repaired = "there is room on the disk" if error.errno == ENOSPC else "it is repaired"
            logger.error(
                "log directory %s goes offline, %s failed: %s. Its partitions are not served until"
                " %s and the broker restarted.",
                self._path,
                doing,
                error,
                repaired,
            )
            self._on_failed()
        return self.offline_error()

    @contextmanager
    def guarding(self, doing: str) -> Iterator[None]:
        """Raise KAFKA_STORAGE_ERROR if the directory is offline; take it offline at ``OSError``."""
        self.ensure_online()
        try:
            yield
        except OSError as error:
            raise self.failed(doing, error) from error


class LogStatus:
    """Whether a log can be used: its directory is online, and its files are there."""

    __slots__ = (
        "_directory",
        "_partition",
        "lost",
    )

    def __init__(self, directory: DiskStatus, partition: TopicPartition) -> None:
        self._directory = directory
        self._partition = partition
        #: Which file is gone, and how, if one is.
        self.lost: str | None = None

    def is_online(self) -> bool:
        """Tell whether the log can be read and written."""
        return self.lost is None and self._directory.failure is None

    @property
    def failure(self) -> str | None:
        """Why the log is offline."""
        return self._directory.failure if self.lost is None else self.lost

    def ensure_writable(self, size: int) -> None:
        """Raise KAFKA_STORAGE_ERROR if the log is offline or its disk full, before an append."""
        directory = self._directory
        directory.budget_bytes -= size
        if directory.budget_bytes < 0:
            directory.on_budget_spent()
        if directory.full is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, directory.full)
        if directory.failure is not None:
            raise directory.offline_error()
        if self.lost is not None:
            raise self._lost_error()

    def ensure_online(self) -> None:
        """Raise KAFKA_STORAGE_ERROR if the log is offline."""
        if self.lost is not None or self._directory.failure is not None:
            raise self.offline_error()

    def offline_error(self) -> KafkaError:
        """Return the error of a log that is offline."""
        if self._directory.failure is not None:
            return self._directory.offline_error()
        return self._lost_error()

    def _lost_error(self) -> KafkaError:
        return KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"{self._partition} is offline: {self.lost}"
        )

    def failed(self, doing: str, error: OSError) -> KafkaError:
        """Take the log offline if a file of it is gone, else its directory; return the error."""
        if not isinstance(error, FileNotFoundError):
            return self._directory.failed(doing, error)
        if self.lost is None:
            self.lost = str(error)
            logger.error(
                "%s goes offline, %s failed: %s. Other partitions are served. Put the file back if"
                " there is a copy; the next start takes what is there.",
                self._partition,
                doing,
                error,
            )
        return self._lost_error()

    def failed_to_read(self, doing: str, error: OSError) -> KafkaError:
        """Do as ``failed`` does, unless there was no descriptor; return the error."""
        if error.errno not in NO_DESCRIPTOR:
            return self.failed(doing, error)
        logger.error(
            "%s failed, and its client gets KAFKA_STORAGE_ERROR: %s. Raise the limit of open files"
            " (ulimit -n).",
            doing,
            error,
        )
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{doing} failed: {error}")

    @contextmanager
    def guarding_read(self, doing: str) -> Iterator[None]:
        """Do as ``guarding`` does, for what changes nothing on the disk or in memory."""
        self.ensure_online()
        try:
            yield
        except OSError as error:
            raise self.failed_to_read(doing, error) from error

    @contextmanager
    def guarding(self, doing: str) -> Iterator[None]:
        """Raise KAFKA_STORAGE_ERROR if the log is offline, or goes so by an ``OSError``."""
        self.ensure_online()
        try:
            yield
        except OSError as error:
            raise self.failed(doing, error) from error
