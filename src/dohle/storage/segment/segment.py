"""One segment of a log: a ``.log`` file and its indexes, from a base offset to the next segment's.

Here is what changes a segment: appends, the decision to roll, truncation and closing. The bytes are
in ``segment_file``, the index entries in ``indexes``, lookups in ``reader``, and the check after an
unclean stop in ``recovery``. Only the active segment is appended to; a closed one changes only by
truncation.
"""

from __future__ import annotations

from collections.abc import Sequence

from dohle.records.batch import Batch
from dohle.storage.config import LogConfig
from dohle.storage.files import Buffer, file_name, join
from dohle.storage.segment.context import SegmentContext
from dohle.storage.segment.file_names import LOG_SUFFIX, segment_file_name
from dohle.storage.segment.index import MAX_RELATIVE_OFFSET
from dohle.storage.segment.indexes import SegmentIndexes
from dohle.storage.segment.reader import SegmentReader
from dohle.storage.segment.segment_file import SegmentFile


class LogSegment:
    """A segment, open for reading; the last one of a log also for appending."""

    __slots__ = (
        "_clock",
        "_created_ms",
        "_first_batch_timestamp",
        "_fs",
        "base_offset",
        "indexes",
        "jitter_ms",
        "log_file",
        "reader",
    )

    def __init__(
        self,
        context: SegmentContext,
        directory: str,
        base_offset: int,
        config: LogConfig,
        *,
        size: int,
        jitter_ms: int = 0,
        suffix: str = "",
    ) -> None:
        self._fs = context.fs
        self._clock = context.clock
        self.base_offset = base_offset
        self.jitter_ms = jitter_ms
        #: None if it has to be read from the file, or the file is empty.
        self._first_batch_timestamp: int | None = None
        self._created_ms = context.clock.now_ms()
        path = join(directory, segment_file_name(base_offset, LOG_SUFFIX + suffix))
        self.log_file = SegmentFile(
            context.fs, path, size, context.open_files, context.clock.monotonic_s
        )
        self.indexes = SegmentIndexes(
            context, self.log_file, directory, base_offset, config, suffix=suffix
        )
        self.reader = SegmentReader(self.log_file, self.indexes, base_offset)

    @classmethod
    def create(
        cls,
        context: SegmentContext,
        directory: str,
        base_offset: int,
        config: LogConfig,
        *,
        jitter_ms: int = 0,
    ) -> LogSegment:
        """Make the files of a new, empty segment; leftovers of the same name are removed."""
        segment = cls(context, directory, base_offset, config, size=0, jitter_ms=jitter_ms)
        segment.indexes.create()
        segment.log_file.create(config.segment_bytes if config.preallocate else 0)
        return segment

    @property
    def path(self) -> str:
        """Where the ``.log`` file is."""
        return self.log_file.path

    @property
    def size(self) -> int:
        """Bytes of the ``.log`` file, with those that are still unwritten."""
        return self.log_file.size

    # Appending

    def can_hold(self, offset: int) -> bool:
        """Tell whether an offset fits into the four bytes of an index entry."""
        return 0 <= offset - self.base_offset <= MAX_RELATIVE_OFFSET

    def should_roll(
        self, config: LogConfig, size: int, max_timestamp: int, last_offset: int
    ) -> bool:
        """Tell whether ``size`` more bytes have to go to a new segment.

        A segment's age is a difference between record timestamps; only if its first batch has none,
        the clock is used.
        """
        log_size = self.log_file.size
        if (
            log_size > config.segment_bytes - size
            or last_offset - self.base_offset > MAX_RELATIVE_OFFSET
        ):
            return True
        if not self.indexes.loaded:
            self.indexes.load()
        if self.indexes.is_full:
            return True
        if log_size == 0:
            return False
        if (first := self._first_batch_timestamp) is None:
            first = self.first_batch_timestamp
        age_ms = max_timestamp - first if first >= 0 else self._clock.now_ms() - self._created_ms
        return age_ms > config.segment_ms - self.jitter_ms

    @property
    def first_batch_timestamp(self) -> int:
        """The largest timestamp of the first batch, with which the segment's age begins.

        -1 if there is no batch, or none with a timestamp.
        """
        if self._first_batch_timestamp is None:
            head = next(self.reader.heads(), None)
            if head is None:
                return -1
            self._first_batch_timestamp = head.max_timestamp
        return self._first_batch_timestamp

    def append(self, batches: Sequence[Batch], data: Buffer, *, defer_write: bool = False) -> None:
        """Write the batches' bytes at the end and index them.

        ``defer_write`` leaves the writing to ``SegmentFile.write_appends``, which writes all such
        appends with one call. Until then the bytes must not be changed; any use of the file writes
        them first.
        """
        if defer_write:
            at = 0
            for batch in batches:
                size = batch.size
                self.defer_write(data[at : at + size], batch.last_offset, batch.max_timestamp)
                at += size
            return
        position = self.log_file.append(data)
        if position == 0:
            self._first_batch_timestamp = batches[0].max_timestamp
        for batch in batches:
            self.indexes.add(position, batch.last_offset, batch.max_timestamp, batch.size)
            position += batch.size

    def defer_write(self, data: Buffer, last_offset: int, max_timestamp: int) -> None:
        """Add one batch as ``append`` does, and leave its bytes unwritten."""
        size = len(data)
        position = self.log_file.defer_write(data, size)
        if position == 0:
            self._first_batch_timestamp = max_timestamp
        self.indexes.add(position, last_offset, max_timestamp, size)

    def largest_timestamp_ms(self) -> int:
        """Return the time for retention: the largest record timestamp, or else the file's mtime."""
        timestamp = self.indexes.max_timestamp.timestamp
        return timestamp if timestamp >= 0 else self.log_file.mtime_ms

    # Truncation

    def reset_indexes(self) -> None:
        """Empty the offset and time index: the segment is empty, or about to be scanned."""
        self.indexes.reset()
        self._first_batch_timestamp = None

    def truncate_to(self, offset: int) -> int:
        """Drop every batch that ends at or behind ``offset``; return how many bytes that were."""
        head = self.reader.find(offset)
        self.indexes.truncate_to(offset)
        dropped = 0
        if head is not None:
            dropped = self.log_file.size - head.position
            self.log_file.cut(head.position)
        if self.log_file.size == 0:
            self._created_ms = self._clock.now_ms()
            self._first_batch_timestamp = None
        # The batches behind the last time entry count too.
        for kept in self.reader.heads_from(self.indexes.max_timestamp.offset):
            self.indexes.raise_max_timestamp(kept.max_timestamp, kept.last_offset)
        return dropped

    # Life

    def seal(self) -> None:
        """Leave the files as those of a closed segment: all written, no reserved room at the end.

        Done when the segment is retired, or the log is closed.
        """
        self.log_file.release_reserved()
        self.indexes.write_out()

    def retire(self) -> None:
        """Stop being the active segment: sealed, and its indexes may leave memory."""
        self.seal()
        self.indexes.count_memory()

    def close(self) -> None:
        """Close the descriptors; a later use opens the files again."""
        self.log_file.close()
        self.indexes.close()

    def discard(self) -> None:
        """Free everything, as the segment is removed from its log."""
        self.log_file.close()
        self.indexes.discard()

    def paths(self) -> list[str]:
        """Return the files that exist for this segment, in the order they are to be removed."""
        return [p for p in (self.log_file.path, *self.indexes.paths) if self._fs.exists(p)]

    def moved_to(self, directory: str) -> None:
        """Follow a rename of the partition's folder."""
        self.log_file.path = join(directory, file_name(self.log_file.path))
        self.indexes.moved_to(directory)
