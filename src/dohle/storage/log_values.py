"""What a log is asked and what it answers: the small values around :class:`dohle.storage.log.Log`.

Those made for every append and every read are named tuples, which are the cheapest to make.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from dohle.storage.segment.segment import LogSegment
from dohle.storage.segment.segment_file import LogSlice
from dohle.storage.segment.transaction_index import AbortedTransaction


class Isolation(Enum):
    """How far a reader may see: followers, consumers, consumers of committed records."""

    LOG_END = "log_end"
    HIGH_WATERMARK = "high_watermark"
    TXN_COMMITTED = "txn_committed"


#: A segment, an offset in it, the generation of the log's files, and the position of the offset.
KnownPosition = tuple[LogSegment, int, int, int]


class AppendInfo(NamedTuple):
    """The result of an append."""

    first_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time_ms: int
    size: int
    is_duplicate: bool = False


class FetchData(NamedTuple):
    """What a read found. Without a slice there is nothing to see yet, which is not an error."""

    slice: LogSlice | None = None
    first_batch_incomplete: bool = False
    aborted_transactions: Sequence[AbortedTransaction] | None = None

    @property
    def size(self) -> int:
        """Bytes found."""
        return 0 if self.slice is None else self.slice.size
