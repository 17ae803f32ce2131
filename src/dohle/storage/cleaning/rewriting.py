"""Rewriting segments: what stays of their batches goes to a ``Sink``, in order.

``keeping`` decides and ``rebuilding`` writes anew what changes. A batch that stays as it is keeps
its bytes, and is not even decompressed if it lies behind the map or was aborted as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from dohle.core.errors import KafkaError
from dohle.records.batch import Batch, LegacyBatch, RecordBatch
from dohle.records.compression.scratch import Scratch
from dohle.records.record_columns import record_columns
from dohle.storage.cleaning.keeping import BatchFate, LastRecord, fate_of, kept_records
from dohle.storage.cleaning.key_map import KeyMap
from dohle.storage.cleaning.reading import (
    BatchOrder,
    CleaningPace,
    ClosedSegment,
    TransactionIndexes,
    control_type,
    whole_batches,
)
from dohle.storage.cleaning.rebuilding import convert, empty_batch, rebuild
from dohle.storage.cleaning.round_values import Statistics, Uncleanable
from dohle.storage.cleaning.transactions import TransactionTracker
from dohle.storage.files import Buffer, FileSystem


class Sink(Protocol):
    """Where the batches go. What it is given is valid until ``flush`` returns."""

    def keep(self, data: memoryview, last_offset: int, max_timestamp: int) -> None:
        """Take a batch that stays as it is."""

    def put(self, data: Buffer, last_offset: int, max_timestamp: int) -> None:
        """Take a batch that has changed."""

    def drop(self) -> None:
        """Note that a batch is gone."""

    def flush(self) -> None:
        """Write what was taken."""


@dataclass(frozen=True, slots=True)
class RewritingRules:
    """What the decisions of one round depend on, beside the batches."""

    keys: KeyMap
    #: Everything below it was seen by a finished round before this one.
    first_dirty_offset: int
    #: The last offset that the map covers.
    map_end: int
    now_ms: int
    delete_retention_ms: int
    first_uncleanable_offset: int
    #: A tombstone of formats 0 and 1 stays if its file was changed after this.
    legacy_horizon_ms: int


class Rewriter:
    """Cleans a group of segments."""

    def __init__(
        self,
        rules: RewritingRules,
        tracker: TransactionTracker,
        aborted: TransactionIndexes,
        last_record_of: Callable[[int], LastRecord | None],
        pace: CleaningPace,
    ) -> None:
        self._rules = rules
        self._tracker = tracker
        self._aborted = aborted
        self._last_record_of = last_record_of
        self._pace = pace
        self._scratch = Scratch()
        self.statistics = Statistics()

    def rewrite(self, fs: FileSystem, sources: Sequence[ClosedSegment], sink: Sink) -> None:
        """Clean the segments of a group, which become one."""
        for source in sources:
            self._tracker.add_aborted(
                self._aborted.between(source.base_offset, source.base_offset, source.end_offset)
            )
            self._rewrite_segment(fs, source, sink)
            self.statistics.segments_read += 1

    def _rewrite_segment(self, fs: FileSystem, source: ClosedSegment, sink: Sink) -> None:
        rules, statistics = self._rules, self.statistics
        keeps_legacy = fs.stat(source.path).mtime_ms > rules.legacy_horizon_ms
        file, order = fs.open(source.path), BatchOrder(source)
        try:
            for _, piece in whole_batches(file, 0, source.size, self._pace.buffer_bytes):
                self._pace.done(len(piece))
                statistics.bytes_read += len(piece)
                for _, batch in order.batches(piece):
                    if isinstance(batch, RecordBatch):
                        self._rewrite_batch(batch, sink)
                    else:
                        assert isinstance(batch, LegacyBatch)
                        self._convert(batch, sink, keeps_legacy)
                sink.flush()
        except KafkaError as error:
            raise Uncleanable(f"{source.path}: {error}") from error
        finally:
            file.close()

    def _rewrite_batch(self, batch: RecordBatch, sink: Sink) -> None:
        statistics = self.statistics
        statistics.messages_read += batch.record_count
        fate = self._fate(batch)
        horizon = batch.delete_horizon_ms
        if fate.discards_records or not batch.record_count:
            if not fate.keeps_header:
                sink.drop()
            elif batch.record_count or horizon is not None:
                sink.put(empty_batch(batch), batch.last_offset, batch.max_timestamp)
            else:
                self._keep(batch, sink)
            return
        new_horizon = self._rules.now_ms + self._rules.delete_retention_ms
        if batch.is_control:
            if fate.is_spent_marker and horizon is None:
                self._put(batch, range(batch.record_count), new_horizon, sink)
            else:
                self._keep(batch, sink)
            return
        if batch.base_offset > self._rules.map_end:
            # All of it stays. If it has tombstones, the round that sees them sets their horizon.
            self._keep(batch, sink)
            return
        is_due = horizon is not None and self._rules.now_ms >= horizon
        data = self._records_of(batch)
        records = record_columns(data, batch.record_count)
        kept = kept_records(
            records,
            batch.base_offset,
            self._rules.keys.get_all(records.keys),
            self._rules.map_end,
            tombstones_due_below=self._rules.first_dirty_offset if is_due else 0,
        )
        statistics.invalid_messages += kept.invalid
        statistics.tombstones_kept += kept.tombstones
        needs_horizon = kept.tombstones > 0 and horizon is None
        if kept.records is None and not needs_horizon:
            self._keep(batch, sink)
        elif kept.records is None or kept.records:
            numbers = range(batch.record_count) if kept.records is None else kept.records
            horizon = new_horizon if needs_horizon else horizon
            self._write(sink, rebuild(batch, data, records, numbers, horizon), batch, len(numbers))
        elif fate.keeps_header:
            sink.put(empty_batch(batch), batch.last_offset, batch.max_timestamp)
        else:
            sink.drop()

    def _fate(self, batch: RecordBatch) -> BatchFate:
        producer_id, last_offset = batch.producer_id, batch.last_offset
        if batch.is_control:
            may_discard = self._tracker.may_discard_control(
                control_type(batch), producer_id, last_offset
            )
        else:
            may_discard = self._tracker.may_discard_data(
                producer_id, last_offset, batch.is_transactional
            )
        is_last = last_offset + 1 == self._rules.first_uncleanable_offset
        return fate_of(
            batch,
            may_discard=may_discard,
            last_record=self._last_record_of(producer_id) if producer_id >= 0 else None,
            is_last=is_last,
            now_ms=self._rules.now_ms,
        )

    def _records_of(self, batch: RecordBatch) -> bytes:
        # What is rebuilt gets a new checksum, which must not cover up damage.
        batch.ensure_valid()
        return self._scratch.decompress(batch.compression, batch.records_buffer)

    def _keep(self, batch: RecordBatch, sink: Sink) -> None:
        self.statistics.messages_written += batch.record_count
        sink.keep(batch.buffer, batch.last_offset, batch.max_timestamp)

    def _put(
        self, batch: RecordBatch, numbers: Sequence[int], horizon: int | None, sink: Sink
    ) -> None:
        data = self._records_of(batch)
        records = record_columns(data, batch.record_count)
        self._write(sink, rebuild(batch, data, records, numbers, horizon), batch, len(numbers))

    def _write(self, sink: Sink, rebuilt: bytearray, batch: Batch, count: int) -> None:
        self.statistics.messages_written += count
        max_timestamp = RecordBatch(memoryview(rebuilt)).max_timestamp
        sink.put(rebuilt, batch.last_offset, max_timestamp)

    def _convert(self, message: LegacyBatch, sink: Sink, keeps_tombstones: bool) -> None:
        message.ensure_valid()
        self._tracker.may_discard_data(-1, message.last_offset, False)
        found = list(message)
        self.statistics.messages_read += len(found)
        latest = self._rules.keys.get_all([record.key for record in found])
        kept = []
        for record, known in zip(found, latest, strict=True):
            if record.offset <= self._rules.map_end:
                if record.key is None:
                    self.statistics.invalid_messages += 1
                    continue
                if record.offset < known or (record.value is None and not keeps_tombstones):
                    continue
            kept.append(record)
        self.statistics.tombstones_kept += sum(record.value is None for record in kept)
        if kept:
            self._write(sink, convert(message, kept), message, len(kept))
        elif message.next_offset == self._rules.first_uncleanable_offset:
            sink.put(empty_batch(message), message.last_offset, message.max_timestamp)
        else:
            sink.drop()
