"""What a log is asked and what it answers: the small values around :class:`dohle.storage.log.Log`.

Those made for every append and every read are named tuples, which are the cheapest to make.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from typing import NamedTuple, Protocol

from dohle.core.errors import KafkaError
from dohle.storage.index import IndexMemory
from dohle.storage.segment import LogSegment, LogSlice
from dohle.storage.transaction_index import AbortedTransaction


class Isolation(Enum):
    """How far a reader may see: followers, consumers, consumers of committed records."""

    LOG_END = "log_end"
    HIGH_WATERMARK = "high_watermark"
    TXN_COMMITTED = "txn_committed"


class AppendInfo(NamedTuple):
    """What became of an append."""

    first_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time_ms: int
    size: int
    is_duplicate: bool = False


class FetchData(NamedTuple):
    """What a read found. No slice: nothing to see there yet, which is no error."""

    slice: LogSlice | None = None
    first_batch_incomplete: bool = False
    aborted_transactions: Sequence[AbortedTransaction] | None = None

    @property
    def size(self) -> int:
        """Bytes found."""
        return 0 if self.slice is None else self.slice.size


class LogOwner(Protocol):
    """What a log asks of the log directory it lives in."""

    @property
    def index_memory(self) -> IndexMemory:
        """The bound that the logs' indexes share."""

    def ensure_online(self) -> None:
        """Raise KAFKA_STORAGE_ERROR if the directory is offline."""

    def failed(self, doing: str, error: OSError) -> KafkaError:
        """Take the directory offline; return the error to raise."""

    def guarding(self, doing: str) -> AbstractContextManager[None]:
        """Do nothing if the directory is offline; take it offline at an ``OSError``."""

    def delete_later(
        self, paths: Iterable[str], delay_ms: int, then_close: Iterable[LogSegment] = ()
    ) -> None:
        """Remove files, and close the segments they were of, after a delay."""

    def checkpoint_recovery_points(self) -> None:
        """Write the recovery points of all logs of the directory to disk."""
