"""Checking a segment after an unclean stop: damaged bytes are cut off, indexes rebuilt."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from dohle.records.batch import CorruptBatch, RecordBatch
from dohle.storage.segment.batch_scan import scan_checked
from dohle.storage.segment.index import MAX_RELATIVE_OFFSET, OffsetPosition, TimestampOffset
from dohle.storage.segment.segment import LogSegment

logger = logging.getLogger("dohle.storage")


class Recovered(NamedTuple):
    """What a segment's recovery found."""

    end_offset: int
    #: Whether offsets are missing between its batches, as after compaction here or on the leader.
    has_gaps: bool


def recover_segment(
    segment: LogSegment,
    latest_epoch: int,
    on_epoch: Callable[[int, int], object],
    on_producer: Callable[[RecordBatch], None],
) -> Recovered:
    """Scan the file, rebuild its indexes, and cut the file at the first damaged batch.

    ``on_epoch`` is called for every leader epoch above ``latest_epoch`` with its first offset,
    ``on_producer`` for every batch that a producer's state depends on.
    """
    log_file, indexes = segment.log_file, segment.indexes
    segment.reset_indexes()
    indexes.txn.reset()
    valid, previous, has_gaps = 0, segment.base_offset - 1, False
    offset_max = segment.base_offset + MAX_RELATIVE_OFFSET
    # The same bookkeeping as in ``SegmentIndexes.add``, without a call for each batch.
    top, since_entry = TimestampOffset(-1, segment.base_offset), 0
    interval = indexes.interval_bytes
    entries: list[OffsetPosition] = []
    time_entries: list[TimestampOffset] = []
    try:
        for checked in scan_checked(log_file.file, 0, log_file.size):
            position, size, base_offset, last_offset, max_timestamp, epoch, batch = checked
            if not previous < last_offset <= offset_max:
                raise CorruptBatch(f"offset {last_offset} is out of order", position)
            if base_offset != previous + 1:
                has_gaps = True
            if max_timestamp > top[0]:
                top = TimestampOffset(max_timestamp, last_offset)
            if since_entry > interval:
                entries.append(OffsetPosition(last_offset, position))
                time_entries.append(top)
                since_entry = 0
            since_entry += size
            if epoch > latest_epoch:
                on_epoch(epoch, base_offset)
                latest_epoch = epoch
            if batch is not None:
                on_producer(batch)
            previous, valid = last_offset, position + size
    except CorruptBatch as error:
        cut, why = log_file.size - valid, error.args[0]
        logger.warning(
            "%s: cutting off %d bytes at position %d, where a batch is damaged or incomplete: %s",
            log_file.path,
            cut,
            valid,
            why,
        )
        log_file.cut(valid)
    indexes.fill(entries, time_entries, top, since_entry)
    segment.seal()
    return Recovered(previous + 1, has_gaps)
