"""Building the map of keys from the dirty part of a log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from dohle.core.errors import KafkaError
from dohle.records.batch import Batch, RecordBatch
from dohle.records.compression.scratch import Scratch
from dohle.records.record_columns import record_columns
from dohle.storage.cleaning.key_map import KeyMap
from dohle.storage.cleaning.reading import (
    BatchOrder,
    CleaningPace,
    ClosedSegment,
    TransactionIndexes,
    control_type,
    whole_batches,
)
from dohle.storage.cleaning.round_values import Statistics, Uncleanable
from dohle.storage.cleaning.transactions import TransactionTracker
from dohle.storage.files import FileSystem


class MapBuilder:
    """Puts the keys of segments into a map, until it is full."""

    def __init__(
        self, keys: KeyMap, aborted: TransactionIndexes, first_dirty_offset: int, pace: CleaningPace
    ) -> None:
        self._keys = keys
        self._aborted = aborted
        self._first_dirty = first_dirty_offset
        self._pace = pace
        self._tracker = TransactionTracker()
        self._scratch = Scratch()
        self.statistics = Statistics()
        #: Everything below it, from the first dirty offset on, is in the map.
        self.end_offset = first_dirty_offset

    def build(self, fs: FileSystem, sources: Sequence[ClosedSegment], start_position: int) -> None:
        """Take in segments, the first one from a position on."""
        position = start_position
        for source in sources:
            start = max(source.base_offset, self._first_dirty)
            self._tracker.add_aborted(
                self._aborted.between(source.base_offset, start, source.end_offset)
            )
            if not self._add_segment(fs, source, position):
                break
            # A gap at the end of a segment is covered too.
            self.end_offset = max(self.end_offset, source.end_offset)
            position = 0
        self.statistics.map_keys = len(self._keys)
        self.statistics.buffer_utilization = self._keys.utilization

    def _add_segment(self, fs: FileSystem, source: ClosedSegment, start: int) -> bool:
        file, order = fs.open(source.path), BatchOrder(source)
        try:
            pieces = whole_batches(file, start, source.size, self._pace.buffer_bytes)
            for _, piece in pieces:
                self._pace.done(len(piece))
                self.statistics.map_bytes_read += len(piece)
                for _, batch in order.batches(piece):
                    if not self._add_batch(batch):
                        return False
        except KafkaError as error:
            raise Uncleanable(f"{source.path}: {error}") from error
        finally:
            file.close()
        return True

    def _add_batch(self, batch: Batch) -> bool:
        batch.ensure_valid()
        last_offset = batch.last_offset
        if batch.is_control:
            self._tracker.may_discard_control(control_type(batch), batch.producer_id, last_offset)
        elif last_offset < self._first_dirty:
            return True
        elif not self._tracker.may_discard_data(
            batch.producer_id, last_offset, batch.is_transactional
        ):
            keys, offsets = self._keys_of(batch)
            self.statistics.map_messages_read += len(keys)
            taken = self._keys.put_all(keys, offsets)
            if taken < len(keys):
                self.end_offset = max(self.end_offset, offsets[taken])
                return False
        self.end_offset = max(self.end_offset, last_offset + 1)
        return True

    def _keys_of(self, batch: Batch) -> tuple[list[bytes], list[int]]:
        """Return the keys of the dirty records of a batch that have one, and their offsets."""
        if not isinstance(batch, RecordBatch):
            found = [(record.offset, record.key) for record in batch]
        else:
            if not batch.record_count:
                return [], []
            data = self._scratch.decompress(batch.compression, batch.records_buffer)
            records = record_columns(data, batch.record_count)
            base = batch.base_offset
            offsets = [base + delta for delta in records.offset_deltas]
            if not records.has_null_key and offsets[0] >= self._first_dirty:
                return cast("list[bytes]", records.keys), offsets
            found = list(zip(offsets, records.keys, strict=True))
        first_dirty = self._first_dirty
        kept = [(o, key) for o, key in found if key is not None and o >= first_dirty]
        return [key for _, key in kept], [offset for offset, _ in kept]
