"""Opening a partition's folder: what an unclean stop left incomplete is completed or undone here.

In Kafka's order:

1. ``.deleted`` and ``.cleaned`` files are removed. So is a ``.swap`` file at or behind the first
   ``.cleaned`` one: it belongs to a cleaning that was not complete.
2. The other ``.swap`` files are complete: the segments that they replace are removed, then they are
   renamed.
3. Segments are opened; an index without a log file is removed, a log file without indexes scanned.
4. After an unclean stop every segment from the recovery point on is scanned: each batch's checksum
   is verified, the indexes are rebuilt, and the log is cut at the first damaged batch. Segments
   behind a cut are removed. So are segments behind a gap, because the file system may have lost the
   end of one file and kept the next, unless the gap may be intended. (Kafka looks for no gaps.)
5. Leader epochs are truncated to what is left, and the producer state is brought to the log's end.

Each repair is one log line that says what was done.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from dohle.core.ids import TopicPartition
from dohle.records.batch import CorruptBatch, RecordBatch
from dohle.storage.config import LogConfig
from dohle.storage.directory.checkpoints import CorruptCheckpoint
from dohle.storage.files import join
from dohle.storage.leader_epochs import LeaderEpochs
from dohle.storage.log import Log
from dohle.storage.log_context import LogContext
from dohle.storage.producers.replay import rebuild_producer_state
from dohle.storage.producers.snapshot import snapshot_offset
from dohle.storage.producers.state import ProducerState
from dohle.storage.segment.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    has_base_offset,
    segment_file_name,
)
from dohle.storage.segment.index import CorruptIndex
from dohle.storage.segment.recovery import recover_segment
from dohle.storage.segment.segment import LogSegment
from dohle.storage.segment.segments import Segments

logger = logging.getLogger("dohle.storage")

# The metadata log keeps its snapshots under this name until its own start removes them.
_KRAFT_SNAPSHOT_DELETED = ".checkpoint" + DELETED_SUFFIX


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What is known from the checkpoints and the last stop about a log to be opened."""

    log_start_offset: int = 0
    recovery_point: int = 0
    #: False if the checkpoint could not be read: then the whole log is scanned.
    recovery_point_known: bool = True
    #: Whether the log was once compacted: a segment may then end before the next one begins.
    was_cleaned: bool = False
    #: Whether every gap behind the recovery point is a loss; else it may be intended.
    gaps_are_losses: bool = False
    had_clean_shutdown: bool = False


def load_log(
    context: LogContext,
    directory: str,
    partition: TopicPartition,
    config: LogConfig,
    options: LoadOptions,
) -> Log:
    """Open a partition's folder, and repair it where needed; the folder itself must exist."""
    loader = _Loader(context, directory, partition, config, options)
    names = loader.finish_interrupted_work()
    loader.open_segments(names)
    log_end_offset = loader.recover()
    log_start_offset = options.log_start_offset
    if len(loader.segments) and not config.remote_storage_enable:
        # Else what is below the first segment may be in the remote tier.
        log_start_offset = max(log_start_offset, loader.segments.first.base_offset)
    # A scan writes snapshots of its own; otherwise one listing of the folder is enough.
    known = None if loader.repaired else snapshot_offsets(names)
    state = ProducerState(
        context.fs, directory, partition, context.producer_config, snapshot_offsets=known
    )
    log = Log(
        context,
        directory,
        partition,
        config,
        segments=loader.segments,
        producer_state=state,
        leader_epochs=loader.leader_epochs,
        log_start_offset=log_start_offset,
        log_end_offset=log_end_offset,
        recovery_point=loader.recovery_point(log_end_offset),
    )
    if not len(log.segments):
        log.segments.add(log.files.new_segment(log_end_offset, config))
    loader.leader_epochs.truncate_from_end(log_end_offset)
    loader.leader_epochs.truncate_from_start(log_start_offset)
    state.snapshots.remove_strays(log.segments.base_offsets)
    rebuild_producer_state(
        state,
        log.segments,
        log_start_offset,
        log_end_offset,
        context.clock.now_ms(),
        after_clean_shutdown=options.had_clean_shutdown,
    )
    if options.had_clean_shutdown and not loader.repaired:
        log.files.loaded_clean(log_end_offset)
    # A node may have more partitions than descriptors: files are opened when they are first used.
    log.files.close()
    return log


