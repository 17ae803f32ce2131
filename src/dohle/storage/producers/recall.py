"""Finding in the log the batches of a producer that a snapshot did not keep.

Kafka's snapshot has only the last batch of each producer. Behind a restart, or a truncation, a
producer may send an earlier one again whose answer was lost: Apache Kafka takes that for a gap (45
OUT_OF_ORDER_SEQUENCE_NUMBER), which ends most producers for good, although nothing is lost. The log
still has those batches, so they are looked for there, and the window of five is whole again.
"""

from __future__ import annotations

from dohle.records.batch import CorruptBatch
from dohle.storage.producers.entry import BATCHES_RETAINED, BatchMetadata, ProducerEntry
from dohle.storage.segment.batch_scan import ProducerHead
from dohle.storage.segment.segment import LogSegment
from dohle.storage.segment.segments import Segments

#: How far back is looked, in entries of the index: an entry stands for 4 KB of small batches or for
#: one large batch. It takes the loop some milliseconds at most, however small the batches are.
_ENTRIES_BACK = 32
#: In how many segments: the snapshot of a segment's start tells of the end of the one before.
_SEGMENTS_BACK = 3


def recall_batches(entry: ProducerEntry, segments: Segments) -> ProducerEntry:
    """Return the entry with the batches of its epoch that came before the oldest one it knows."""
    known = entry.batches
    end = known[0].first_offset
    segment = segments.floor(end)
    for _ in range(_SEGMENTS_BACK):
        if segment is None or len(known) == BATCHES_RETAINED:
            break
        found, is_whole = _batches_in(segment, entry, end)
        known = _chained(found, known)
        segment = segments.lower(segment.base_offset) if is_whole else None
    return entry._replace(batches=known)


def _batches_in(
    segment: LogSegment, entry: ProducerEntry, end: int
) -> tuple[list[BatchMetadata], bool]:
    """Return the producer's batches shortly before an offset, and whether they are all in there."""
    found = []
    position, heads = segment.reader.producer_heads_before(end, _ENTRIES_BACK)
    try:
        for head in heads:
            if head.base_offset >= end:
                break
            if _is_of(head, entry):
                delta = head.last_offset - head.base_offset
                last_sequence = (head.base_sequence + delta) & 0x7FFF_FFFF
                found.append(
                    BatchMetadata(last_sequence, head.last_offset, delta, head.max_timestamp)
                )
    except CorruptBatch:
        # Reading will tell of it. The producer is answered as if these batches were not there.
        return [], False
    return found, position == 0


def _is_of(head: ProducerHead, entry: ProducerEntry) -> bool:
    return (
        head.producer_id == entry.producer_id
        and head.producer_epoch == entry.producer_epoch
        and not head.is_control
    )


def _chained(
    found: list[BatchMetadata], known: tuple[BatchMetadata, ...]
) -> tuple[BatchMetadata, ...]:
    """Put those before the known ones that lead up to them without a gap, as many as are kept."""
    for batch in reversed(found):
        follows = (batch.last_sequence + 1) & 0x7FFF_FFFF == known[0].first_sequence
        if len(known) == BATCHES_RETAINED or not follows:
            break
        known = (batch, *known)
    return known
