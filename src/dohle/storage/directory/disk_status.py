"""Whether the disk of a log directory works.

The first ``OSError`` takes the directory offline as a whole and for good: its logs answer
KAFKA_STORAGE_ERROR, and nothing is written to it any more. The other directories, and the broker,
go on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dohle.core.errors import ErrorCode, KafkaError

logger = logging.getLogger("dohle.storage")


class DiskStatus:
    """Online until a failure is reported."""

    def __init__(self, path: str, on_failed: Callable[[], None] = lambda: None) -> None:
        self._path = path
        self._on_failed = on_failed
        #: Why the directory is offline. Only the text: an exception would keep the buffers of the
        #: failed append alive.
        self.failure: str | None = None

    def ensure_online(self) -> None:
        """Raise KAFKA_STORAGE_ERROR if the directory is offline."""
        if self.failure is not None:
            raise self._offline_error()

    def _offline_error(self) -> KafkaError:
        return KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {self._path} is offline: {self.failure}"
        )

    def failed(self, doing: str, error: OSError) -> KafkaError:
        """Take the directory offline; return the error to raise."""
        if self.failure is None:
            self.failure = str(error)
            logger.error(
                "log directory %s goes offline, %s failed: %s. Its partitions are not served until"
                " the disk is repaired and the broker restarted.",
                self._path,
                doing,
                error,
            )
            self._on_failed()
        return self._offline_error()

    @contextmanager
    def guarding(self, doing: str) -> Iterator[None]:
        """Raise KAFKA_STORAGE_ERROR if the directory is offline; take it offline at ``OSError``."""
        self.ensure_online()
        try:
            yield
        except OSError as error:
            raise self.failed(doing, error) from error
