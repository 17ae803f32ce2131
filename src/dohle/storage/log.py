"""One partition's log: the order of its records, on disk and for readers.

Offsets, from old to new: log start ≤ local log start ≤ last stable offset ≤ high watermark ≤ log
end. What is between the log start and the local one is in the remote tier only.

- ``append_as_leader`` assigns offsets, ``append_as_follower`` keeps those of the leader. Nothing
  changes until the whole append is accepted; then its bytes are written, and then the producer
  state changes. A deferred append changes the state first and is written by ``write_appends``; if
  that fails, the directory goes offline and the state is no longer used.
- ``log_read`` finds what a reader may see of it.
- An ``OSError`` takes the log's directory offline, a file that somebody has cut or deleted the log
  alone; from then on every call answers KAFKA_STORAGE_ERROR, and what is on the disk is left for
  recovery.

The files are handled in ``log_files``; ``flush_state`` knows how much of them is on the disk.
``loader`` opens and repairs a log at start, ``retention`` deletes by age, size and log start, and
``log_truncation`` removes the end of a log.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicPartition, Uuid
from dohle.records.batch import (
    Batch,
    RecordBatch,
    set_base_offset_and_epoch,
)
from dohle.records.checking.fast_check import FastCheckedBatch
from dohle.storage import log_truncation
from dohle.storage.append_batches import (
    assign_offsets,
    check_batches,
    follower_batches,
    note_epoch,
)
from dohle.storage.config import NEVER, LogConfig
from dohle.storage.directory.disk_status import LogStatus
from dohle.storage.files import Buffer
from dohle.storage.flush import FlushJob
from dohle.storage.flush_state import FlushState
from dohle.storage.leader_epochs import EpochEntry, LeaderEpochs
from dohle.storage.log_context import LogContext
from dohle.storage.log_files import LogFiles
from dohle.storage.log_values import AppendInfo, KnownPosition
from dohle.storage.producers.append import NO_VERIFICATION, TV_UNKNOWN, VerificationGuard
from dohle.storage.producers.entry import ProducerEntry
from dohle.storage.producers.recall import recall_batches
from dohle.storage.producers.state import AppendOrigin, ProducerState
from dohle.storage.segment.index import MAX_RELATIVE_OFFSET
from dohle.storage.segment.segment import LogSegment
from dohle.storage.segment.segments import Segments

if TYPE_CHECKING:
    from dohle.storage.cleaning.round import CleaningRound

logger = logging.getLogger("dohle.storage")

# To make a named tuple this way takes half of the time.
_new = tuple.__new__

_RAFT = (AppendOrigin.RAFT_LEADER, AppendOrigin.RAFT_FOLLOWER)


class Log:
    """A partition's log. Made by ``loader.load_log``."""

    __slots__ = (
        "_clock",
        "appended_bytes",
        "cleaner_offset",
        "cleaning",
        "config",
        "counted_from",
        "disk",
        "files",
        "flushing",
        "fs",
        "high_watermark",
        "highest_remote_offset",
        "known_end",
        "known_start",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "partition",
        "producer_state",
        "segments",
        "topic_id",
    )

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
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
    ) -> None:
        self.fs = context.fs
        self.disk = LogStatus(context.disk, partition)
        self._clock = context.clock
        self.partition = partition
        #: From ``partition.metadata``; None for a folder of a broker that had no topic ids, or if a
        #: crash interrupted its creation.
        self.topic_id: Uuid | None = None
        self.config = config
        self.segments = segments
        self.producer_state = producer_state
        self.leader_epochs = leader_epochs
        self.files = LogFiles(
            context,
            directory,
            partition,
            segments=segments,
            producer_state=producer_state,
            leader_epochs=leader_epochs,
        )
        self.log_start_offset = log_start_offset
        #: Up to where the cleaner has been; None if it never was here. Kept in the directory's
        #: ``cleaner-offset-checkpoint``.
        self.cleaner_offset: int | None = None
        #: The round of cleaning that is under way: told before anything else changes the segments.
        self.cleaning: CleaningRound | None = None
        #: The last offset known to be in the remote tier; -1 as long as that was not found out.
        self.highest_remote_offset = -1
        self.high_watermark = log_start_offset
        if len(segments):
            self.high_watermark = self.local_log_start_offset
        #: Where readers were last told that what they may see ends, and begins: see ``log_read``.
        self.known_end: KnownPosition | None = None
        self.known_start: KnownPosition | None = None
        self.log_end_offset = log_end_offset
        #: How many records, and bytes, were appended since it was opened. Records are told by the
        #: log end: this is where it would have been before the first.
        self.counted_from = log_end_offset
        self.appended_bytes = 0
        self.flushing = FlushState(recovery_point)
        self._start_flush_timer()

    def update_config(self, config: LogConfig) -> None:
        """Apply new settings of the topic."""
        self.config, self.flushing.timer_ms = config, None
        self._start_flush_timer()

    @property
    def directory(self) -> str:
        """The partition's folder."""
        return self.files.directory

    @property
    def recovery_point(self) -> int:
        """The offset below which everything is on the disk."""
        return self.flushing.recovery_point

    # What readers may see

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self.segments.size

    @property
    def local_log_start_offset(self) -> int:
        """Where what is on this disk begins: behind the log start if older segments are remote."""
        return max(self.log_start_offset, self.segments.first.base_offset)

    @property
    def has_remote_part(self) -> bool:
        """Whether the log begins before what is on this disk."""
        return self.log_start_offset < self.segments.first.base_offset

    @property
    def appended_records(self) -> int:
        """How many records were appended here since the log was opened, and not copied."""
        return self.log_end_offset - self.counted_from

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction is decided, and which all replicas have."""
        transactions = self.producer_state.transactions
        if not (transactions.ongoing or transactions.unreplicated):
            return self.high_watermark
        first_unstable = transactions.first_unstable_offset
        if first_unstable is None:
            return self.high_watermark
        return min(self.high_watermark, max(first_unstable, self.log_start_offset))

    @property
    def may_hold_file(self) -> bool:
        """Whether a slice may be kept until it is sent, or else its bytes are to be copied.

        Each keeps a file open, and there may be thousands.
        """
        return self.files.context.open_files.may_hold_more

    def update_high_watermark(self, offset: int) -> int:
        """Set the high watermark, kept between log start and log end; return what it became."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        if offset < self.log_start_offset or self.config.remote_storage_enable:
            offset = max(offset, self.local_log_start_offset)
        self.high_watermark = offset
        if self.producer_state.transactions.unreplicated:
            self.producer_state.on_high_watermark_updated(offset)
        return offset

    # Appending

    def append_as_leader(
        self,
        records: Buffer,
        leader_epoch: int,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verification_guard: VerificationGuard = NO_VERIFICATION,
        transaction_version: int = TV_UNKNOWN,
        defer_write: bool = False,
    ) -> AppendInfo:
        """Give the batches offsets and this leader's epoch, in place, and write them.

        With ``defer_write`` the bytes are written by ``write_appends``, together with those of
        other appends; before that no request may be answered, and the bytes must not be changed.

        The records inside (timestamps, keys) were checked before; here the batches themselves are:
        size, checksum, offsets from zero, one batch from a client.
        """
        view = memoryview(records)
        if view.readonly:
            view = memoryview(bytearray(view))
        found = check_batches(view, leader_epoch, origin, self.config)
        return self._append_assigned(
            found, view, leader_epoch, origin, verification_guard, transaction_version, defer_write
        )

    def append_validated(
        self,
        batch: RecordBatch,
        leader_epoch: int,
        *,
        verification_guard: VerificationGuard = NO_VERIFICATION,
        transaction_version: int = TV_UNKNOWN,
        defer_write: bool = False,
    ) -> AppendInfo:
        """Append a client's batch, in writable memory, that ``records.validation`` has accepted.

        As ``append_as_leader``, but of the checks there only that of the checksum is made.
        """
        batch.ensure_valid()
        return self._append_assigned(
            (batch,),
            batch.buffer,
            leader_epoch,
            AppendOrigin.CLIENT,
            verification_guard,
            transaction_version,
            defer_write,
        )

    def append_fast_checked(self, batch: FastCheckedBatch, leader_epoch: int) -> AppendInfo | None:
        """Append a client's batch as ``append_validated`` does, unwritten: the fast path.

        Returns None, and changes nothing, if the batch needs the slow path: for a new segment, a
        new epoch, the time of the append, or full checks of the producer.
        """
        # To unpack a tuple takes less than to ask for three of its fields by name.
        buffer, delta, max_timestamp, _, _, _, _ = batch
        size = len(buffer)
        self.disk.ensure_writable(size)
        config, segment = self.config, self.segments.active
        first_offset = self.log_end_offset
        last_offset = first_offset + delta
        try:
            if (
                config.message_timestamp_type_log_append
                or leader_epoch != self.leader_epochs.latest_epoch
                or segment.should_roll(config, size, max_timestamp, last_offset)
                or not self.producer_state.commit_fast_checked(batch, last_offset)
            ):
                return None
            set_base_offset_and_epoch(buffer, 0, first_offset, leader_epoch)
            segment.defer_write(buffer, last_offset, max_timestamp)
            self.log_end_offset = last_offset + 1
            self.appended_bytes += size
            if (
                last_offset - self.flushing.recovery_point >= config.flush_messages - 1
                or config.flush_ms != NEVER
            ):
                self._flush_as_configured()
        except OSError as error:
            raise self.disk.failed(f"appending to {self.partition}", error) from error
        return _new(AppendInfo, (first_offset, last_offset, max_timestamp, -1, size, False))

    def _append_assigned(
        self,
        found: Sequence[RecordBatch],
        view: memoryview,
        leader_epoch: int,
        origin: AppendOrigin,
        guard: VerificationGuard,
        transaction_version: int,
        defer_write: bool,
    ) -> AppendInfo:
        append_time = self._clock.now_ms() if self.config.message_timestamp_type_log_append else -1
        assign_offsets(found, view, self.log_end_offset, leader_epoch, append_time)
        return self._append(
            found, view, origin, append_time, guard, transaction_version, defer_write
        )

    def append_as_follower(
        self,
        records: Buffer,
        leader_epoch: int,
        *,
        origin: AppendOrigin = AppendOrigin.REPLICATION,
    ) -> AppendInfo | None:
        """Write what the leader sent, at its offsets; None if there was no whole batch.

        A batch with a higher epoch than that of the fetch, and all batches behind it, are left out:
        they came from a later leader.
        """
        view = memoryview(records)
        found, size = follower_batches(view, leader_epoch, self.log_end_offset, self.partition)
        if not found:
            return None
        end = self.log_end_offset
        info = self._append(found, view[:size], origin, -1, NO_VERIFICATION, TV_UNKNOWN)
        # What is copied was counted where it was appended first.
        self.counted_from += self.log_end_offset - end
        self.appended_bytes -= info.size
        return info

    def _append(
        self,
        found: Sequence[Batch],
        view: memoryview,
        origin: AppendOrigin,
        append_time: int,
        guard: VerificationGuard,
        transaction_version: int,
        defer_write: bool = False,
    ) -> AppendInfo:
        size = len(view)
        if origin in _RAFT:
            # What the controller decides is little, and has the room that is left.
            self.disk.ensure_online()
        else:
            self.disk.ensure_writable(size)
        if size > self.config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{size} bytes are more than segment.bytes {self.config.segment_bytes}",
            )
        first, last = found[0], found[-1]
        if origin is AppendOrigin.CLIENT and (entry := self.producer_state.forgot_before(first)):
            with self.disk.guarding(f"reading {self.partition}"):
                self.producer_state.recall(recall_batches(entry, self.segments))
        plan = self.producer_state.validate(
            found, origin, verification_guard=guard, transaction_version=transaction_version
        )
        max_timestamp = first.max_timestamp
        if first is not last:
            max_timestamp = max([batch.max_timestamp for batch in found])
        if plan.duplicate is not None:
            old = plan.duplicate
            return AppendInfo(
                old.first_offset, old.last_offset, max_timestamp, old.timestamp, 0, True
            )
        first_offset = first.base_offset if first.magic >= 2 else first.last_offset
        last_offset = last.last_offset
        try:
            for batch in found:
                if batch.partition_leader_epoch != self.leader_epochs.latest_epoch:
                    note_epoch(self.leader_epochs, batch)
            segment = self.segments.active
            if segment.should_roll(self.config, size, max_timestamp, last_offset):
                # A follower of a compacted log may have to leave a gap. The segment still begins
                # where the log ended (unless its relative offsets would then be too large), so
                # that a gap between segments is a sign of loss: see ``loader``.
                far = last_offset - self.log_end_offset > MAX_RELATIVE_OFFSET
                segment = self.roll(first_offset if far else self.log_end_offset)
            segment.append(found, view, defer_write=defer_write)
            self.log_end_offset = last_offset + 1
            self.appended_bytes += size
            for aborted in plan.aborted:
                segment.indexes.txn.append(aborted)
            self.producer_state.commit(plan)
            self._flush_as_configured()
        except OSError as error:
            raise self.disk.failed(f"appending to {self.partition}", error) from error
        return AppendInfo(first_offset, last_offset, max_timestamp, append_time, size)

    def write_appends(self) -> None:
        """Write what appends have left unwritten, with one system call."""
        self.disk.ensure_online()
        try:
            self.segments.active.log_file.write_appends()
        except OSError as error:
            raise self.disk.failed(f"appending to {self.partition}", error) from error

    # Removing

    def increment_log_start_offset(self, offset: int) -> bool:
        """Hide everything below ``offset`` from readers; retention deletes the segments."""
        if offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.partition}: {offset} is above the high watermark {self.high_watermark}",
            )
        if offset <= self.log_start_offset:
            return False
        with self.disk.guarding(f"moving the start of {self.partition}"):
            self.log_start_offset = offset
            self.leader_epochs.truncate_from_start(offset)
            self.producer_state.on_log_start_offset_incremented(offset)
        return True

    def delete_records(self, offset: int) -> int:
        """Serve DeleteRecords: -1 means up to the high watermark. Return the new log start."""
        if self.config.compact and not self.config.delete:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"{self.partition.topic} is compacted: add delete to its cleanup.policy first",
            )
        if offset < -1:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is not an offset")
        self.increment_log_start_offset(self.high_watermark if offset == -1 else offset)
        return self.log_start_offset

    def remove_segments(self, gone: Sequence[LogSegment], reason: str) -> None:
        """Remove segments in this order; the files are deleted after ``file.delete.delay.ms``."""
        with self.disk.guarding(f"deleting segments of {self.partition}"):
            if self.cleaning is not None:
                self.cleaning.before_removal(gone)
            self.files.remove_segments(gone, reason, self.config.file_delete_delay_ms)

    def truncate_to(self, offset: int) -> bool:
        """Remove everything from ``offset`` on; tell whether there was anything."""
        return log_truncation.truncate_to(self, offset, self._clock.now_ms())

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Remove everything and go on at ``offset``, as a follower does that is too far behind."""
        start = offset if log_start_offset is None else log_start_offset
        log_truncation.truncate_fully_and_start_at(self, offset, start, self._clock.now_ms())

    def start_from_tier(
        self,
        offset: int,
        log_start_offset: int,
        epochs: Sequence[EpochEntry],
        producers: Sequence[ProducerEntry],
    ) -> None:
        """Remove everything and go on at ``offset``: what is before that is in the remote tier."""
        now_ms = self._clock.now_ms()
        start = min(log_start_offset, offset)
        log_truncation.truncate_fully_and_start_at(self, offset, start, now_ms)
        with self.disk.guarding(f"starting {self.partition} from the remote tier"):
            for epoch, begin in epochs:
                if begin < offset:
                    self.leader_epochs.assign(epoch, begin, sync=False)
            self.leader_epochs.truncate_from_start(start)
            self.leader_epochs.flush()
            self.producer_state.restore(offset, producers, now_ms)

    # Rolling and flushing

    def roll(self, expected_next_offset: int = 0) -> LogSegment:
        """Close the active segment and begin one at the log end (or the next batch's offset)."""
        with self.disk.guarding(f"rolling {self.partition}"):
            base_offset = max(expected_next_offset, self.log_end_offset)
            segment = self.files.roll(base_offset, self.config, self.recovery_point)
        if segment is None:
            return self.segments.active
        self.flushing.rolled(base_offset, self._clock.monotonic_ms())
        self._ask_for_flush()
        logger.debug("%s: rolled a new segment at offset %d", self.partition, base_offset)
        return segment

    def _ask_for_flush(self) -> None:
        if (due_ms := self.flushing.due_ms) is not None:
            self.files.context.flushes.flush_at(self, due_ms)

    def flush_soon(self, up_to: int) -> None:
        """Ask for a flush of closed segments: recovery leaves them to the next roll."""
        if up_to > self.flushing.wanted_up_to:
            self.flushing.rolled(up_to, self._clock.monotonic_ms())
            self._ask_for_flush()

    def _start_flush_timer(self) -> None:
        now_ms = self._clock.monotonic_ms()
        self.flushing.start_timer(self.log_end_offset, self.config.flush_ms, now_ms)
        if (due_ms := self.flushing.timer_ms) is not None:
            self.files.context.flushes.flush_at(self, due_ms)

    def _flush_as_configured(self) -> None:
        """After an append, flush or schedule a flush as flush.messages and flush.ms ask for."""
        config, flushing = self.config, self.flushing
        if self.log_end_offset - flushing.recovery_point >= config.flush_messages:
            self.flush()
        elif config.flush_ms != NEVER and flushing.timer_ms is None:
            self._start_flush_timer()

    def prepare_flush(self, up_to: int | None = None) -> FlushJob | None:
        """Return the job that lets the recovery point reach ``up_to`` (by default the log end)."""
        offset = self.log_end_offset if up_to is None else up_to
        if offset >= self.log_end_offset:
            self.flushing.timer_ms = None
        if offset <= self.recovery_point:
            return None
        with self.disk.guarding(f"flushing {self.partition}"):
            return self.files.flush_job(self.recovery_point, offset)

    def prepare_due_flush(self) -> FlushJob | None:
        """Return the job for what a roll or ``flush.ms`` wants on the disk by now."""
        now_ms = self._clock.monotonic_ms()
        return self.prepare_flush(self.flushing.due_up_to(self.log_end_offset, now_ms))

    def complete_flush(self, job: FlushJob) -> None:
        """Move the recovery point after ``job.run`` returned, as far as the job is still valid."""
        synced_up_to = self.files.synced_up_to(job)
        if synced_up_to is not None:
            self.flushing.flushed_up_to(synced_up_to)

    def flush(self, up_to: int | None = None) -> None:
        """Return once everything below ``up_to`` (by default the log end) is on the disk."""
        with self.disk.guarding(f"flushing {self.partition}"):
            job = self.prepare_flush(up_to)
            if job is not None:
                started_s = self._clock.monotonic_s()
                job.run()
                self.files.context.on_flushed(self._clock.monotonic_s() - started_s)
                self.complete_flush(job)

    # Moving and closing

    def change_directory(self, context: LogContext, folder: str, synced_up_to: int) -> None:
        """Go on in a folder of another log directory that has copies of all files.

        The copies are synced up to the offset ``synced_up_to``.
        """
        self.files.change_directory(context, folder)
        self.disk = LogStatus(context.disk, self.partition)
        self.flushing.recovery_point = synced_up_to
        if self.flushing.timer_ms is None:
            # A flush that is running may be syncing the old files, and will not count.
            self._start_flush_timer()
        self._ask_for_flush()

    def prepare_close(self) -> FlushJob | None:
        """Write what a clean stop leaves; return the job that syncs it, if there is anything."""
        with self.disk.guarding(f"closing {self.partition}"):
            return self.files.prepare_close(self.recovery_point, self.log_end_offset)

    def close(self) -> None:
        """Close the log cleanly, with all files synced."""
        try:
            with self.disk.guarding(f"closing {self.partition}"):
                job = self.prepare_close()
                if job is not None:
                    job.run()
                    self.complete_flush(job)
        finally:
            self.files.close()
