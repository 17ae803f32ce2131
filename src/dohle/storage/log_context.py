"""What a log and its segments find around them: the seams, and the directory they live in."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from dohle.core.errors import KafkaError
from dohle.core.seams import Clock, Rng
from dohle.storage.files import FileSystem
from dohle.storage.producers.state import ProducerStateConfig
from dohle.storage.segment.index import IndexMemory

if TYPE_CHECKING:
    from dohle.storage.log_files import LogFiles


class LogOwner(Protocol):
    """What a log asks of the log directory it lives in."""

    def ensure_online(self) -> None:
        """Raise KAFKA_STORAGE_ERROR if the directory is offline."""

    def failed(self, doing: str, error: OSError) -> KafkaError:
        """Take the directory offline; return the error to raise."""

    def guarding(self, doing: str) -> AbstractContextManager[None]:
        """Raise KAFKA_STORAGE_ERROR if the directory is offline, or goes so by an ``OSError``."""

    def flush_at(self, log: LogFiles, due_ms: int) -> None:
        """Have the log flushed when the monotonic clock shows ``due_ms``."""

    def delete_later(self, paths: Iterable[str], delay_ms: int) -> None:
        """Remove files after a delay."""

    def checkpoint_recovery_points(self) -> None:
        """Write the recovery points of all logs of the directory to disk."""


@dataclass(frozen=True, slots=True)
class LogContext:
    """The same for all logs of a directory."""

    fs: FileSystem
    clock: Clock
    rng: Rng
    owner: LogOwner
    #: The bound that the indexes of all logs of the node share.
    index_memory: IndexMemory
    producer_config: ProducerStateConfig
