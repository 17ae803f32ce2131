"""The new segment that a group is rewritten to, with the suffix ``.cleaned``.

If a group is one segment and nothing of it changes, nothing is written: the bytes are copied only
when the first change comes.

The offsets of a segment must fit into the four bytes of an index entry. Old brokers have written
some where they do not: such a segment is split, and becomes several.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from errno import ENOSPC

from dohle.core.seams import Clock
from dohle.storage.cleaning.reading import CleaningPace, ClosedSegment
from dohle.storage.config import LogConfig
from dohle.storage.directory.room import full_below
from dohle.storage.files import Buffer, FileSystem, join
from dohle.storage.open_files import OpenFiles
from dohle.storage.segment.context import OwnContext
from dohle.storage.segment.file_names import CLEANED_SUFFIX, has_base_offset
from dohle.storage.segment.index import MAX_RELATIVE_OFFSET, IndexMemory
from dohle.storage.segment.segment import LogSegment
from dohle.storage.segment.transaction_index import AbortedTransaction

#: A batch begins with its first offset.
_BASE_OFFSET_BYTES = 8


class CleanedSegment:
    """A ``Sink`` that writes a segment. It is used on one thread that may block."""

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        directory: str,
        sources: Sequence[ClosedSegment],
        config: LogConfig,
        pace: CleaningPace,
        on_written: Callable[[int, int], None],
    ) -> None:
        """``on_written`` is called before bytes are written, with their number and what is free."""
        self._fs = fs
        self._on_written = on_written
        self._directory = directory
        self._sources = sources
        self._pace = pace
        # What the log's own thread uses is not for others.
        self._context = OwnContext(fs, clock, IndexMemory(), OpenFiles(4))
        self._config = config
        self._buffers: list[Buffer] = []
        self._segments: list[LogSegment] = []
        self._begin(sources[0].base_offset)
        #: Whether all is as in the only source so far, and nothing was written.
        self._is_same = len(sources) == 1
        self.bytes_written = 0

    def _begin(self, base_offset: int) -> None:
        segment = LogSegment(
            self._context,
            self._directory,
            base_offset,
            self._config,
            size=0,
            suffix=CLEANED_SUFFIX,
        )
        segment.indexes.create()
        segment.log_file.create(0)
        self._segment = segment
        self._segments.append(segment)
        self._offset_max = base_offset + MAX_RELATIVE_OFFSET
        #: Where the bytes begin that are not in the file yet.
        self._written = 0

    @property
    def base_offsets(self) -> tuple[int, ...]:
        """Those of the segments that it became; nearly always one."""
        return tuple(segment.base_offset for segment in self._segments)

    def keep(self, data: memoryview, last_offset: int, max_timestamp: int) -> None:
        """Take a batch that stays as it is."""
        self._add(data, last_offset, max_timestamp)

    def put(self, data: Buffer, last_offset: int, max_timestamp: int) -> None:
        """Take a batch that has changed."""
        self.drop()
        self._add(data, last_offset, max_timestamp)

    def drop(self) -> None:
        """Note that something has changed: from here on it is written."""
        if not self._is_same:
            return
        self._is_same = False
        self._buffers.clear()
        self._copy_source(self._segment.log_file.size)

    def _add(self, data: Buffer, last_offset: int, max_timestamp: int) -> None:
        if last_offset > self._offset_max:
            self.drop()
            self.flush()
            self._begin(int.from_bytes(data[:_BASE_OFFSET_BYTES], "big"))
        segment = self._segment
        segment.indexes.add(segment.log_file.size, last_offset, max_timestamp, len(data))
        segment.log_file.size += len(data)
        if not self._is_same:
            self._buffers.append(data)

    def flush(self) -> None:
        """Write what was taken."""
        if not self._buffers:
            return
        buffers, self._buffers = self._buffers, []
        size = sum(map(len, buffers))
        self._take_room(size)
        self._segment.log_file.file.write_all_at(self._written, buffers)
        self._written += size
        self.bytes_written += size
        self._pace.done(size)

    def _take_room(self, size: int) -> None:
        """Leave half of what appends do not use either: there are checkpoints to be written."""
        total, usable = self._fs.free_bytes(self._directory)
        if usable - size < full_below(total) // 2:
            raise OSError(ENOSPC, f"{usable:,} bytes are free on the disk", self._directory)
        self._on_written(size, usable)

    def _copy_source(self, end: int) -> None:
        """Copy the beginning of the only source, which has stayed as it is."""
        file, target = self._fs.open(self._sources[0].path), self._segment.log_file.file
        try:
            while self._written < end:
                data = file.read_at(
                    self._written, min(self._pace.buffer_bytes, end - self._written)
                )
                self._take_room(len(data))
                target.write_at(self._written, data)
                self._written += len(data)
                self.bytes_written += len(data)
                self._pace.done(2 * len(data))
        finally:
            file.close()

    def finish(self, aborted: Sequence[AbortedTransaction], *, same_aborted: bool) -> bool:
        """Complete and sync the files; False if they are not needed, as nothing has changed.

        ``same_aborted`` tells whether the sources' transaction indexes have just these entries.
        """
        if self._is_same and same_aborted:
            return False
        self.drop()
        self.flush()
        mtime_ms = self._fs.stat(self._sources[-1].path).mtime_ms
        ends = (*self.base_offsets[1:], self._sources[-1].end_offset)
        for segment, end in zip(self._segments, ends, strict=True):
            for one in aborted:
                # Each is where its marker is.
                if segment.base_offset <= one.last_offset < end:
                    segment.indexes.txn.append(one)
            self._complete(segment, mtime_ms)
        # All names are there, or none counts: a start removes them.
        self._fs.sync_dir(self._directory)
        return True

    def _complete(self, segment: LogSegment, mtime_ms: int) -> None:
        segment.seal()
        for path in segment.paths():
            self._fs.set_mtime(path, mtime_ms)
        segment.log_file.file.sync()
        segment.indexes.sync()
        segment.close()


def remove_cleaned(fs: FileSystem, directory: str) -> None:
    """Remove what rounds have left that were given up."""
    for entry in fs.list_dir(directory):
        if entry.name.endswith(CLEANED_SUFFIX) and has_base_offset(entry.name):
            # Who gives the round up may be removing them at this moment, too.
            with suppress(FileNotFoundError):
                fs.remove(join(directory, entry.name))
