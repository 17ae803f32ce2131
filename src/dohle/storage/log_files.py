"""The files of a log: its segments, and what is kept beside them in the partition's folder.

What is in them, and who may see it, is decided in ``log``. Here they are created, marked for
deletion, renamed with their folder, and gathered for a flush. A flush is a job that has only paths,
so that it may block in a thread while the log is in use.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from dohle.core.ids import TopicPartition
from dohle.storage.config import LogConfig
from dohle.storage.directory.partition_dirs import PARTITION_METADATA
from dohle.storage.files import join, parent
from dohle.storage.flush import FlushJob, files_to_sync
from dohle.storage.leader_epochs import LeaderEpochs
from dohle.storage.log_context import LogContext
from dohle.storage.producers.state import ProducerState
from dohle.storage.segment.file_names import DELETED_SUFFIX
from dohle.storage.segment.segment import LogSegment
from dohle.storage.segment.segments import Segments

logger = logging.getLogger("dohle.storage")


class LogFiles:
    """What one log has on the disk."""

    __slots__ = (
        "_closed_as",
        "_leader_epochs",
        "_partition",
        "_producer_state",
        "_unsynced_snapshots",
        "context",
        "directory",
        "fs",
        "generation",
        "is_new",
        "segments",
    )

    def __init__(
        self,
        context: LogContext,
        directory: str,
        partition: TopicPartition,
        *,
        segments: Segments,
        producer_state: ProducerState,
        leader_epochs: LeaderEpochs,
    ) -> None:
        self.fs = context.fs
        self.context = context
        self.directory = directory
        self.segments = segments
        #: Counts the changes of the files' content or place other than by appends.
        self.generation = 0
        #: Whether this process created the folder or moved it here, and its name is not synced yet.
        self.is_new = False
        self._partition = partition
        self._producer_state = producer_state
        self._leader_epochs = leader_epochs
        self._unsynced_snapshots: set[str] = set()
        # The extent of the log when it was last closed, if it was closed cleanly.
        self._closed_as: tuple[int, int, int] | None = None

    # Creating and removing

    def new_segment(self, base_offset: int, config: LogConfig) -> LogSegment:
        """Create the files of an empty segment, with its own roll time if there is jitter."""
        jitter_max = min(config.segment_jitter_ms, config.segment_ms)
        jitter = self.context.rng.randrange(jitter_max) if jitter_max > 0 else 0
        return LogSegment.create(
            self.context, self.directory, base_offset, config, jitter_ms=jitter
        )

    def roll(self, base_offset: int, config: LogConfig, recovery_point: int) -> LogSegment | None:
        """Close the active segment and begin one; None if the active one has this base offset."""
        active = self.segments.active
        if active.base_offset == base_offset:
            # Nothing was written to it; it was to be rolled only because its index is full.
            active.reset_indexes()
            return None
        active.retire()
        if recovery_point >= base_offset:
            # From now on recovery begins behind it, and no flush needs to sync it again.
            active.indexes.sync()
        segment = self.new_segment(base_offset, config)
        self.segments.add(segment)
        # With a snapshot at every segment's start, recovery of one needs to read no other.
        self.take_snapshot(base_offset)
        return segment

    def remove_segments(self, gone: Sequence[LogSegment], reason: str, delay_ms: int) -> None:
        """Remove segments in this order: renamed to ``.deleted`` now, and deleted after a delay.

        Slices that were read before stay valid: an open file outlives its name.
        """
        # If a later snapshot is lost, these are what the state is rebuilt from.
        self._producer_state.snapshots.write_out()
        self.segments.remove(gone)
        paths: list[str] = []
        for segment in gone:
            logger.info("%s: deleting segment %d: %s", self._partition, segment.base_offset, reason)
            segment.discard()
            for path in segment.paths():
                self.fs.rename(path, path + DELETED_SUFFIX)
                paths.append(path + DELETED_SUFFIX)
            snapshot = self._producer_state.snapshots.mark_for_deletion(segment.base_offset)
            if snapshot is not None:
                paths.append(snapshot)
        self.context.deletions.add(paths, delay_ms)

    def delete_replaced(
        self, gone: Sequence[LogSegment], kept: Collection[int], delay_ms: int
    ) -> None:
        """Delete segments that are no longer in the list, as ``remove_segments`` does.

        The snapshots at their starts go too, but for those at offsets that are kept: the last batch
        of each producer is still there.
        """
        paths: list[str] = []
        for segment in gone:
            segment.discard()
            for path in segment.paths():
                self.fs.rename(path, path + DELETED_SUFFIX)
                paths.append(path + DELETED_SUFFIX)
            if segment.base_offset not in kept:
                snapshot = self._producer_state.snapshots.mark_for_deletion(segment.base_offset)
                if snapshot is not None:
                    paths.append(snapshot)
        self.context.deletions.add(paths, delay_ms)

    def take_snapshot(self, offset: int, *, closing: bool = False) -> None:
        """Keep the producer state as it is at ``offset``; the next flush has it on the disk."""
        self._producer_state.map_end_offset = offset
        snapshot = self._producer_state.take_snapshot_soon(closing=closing)
        if snapshot is not None:
            self._unsynced_snapshots.add(snapshot)

    # Flushing

    def flush_job(self, recovery_point: int, offset: int, *, closing: bool = False) -> FlushJob:
        """Return the job that lets the recovery point move up to ``offset``.

        ``closing`` adds what a flush leaves to recovery, since there is none after a clean stop.
        """
        self.segments.active.log_file.write_appends()
        paths, names_changed = files_to_sync(
            self.segments, recovery_point, offset, with_active_indexes=closing
        )
        epochs = None
        # An epoch without records is only in memory until its first records are synced.
        if not closing:
            self._leader_epochs.flush()
        elif self._leader_epochs.dirty:
            # Nothing else writes the file any more, so it can be left to the job.
            epochs = self._leader_epochs.replacement()
        paths += sorted(self._unsynced_snapshots)
        folders = [self.directory] if names_changed or self._unsynced_snapshots else []
        if self.is_new:
            # The folder and its ``partition.metadata`` were not synced when they were created.
            paths.append(join(self.directory, PARTITION_METADATA))
            folders = [self.directory, parent(self.directory)]
        return FlushJob(
            self.fs,
            tuple(paths),
            tuple(folders),
            offset,
            self.generation,
            self.segments.active.base_offset,
            epochs,
            self._producer_state.snapshots.unwritten,
        )

    def synced_up_to(self, job: FlushJob) -> int | None:
        """Note that a job was run; return the recovery point that it allows.

        None if the log was truncated or moved meanwhile: other records may have the same offsets
        now, or other files were synced. If the segment that was active then has been closed since,
        its start is the limit: its indexes were not synced, and its roll has asked for a flush.
        """
        if job.generation != self.generation:
            return None
        self.is_new = False
        self._unsynced_snapshots.difference_update(job.paths)
        self._producer_state.snapshots.written(job.snapshots)
        if job.active_base_offset != self.segments.active.base_offset:
            return min(job.offset, job.active_base_offset)
        return job.offset

    # Closing

    def loaded_clean(self, log_end_offset: int) -> None:
        """Note that the files are as a clean stop left them, all of them on the disk."""
        self._closed_as = self._extent(log_end_offset)

    def _extent(self, log_end_offset: int) -> tuple[int, int, int]:
        return self.generation, self.segments.active.base_offset, log_end_offset

    def prepare_close(self, recovery_point: int, log_end_offset: int) -> FlushJob | None:
        """Write what a clean stop leaves: whole indexes, a snapshot of the producer state.

        Returns the job that syncs it; None if this process has written nothing.
        """
        is_empty = self.is_new and log_end_offset == 0
        if is_empty or self._closed_as == self._extent(log_end_offset):
            # At most the start of an epoch without records was added.
            return None
        self.take_snapshot(log_end_offset, closing=True)
        self.segments.active.seal()
        return self.flush_job(recovery_point, log_end_offset, closing=True)

    # Where they are

    def moved_to(self, directory: str) -> None:
        """Follow a rename of the partition's folder."""
        self.directory = directory
        for segment in self.segments:
            segment.moved_to(directory)
        self._producer_state.snapshots.directory = directory
        self._leader_epochs.folder_renamed(directory)
        self._unsynced_snapshots.clear()

    def change_directory(self, context: LogContext, folder: str) -> None:
        """Go on in a folder of another log directory that has copies of all files.

        The files of the active segment's indexes are empty there if the indexes are in memory.
        Slices that were read before keep the old files.
        """
        self.generation += 1
        self.segments.active.indexes.forget_files()
        self.close()
        self.moved_to(folder)
        self.context = context
        self.is_new = True

    def close(self) -> None:
        """Close the descriptors and do nothing more, as when a directory goes offline."""
        for segment in self.segments:
            segment.close()

    def discard(self) -> None:
        """Free everything that is in memory, as the log is removed."""
        for segment in self.segments:
            segment.discard()
