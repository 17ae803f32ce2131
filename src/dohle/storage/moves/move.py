"""Moving a log to another directory of its node while it is appended to and read (KIP-113).

A *future replica* grows in a folder ``<topic>-<partition>.<unique>-future`` of the target. Closed
segments are copied first, then the active one, again and again, until so little is missing that it
can be copied between two appends. Then the future folder gets the partition's name, the old one is
marked for deletion, and the log goes on in the new one: it is the same object, with all it knows
about producers, epochs and offsets, but on other files. Readers keep the old files until done.

``next_job`` and ``finish`` are called on the thread that uses the log; jobs may run in any thread.

What a crash leaves, and how the next start handles it (``places``):

- Until the future folder is renamed, nothing was ever appended to it. So the folder with the
  partition's name is the log, whatever else there is.
- Before that rename, the metadata log says that the partition is in the target directory. If a
  crash comes between the two renames, that tells which of two folders of the same name is the log.
- The copies, and the future folder's name, were synced before as far as the log itself was, and the
  next flush syncs the new name. So if a power cut keeps only the second rename, the future replica
  has all that was flushed. It has nothing else: copies of segments that were deleted from the log
  meanwhile are removed, durably, before. If they came back, they would leave a gap before the other
  segments, and recovery truncates a log at a gap.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from dohle.core.errors import KafkaError
from dohle.core.ids import Uuid
from dohle.storage.files import file_name, join, make_empty
from dohle.storage.flush import FlushJob
from dohle.storage.leader_epochs import EpochEntry
from dohle.storage.log import Log
from dohle.storage.moves.copy import CopyFailed, Piece, ReplicaCopyJob
from dohle.storage.producers.snapshot import snapshot_name
from dohle.storage.segment.segment import LogSegment

if TYPE_CHECKING:
    from dohle.storage.directory.directory import LogDirectory

logger = logging.getLogger("dohle.storage")

#: How many bytes may be copied on the thread that uses the log, as the last step.
TAIL_BYTES_MAX = 256 * 1024
_SNAPSHOTS_PER_JOB_MAX = 16


class ReplicaMove:
    """One log on its way from one directory to another."""

    def __init__(self, log: Log, source: LogDirectory, target: LogDirectory, topic_id: Uuid):
        self.log = log
        self.source = source
        self.target = target
        self._fs = log.fs
        self._topic_id = topic_id
        self._begin()

    def _begin(self) -> None:
        #: The future replica's folder.
        self.folder = self.target.futures.begin(self.log.partition, self._topic_id)
        #: The offset below which the future replica has everything.
        self.log_end_offset = 0
        self._generation = self.log.files.generation
        # By path too: the files of a cleaned segment get their names last.
        self._whole: set[tuple[LogSegment, str]] = set()
        # How many bytes of a file are copied, and of which segment: a cleaned one reuses the name.
        self._copied: dict[str, tuple[LogSegment | None, int]] = {}
        self._epochs: tuple[EpochEntry, ...] | None = None
        self._job_segment: LogSegment | None = None
        self._job_end_offset = 0
        self._job_closes = False
        # Up to where the copies are synced, and the last one whose name is.
        self._synced_up_to = 0
        self._synced_segment: LogSegment | None = None

    @property
    def size(self) -> int:
        """How many bytes of segments the future replica has."""
        return sum(size for name, (_, size) in self._copied.items() if name.endswith(".log"))

    # Copying

    def next_job(self, bytes_max: int) -> ReplicaCopyJob | None:
        """Return what to copy next; None if ``finish`` may be called at once."""
        self.target.disk.ensure_online()
        with self.source.disk.guarding(f"moving {self.log.partition}"):
            self.log.write_appends()
            if self._generation != self.log.files.generation:
                logger.info(
                    "%s was truncated while it was being moved: copying it anew",
                    self.log.partition,
                )
                self._begin()
            *closed, active = self.log.segments
            for segment in closed:
                if (segment, file_name(segment.path)) not in self._whole:
                    return self._job(segment, bytes_max, is_closed=True)
            missing = active.size - self._position(active)
            if (
                missing > TAIL_BYTES_MAX
                or self._synced_segment is not active
                or self._companions(active, is_closed=False)
                or self._new_epochs() is not None
                or self._unwanted()
            ):
                return self._job(active, bytes_max, is_closed=False)
        return None

    def _job(self, segment: LogSegment, bytes_max: int, *, is_closed: bool) -> ReplicaCopyJob:
        position = self._position(segment)
        end = min(segment.size, position + bytes_max)
        is_whole = end == segment.size
        pieces = [Piece(file_name(segment.path), position, end)]
        companions = self._companions(segment, is_closed=is_closed) if is_whole else []
        self._job_segment = segment
        self._job_closes = is_closed and is_whole
        self._job_end_offset = segment.base_offset
        if is_whole:
            self._job_end_offset = self._end_of(segment)
        is_all = is_whole and not is_closed
        epochs = self._new_epochs() if is_all else None
        unwanted = self._unwanted() if is_all else ()
        sync = is_whole and (is_closed or bool(companions) or self._synced_segment is not segment)
        return ReplicaCopyJob(
            self._fs,
            self.log.directory,
            self.folder,
            tuple(pieces + companions),
            leader_epochs=epochs,
            unwanted=unwanted,
            sync=sync,
            sync_names=sync or epochs is not None or bool(unwanted),
            keep_mtime=is_closed and is_whole,
        )

    def _end_of(self, segment: LogSegment) -> int:
        following = self.log.segments.from_offset(segment.base_offset)[1:]
        return following[0].base_offset if following else self.log.log_end_offset

    def _companions(self, segment: LogSegment, *, is_closed: bool) -> list[Piece]:
        """Return the files beside a segment's log file that are not copied yet.

        While a segment is active, its indexes are in memory and their files incomplete. Its
        transaction index grows with every abort: a little of it is left for the last step.
        """
        pieces = []
        for index in (segment.indexes.offset, segment.indexes.time):
            if is_closed or not index.is_loaded:
                name = file_name(index.path)
                if is_closed or self._fs.stat(index.path).size != self._position_of(name, segment):
                    pieces.append(Piece(name, 0, None))
        aborted = self._aborted(segment)
        if aborted is not None and (is_closed or aborted.size > TAIL_BYTES_MAX):
            pieces.append(aborted)
        self.log.producer_state.snapshots.write_out()
        snapshots = [snapshot_name(offset) for offset in self.log.producer_state.snapshots.offsets]
        missing = [name for name in snapshots if name not in self._copied]
        pieces += [Piece(name, 0, None) for name in missing[:_SNAPSHOTS_PER_JOB_MAX]]
        return pieces

    def _aborted(self, segment: LogSegment) -> Piece | None:
        """Return what the copy lacks of a segment's transaction index."""
        path = segment.indexes.txn.path
        if not self._fs.exists(path):
            return None
        size, position = self._fs.stat(path).size, self._position_of(file_name(path), segment)
        return Piece(file_name(path), position, size) if size > position else None

    def _new_epochs(self) -> tuple[EpochEntry, ...] | None:
        epochs = tuple(self.log.leader_epochs.entries)
        return None if epochs == self._epochs else epochs

    def _position(self, segment: LogSegment) -> int:
        return self._position_of(file_name(segment.path), segment)

    def _position_of(self, name: str, segment: LogSegment) -> int:
        owner, size = self._copied.get(name, (None, 0))
        return size if owner is segment else 0

    def complete(self, job: ReplicaCopyJob, missing: tuple[str, ...]) -> None:
        """Take in that a job was done, except for files that were gone."""
        segment = self._job_segment
        if self._generation != self.log.files.generation or segment is None:
            return
        if segment not in set(self.log.segments):
            # It was cleaned or deleted meanwhile: a file of its name may be another one.
            for name in job.unwanted:
                del self._copied[name]
            return
        if missing and (gone := set(missing) & self._wanted()):
            error = FileNotFoundError(2, "a file is gone", join(self.log.directory, min(gone)))
            raise self.source.disk.failed(f"moving {self.log.partition}", error)
        for piece in job.pieces:
            if piece.name in missing:
                continue
            end = piece.end
            if end is None:
                with self.target.disk.guarding(f"moving {self.log.partition}"):
                    end = self._fs.stat(join(self.folder, piece.name)).size
            self._copied[piece.name] = (segment, end)
        for name in job.unwanted:
            del self._copied[name]
        if job.leader_epochs is not None:
            self._epochs = job.leader_epochs
        if self._job_closes:
            self._whole.add((segment, job.pieces[0].name))
        if job.sync:
            self._synced_segment = segment
            self._synced_up_to = max(self._synced_up_to, self._job_end_offset)
        self.log_end_offset = max(self.log_end_offset, self._job_end_offset)

    def failed(self, failure: CopyFailed) -> KafkaError:
        """Take the directory whose disk has failed offline; return the error for it."""
        directory = self.source if failure.of_source else self.target
        return directory.disk.failed(f"moving {self.log.partition}", failure.error)

    # The end

    def finish(self) -> FlushJob:
        """Let the log go on in its new place. Call only right after ``next_job`` returned None.

        Returns the job that syncs the new name, as any flush of the log does too.
        """
        log, active = self.log, self.log.segments.active
        synced_up_to, must_sync = self._synced_up_to, log.recovery_point > self._synced_up_to
        pieces = [Piece(file_name(active.path), self._position(active), active.size)]
        with self.source.disk.guarding(f"moving {log.partition}"):
            if (aborted := self._aborted(active)) is not None:
                pieces.append(aborted)
        tail = ReplicaCopyJob(self._fs, log.directory, self.folder, tuple(pieces), sync=must_sync)
        try:
            tail.run()
        except CopyFailed as failure:
            raise self.failed(failure) from failure
        if must_sync:
            synced_up_to = log.log_end_offset
        with self.target.disk.guarding(f"taking {log.partition} over"):
            for index in (active.indexes.offset, active.indexes.time):
                if index.is_loaded:
                    make_empty(self._fs, join(self.folder, file_name(index.path)))
            folder = self.target.futures.take_over(log, synced_up_to)
        # From here on the log is in its new place; nothing below can fail before it knows that.
        old_folder = log.directory
        self.source.forget(log)
        log.change_directory(self.target.context, folder, synced_up_to)
        self.target.logs[log.partition] = log
        self.source.futures.delete_departed(log, old_folder)
        logger.info("%s has moved from %s to %s", log.partition, old_folder, folder)
        return FlushJob(self._fs, (), (folder, self.target.path), 0, log.files.generation, 0)

    def _wanted(self) -> set[str]:
        names: set[str] = set()
        for segment in self.log.segments:
            names.update(file_name(path) for path in (segment.path, *segment.indexes.paths))
        snapshots = self.log.producer_state.snapshots.offsets
        names.update(snapshot_name(offset) for offset in snapshots)
        return names

    def _unwanted(self) -> tuple[str, ...]:
        """Return the copies of files that are no longer part of the log."""
        return tuple(sorted(self._copied.keys() - self._wanted()))

    def cancel(self) -> None:
        """Cancel the move: the log stays where it is, and what was copied is deleted."""
        self.target.futures.drop(self.log.partition)
