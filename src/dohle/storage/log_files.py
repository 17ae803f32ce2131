"""The files of a log: its segments and what is kept beside them, and how they reach the disk.

What is in them, and who may see it, is the log's own matter (``log``).

- The recovery point is the offset below which everything is on the disk. It moves only after the
  files were synced, and goes back, durably, before a truncated log is written to again. A closed
  segment that ends at or below it has its indexes on the disk too: recovery will not look at it.
- A flush is a job that knows paths only, so that it may block in a thread. It counts only if the
  files it synced are still the log's: see ``complete_flush``.
"""

from __future__ import annotations

import logging

from dohle.core.ids import TopicPartition, Uuid
from dohle.storage.config import NEVER, LogConfig
from dohle.storage.directory.partition_dirs import PARTITION_METADATA
from dohle.storage.files import join, parent
from dohle.storage.flush import FlushJob, files_to_sync
from dohle.storage.leader_epochs import LeaderEpochs
from dohle.storage.log_context import LogContext
from dohle.storage.producers.state import ProducerState
from dohle.storage.segment.segment import LogSegment
from dohle.storage.segment.segments import Segments

logger = logging.getLogger("dohle.storage")


class LogFiles:
    """What a log has on the disk. Only :class:`~dohle.storage.log.Log` is made of it."""

    def __init__(
        self,
        context: LogContext,
        directory: str,
        partition: TopicPartition,
        config: LogConfig,
        *,
        segments: Segments,
        producer_state: ProducerState,
        leader_epochs: LeaderEpochs,
        log_end_offset: int,
        recovery_point: int,
    ) -> None:
        self.fs = context.fs
        self.disk = context.disk
        self._context = context
        self._clock = context.clock
        self.directory = directory
        self.partition = partition
        # From ``partition.metadata``; None for a folder of a broker that had no topic ids, or one
        # whose making a crash has cut short.
        self.topic_id: Uuid | None = None
        self.config = config
        self.segments = segments
        self.producer_state = producer_state
        self.leader_epochs = leader_epochs
        self.log_end_offset = log_end_offset
        self.recovery_point = recovery_point
        self._unsynced_snapshots: set[str] = set()
        #: How often what is in the files, or where they are, has changed otherwise than by appends.
        self.generation = 0
        # How far the log went when it was closed, if this life began with that.
        self._closed_as: tuple[int, int, int] | None = None
        # Made, or moved here, by this process, and its name has not been synced yet.
        self.is_new = False
        # A roll leaves closed segments that are to reach the disk up to this offset, at once.
        self.flush_wanted_up_to = recovery_point
        self._rolled_ms = 0
        # When flush.ms has passed since the first append behind the last flush.
        self._flush_by_ms: int | None = None
        self._start_flush_timer()

    def update_config(self, config: LogConfig) -> None:
        """Go on with other settings of the topic."""
        self.config, self._flush_by_ms = config, None
        self._start_flush_timer()

    def roll(self, expected_next_offset: int = 0) -> LogSegment:
        """Close the active segment and begin one at the log end (or the next batch's offset)."""
        with self.disk.guarding(f"rolling {self.partition}"):
            base_offset = max(expected_next_offset, self.log_end_offset)
            active = self.segments.active
            if active.base_offset == base_offset:
                # Nothing was written to it; only its index can have been found full.
                active.reset_indexes()
                return active
            active.retire()
            if self.recovery_point >= base_offset:
                # From now on recovery begins behind it, and no flush has to come back to it.
                active.indexes.sync()
            segment = self.new_segment(base_offset)
            self.segments.add(segment)
            # With a snapshot at every segment's start, recovery of one needs to read no other.
            self._take_snapshot(base_offset)
        self.flush_wanted_up_to, self._rolled_ms = base_offset, self._clock.monotonic_ms()
        self._context.flushes.flush_at(self, self._rolled_ms)
        logger.debug("%s: rolled a new segment at offset %d", self.partition, base_offset)
        return segment

    def new_segment(self, base_offset: int) -> LogSegment:
        """Make an empty segment's files, with a roll time of its own if jitter is set."""
        jitter_max = min(self.config.segment_jitter_ms, self.config.segment_ms)
        jitter = self._context.rng.randrange(jitter_max) if jitter_max > 0 else 0
        return LogSegment.create(
            self._context, self.directory, base_offset, self.config, jitter_ms=jitter
        )

    def _take_snapshot(self, offset: int) -> None:
        self.producer_state.map_end_offset = offset
        snapshot = self.producer_state.take_snapshot(sync=False)
        if snapshot is not None:
            self._unsynced_snapshots.add(snapshot)

    # Flushing

    def prepare_flush(self, up_to: int | None = None) -> FlushJob | None:
        """Gather what has to be synced for the recovery point to reach ``up_to`` (the log end)."""
        offset = self.log_end_offset if up_to is None else up_to
        if offset >= self.log_end_offset:
            self._flush_by_ms = None
        return self._flush_job(offset) if offset > self.recovery_point else None

    def _flush_job(self, offset: int, *, closing: bool = False) -> FlushJob:
        epochs = None
        with self.disk.guarding(f"flushing {self.partition}"):
            self.segments.active.log_file.write_appends()
            paths, names_changed = files_to_sync(
                self.segments, self.recovery_point, offset, with_active_indexes=closing
            )
            # An epoch that began without a record is in memory only until records of it are synced.
            if not closing:
                self.leader_epochs.flush()
            elif self.leader_epochs.dirty:
                # Nothing else will write the file any more, so it can wait for the job.
                epochs = tuple(self.leader_epochs.entries)
        paths += sorted(self._unsynced_snapshots)
        folders = [self.directory] if names_changed or self._unsynced_snapshots else []
        if self.is_new:
            # The folder itself, and whose it is, have not been synced when it was made.
            paths.append(join(self.directory, PARTITION_METADATA))
            folders = [self.directory, parent(self.directory)]
        return FlushJob(
            self.fs,
            tuple(paths),
            tuple(folders),
            offset,
            self.generation,
            self.segments.active.base_offset,
            None if epochs is None else (self.directory, epochs),
        )

    def complete_flush(self, job: FlushJob) -> None:
        """Move the recovery point after ``job.run`` returned.

        Not if the log was truncated meanwhile: other records may have the synced ones' offsets now;
        nor if it has moved, for then other files were synced.
        And not past the segment that was active then if it has been closed, for its indexes were
        left out; the flush that its roll has asked for comes next.
        """
        if job.generation != self.generation:
            return
        offset = job.offset
        if job.active_base_offset != self.segments.active.base_offset:
            offset = min(offset, job.active_base_offset)
        self.recovery_point = max(self.recovery_point, offset)
        self.is_new = False
        self._unsynced_snapshots.difference_update(job.paths)

    @property
    def flush_due_ms(self) -> int | None:
        """When a flush is due by the monotonic clock; None if none is wanted."""
        if self.flush_wanted_up_to > self.recovery_point:
            return self._rolled_ms
        return self._flush_by_ms

    def prepare_due_flush(self) -> FlushJob | None:
        """Gather what a roll or ``flush.ms`` wants on the disk by now."""
        due_ms = self._flush_by_ms
        if due_ms is not None and due_ms <= self._clock.monotonic_ms():
            return self.prepare_flush()
        return self.prepare_flush(self.flush_wanted_up_to)

    def _start_flush_timer(self) -> None:
        if self.config.flush_ms != NEVER and self.log_end_offset > self.recovery_point:
            self._flush_by_ms = self._clock.monotonic_ms() + self.config.flush_ms
            self._context.flushes.flush_at(self, self._flush_by_ms)

    def flush(self, up_to: int | None = None) -> None:
        """Return once everything below ``up_to`` (the log end) is on the disk."""
        with self.disk.guarding(f"flushing {self.partition}"):
            job = self.prepare_flush(up_to)
            if job is not None:
                job.run()
                self.complete_flush(job)

    def _flush_as_configured(self) -> None:
        """Do after an append what flush.messages and flush.ms ask for."""
        config = self.config
        if self.log_end_offset - self.recovery_point >= config.flush_messages:
            self.flush()
        elif self._flush_by_ms is None and config.flush_ms != NEVER:
            self._start_flush_timer()

    # Life

    def moved_to(self, directory: str) -> None:
        """Follow a rename of the partition's folder."""
        self.directory = directory
        for segment in self.segments:
            segment.moved_to(directory)
        self.producer_state.snapshots.directory = directory
        self.leader_epochs.folder_renamed(directory)
        self._unsynced_snapshots.clear()

    def change_directory(self, context: LogContext, folder: str, synced_up_to: int) -> None:
        """Go on in a folder of another log directory that has copies of all files.

        They are on the disk below an offset. The files of the active segment's indexes are empty
        there if the indexes are in memory. Slices that were read before keep the old files.
        """
        self.generation += 1
        self.segments.active.indexes.forget_files()
        self.close_files()
        self.moved_to(folder)
        self._context, self.disk = context, context.disk
        self.recovery_point = synced_up_to
        self.is_new = True
        if self._flush_by_ms is None:
            # A flush that was due may be on its way to the old files, and will not count.
            self._start_flush_timer()
        if (due_ms := self.flush_due_ms) is not None:
            self._context.flushes.flush_at(self, due_ms)

    def loaded_clean(self) -> None:
        """Take note that the files are as a clean stop has left them, all of them on the disk."""
        self._closed_as = self._extent

    @property
    def _extent(self) -> tuple[int, int, int]:
        return self.generation, self.segments.active.base_offset, self.log_end_offset

    def prepare_close(self) -> FlushJob | None:
        """Write what a clean stop leaves: whole indexes, a snapshot of the state.

        Returns what is to be synced then; None if nothing has been written in this life.
        """
        with self.disk.guarding(f"closing {self.partition}"):
            if self._closed_as == self._extent or (self.is_new and self.log_end_offset == 0):
                # Nothing but perhaps the begin of an epoch, which no record has yet.
                return None
            self._take_snapshot(self.log_end_offset)
            self.segments.active.seal()
            # With all that a flush leaves to recovery: there will be none.
            return self._flush_job(self.log_end_offset, closing=True)

    def close(self) -> None:
        """Leave the files as a clean stop does, all synced."""
        try:
            with self.disk.guarding(f"closing {self.partition}"):
                job = self.prepare_close()
                if job is not None:
                    job.run()
                    self.complete_flush(job)
        finally:
            self.close_files()

    def close_files(self) -> None:
        """Give the descriptors back and nothing more, as for a directory that went offline."""
        for segment in self.segments:
            segment.close()

    def discard(self) -> None:
        """Give everything back that the log has in memory, as it is taken away."""
        for segment in self.segments:
            segment.discard()