class _Loader:
    """The steps of opening one folder, in order."""

    def __init__(
        self,
        context: LogContext,
        directory: str,
        partition: TopicPartition,
        config: LogConfig,
        options: LoadOptions,
    ) -> None:
        self._context = context
        self._fs = context.fs
        self._directory = directory
        self._partition = partition
        self._config = config
        self._options = options
        self._has_gaps = False
        self._recovered_state: ProducerState | None = None
        self._epochs_were_corrupt = False
        self.repaired = False
        self.segments = Segments()
        self.leader_epochs = self._load_leader_epochs()

    def _load_leader_epochs(self) -> LeaderEpochs:
        try:
            return LeaderEpochs.load(self._fs, self._directory)
        except CorruptCheckpoint as error:
            # Recovery finds the epochs in the batches that it scans. A follower that lacks older
            # ones truncates further back than necessary, never too little.
            logger.warning(
                "%s: the leader epochs cannot be read, and are rebuilt as far as possible: %s",
                self._partition,
                error,
            )
            epochs = LeaderEpochs(self._fs, self._directory)
            epochs.clear()
            self._epochs_were_corrupt = True
            return epochs

    # Steps 1 and 2

    def finish_interrupted_work(self) -> set[str]:
        """Remove or complete temporary files; return the names that are left."""
        found = [entry.name for entry in self._fs.list_dir(self._directory) if not entry.is_dir]
        names = {name for name in found if self._is_ours(name)}
        if not any(name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)) for name in names):
            return names
        for name in sorted(names):
            if name.endswith(DELETED_SUFFIX) and not name.endswith(_KRAFT_SNAPSHOT_DELETED):
                self._remove(names, name, "it was already marked for deletion")
        cleaned = [name for name in names if name.endswith(CLEANED_SUFFIX)]
        swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
        if cleaned:
            first_cleaned = min(_base_offset(name) for name in cleaned)
            for name in sorted(swaps):
                if _base_offset(name) >= first_cleaned:
                    self._remove(names, name, "the cleaning it is from was not complete")
                    swaps.remove(name)
            for name in sorted(cleaned):
                self._remove(names, name, "the cleaning it is from was not complete")
        if swaps:
            self._complete_swap(names, swaps)
        self._fs.sync_dir(self._directory)
        return names

    def _is_ours(self, name: str) -> bool:
        """Tell whether a file is one that a broker may have made; warn if it only looks like one.

        Kafka does not start with a ``notes.log``: NumberFormatException.
        """
        kind = name.removesuffix(CLEANED_SUFFIX).removesuffix(SWAP_SUFFIX)
        if not kind.endswith(SEGMENT_SUFFIXES) or has_base_offset(name):
            return True
        logger.warning(
            "%s: ignoring %s: it is not the broker's, since its name does not begin with an offset"
            " of 20 digits. Move it elsewhere.",
            self._partition,
            name,
        )
        return False

    def _complete_swap(self, names: set[str], swaps: list[str]) -> None:
        new = [
            self._open_segment(_base_offset(name), suffix=SWAP_SUFFIX)
            for name in swaps
            if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)
        ]
        if new:
            # Of several, which a segment was split into, some may have their names already.
            taken = [
                range(
                    segment.base_offset, max(segment.reader.next_offset(), segment.base_offset + 1)
                )
                for segment in new
            ]
            for segment in new:
                segment.close()
            for name in sorted(names):
                if name.endswith(SEGMENT_SUFFIXES) and any(
                    _base_offset(name) in offsets for offsets in taken
                ):
                    self._remove(names, name, "a cleaned segment takes its place")
        # Opening may have rebuilt an index, which is a new file.
        found = {entry.name for entry in self._fs.list_dir(self._directory)}
        for name in sorted(name for name in found if name.endswith(SWAP_SUFFIX)):
            target = name.removesuffix(SWAP_SUFFIX)
            logger.info("%s: completing the swap of %s", self._partition, target)
            self._fs.rename(join(self._directory, name), join(self._directory, target))
            names.discard(name)
            names.add(target)

    def _remove(self, names: set[str], name: str, reason: str) -> None:
        logger.info("%s: removing %s: %s", self._partition, name, reason)
        self._fs.remove(join(self._directory, name))
        names.discard(name)

    # Step 3

    def open_segments(self, names: set[str]) -> None:
        """Open every log file, oldest first; scan those that lack an index."""
        for name in sorted(names):
            if name.endswith((INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)):
                if name.rpartition(".")[0] + LOG_SUFFIX not in names:
                    logger.warning("%s: removing %s, which has no log file", self._partition, name)
                    self._fs.remove(join(self._directory, name))
            elif name.endswith(LOG_SUFFIX):
                self._open_checked(_base_offset(name), names)

    def _open_checked(self, base_offset: int, names: set[str]) -> None:
        segment = self._open_segment(base_offset)
        problem = None
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            if segment_file_name(base_offset, suffix) not in names:
                problem = f"there is no {suffix} file"
        if segment_file_name(base_offset, TXN_INDEX_SUFFIX) in names:
            try:
                segment.indexes.txn.sanity_check()
            except CorruptIndex as error:
                problem = str(error)
        if problem is not None:
            logger.warning(
                "%s: checking segment %d and rebuilding its indexes: %s",
                self._partition,
                base_offset,
                problem,
            )
            self._repair(segment)
        self.segments.add(segment)

    def _repair(self, segment: LogSegment) -> None:
        """Scan a segment that may be below the recovery point, so that it is scanned only once.

        Its offset index gets its name when everything else is on the disk: after a crash before
        that it is missing, and the next start scans again.
        """
        index = segment.indexes.offset
        path, index.path = index.path, index.path + ".tmp"
        if self._fs.exists(path):
            self._fs.remove(path)
            self._fs.sync_dir(self._directory)
        self._recover_segment(segment)
        # The next start does not look for epochs here again.
        self.leader_epochs.flush()
        segment.indexes.sync()
        self._fs.rename(index.path, path)
        index.path = path
        self._fs.sync_dir(self._directory)

    def _open_segment(self, base_offset: int, suffix: str = "") -> LogSegment:
        path = join(self._directory, segment_file_name(base_offset, LOG_SUFFIX + suffix))
        size = self._fs.stat(path).size
        return LogSegment(
            self._context, self._directory, base_offset, self._config, size=size, suffix=suffix
        )

    # Step 4

    def recover(self) -> int:
        """Scan what may not have reached the disk; return the log end offset."""
        if not self._options.had_clean_shutdown:
            self._recover_from(self._options.recovery_point)
        if self._epochs_were_corrupt:
            self.leader_epochs.flush()
        end = self._log_end_offset()
        start = self._options.log_start_offset
        if end < start and len(self.segments):
            logger.warning(
                "%s: removing all segments: the log ends at %d, before its start %d",
                self._partition,
                end,
                start,
            )
            self._drop(self.segments)
            self.leader_epochs.clear()
        return max(end, start)

    def _log_end_offset(self) -> int:
        if not len(self.segments):
            return 0
        active = self.segments.active
        try:
            return active.reader.next_offset()
        except CorruptBatch as error:
            # The stop was marked as clean, but the file is damaged.
            logger.warning(
                "%s: checking segment %d and rebuilding its indexes: %s",
                self._partition,
                active.base_offset,
                error,
            )
            self._recover_segment(active)
            self.leader_epochs.flush()
            return active.reader.next_offset()

    def _recover_from(self, recovery_point: int) -> None:
        unflushed = list(self.segments.from_offset(recovery_point))
        previous: LogSegment | None = None
        previous_end = 0
        for number, segment in enumerate(unflushed):
            if previous is not None and self._shows_loss(previous, previous_end, segment):
                logger.warning(
                    "%s: removing segments from offset %d on: records are missing behind %d",
                    self._partition,
                    segment.base_offset,
                    previous_end,
                )
                self._drop(unflushed[number:])
                return
            truncated = self._recover_segment(segment)
            previous, previous_end = segment, segment.reader.next_offset()
            if truncated and unflushed[number + 1 :]:
                logger.warning(
                    "%s: removing the %d segments behind the damage: their records would leave a"
                    " gap",
                    self._partition,
                    len(unflushed) - number - 1,
                )
                self._drop(unflushed[number + 1 :])
                return

    def _shows_loss(self, previous: LogSegment, end: int, segment: LogSegment) -> bool:
        """Tell whether records between two segments were lost.

        What is below the recovery point is on the disk: a gap that begins there is the cleaner's,
        and one that is too wide for the segment before it is a follower's of a leader with such a
        gap. Where another broker may have written the log, compaction may have left other gaps too,
        here or on the leader, and at any sign of that nothing is removed (ADR 4).
        """
        options = self._options
        if (
            end == segment.base_offset
            or end < options.recovery_point
            or not previous.can_hold(segment.base_offset - 1)
        ):
            return False
        return options.gaps_are_losses or not (
            self._config.compact
            or options.was_cleaned
            or self._has_gaps
            or not options.recovery_point_known
        )

    def _recover_segment(self, segment: LogSegment) -> bool:
        """Scan one segment; tell whether bytes had to be cut off."""
        self.repaired = True
        state, epochs, size = self._state_at(segment.base_offset), self.leader_epochs, segment.size
        latest = -1 if epochs.latest_epoch is None else epochs.latest_epoch

        def assign(epoch: int, start_offset: int) -> None:
            # Until the recovery point has passed the segment, each start finds the epoch again;
            # and the flush that moves the recovery point writes it first.
            epochs.assign(epoch, start_offset, sync=False)

        def replay(batch: RecordBatch) -> None:
            aborted = state.replay(batch)
            if aborted is not None:
                segment.indexes.txn.append(aborted)

        # The scan of the next segment, and the load itself, continue from this snapshot.
        state.map_end_offset, has_gaps = recover_segment(segment, latest, assign, replay)
        self._has_gaps |= has_gaps
        state.take_snapshot(sync=False)
        return segment.size < size

    def _state_at(self, offset: int) -> ProducerState:
        """Return the producer state before a segment, from the last scan if that ended there."""
        state = self._recovered_state
        if state is None or state.map_end_offset != offset:
            state = ProducerState(
                self._fs, self._directory, self._partition, self._context.producer_config
            )
            before = Segments(s for s in self.segments if s.base_offset < offset)
            rebuild_producer_state(
                state, before, self._options.log_start_offset, offset, self._context.clock.now_ms()
            )
            self._recovered_state = state
        return state

    def _drop(self, gone: Iterable[LogSegment]) -> None:
        # At start nobody is reading: the files can be removed at once. The newest first, so that a
        # crash leaves no gap.
        gone = sorted(gone, key=lambda segment: segment.base_offset, reverse=True)
        self.segments.remove(gone)
        for segment in gone:
            segment.discard()
            for path in segment.paths():
                self._fs.remove(path)
        self._fs.sync_dir(self._directory)

    def recovery_point(self, log_end_offset: int) -> int:
        """Return the offset below which the log is known to be on the disk."""
        if self._options.had_clean_shutdown and not self.repaired:
            return log_end_offset
        return min(self._options.recovery_point, log_end_offset)


def _base_offset(name: str) -> int:
    return int(name.partition(".")[0])


def snapshot_offsets(names: Iterable[str]) -> list[int]:
    """Return the offsets of the producer snapshots among a folder's names."""
    return [offset for name in names if (offset := snapshot_offset(name)) is not None]
