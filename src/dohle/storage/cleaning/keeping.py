"""What a batch and its records become when their segment is cleaned. Pure.

A record stays if it is the last of its key, as far as the map of keys reaches. A tombstone, which
is a record with a key and no value, stays until its batch's *horizon* has passed (KIP-534): the
time of the first cleaning that met it, and ``delete.retention.ms``. And it stays until a round is
finished that has removed what it deletes: if the map ends within a batch, only a part of the batch
was seen, but all of it gets the horizon. (In Kafka, such a tombstone may go together with what it
deletes; who has read that learns nothing of it.) A batch that loses all its
records stays without any where its header is needed: as the last of a producer that is active, so
that a retry is still recognised, and at the end of what a round may touch, so that the next offset
does not move back.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from operator import le
from typing import NamedTuple, Protocol

from dohle.records.record_columns import RecordColumns


class BatchHeader(Protocol):
    """What is decided by of a batch, without its records."""

    @property
    def producer_id(self) -> int:
        """The producer, or -1."""

    @property
    def producer_epoch(self) -> int:
        """That producer's epoch."""

    @property
    def last_offset(self) -> int:
        """The last offset that it covers."""

    @property
    def is_control(self) -> bool:
        """Whether it is a marker."""

    @property
    def delete_horizon_ms(self) -> int | None:
        """When its tombstones, or the marker, may go."""


class LastRecord(NamedTuple):
    """The last that is known of an active producer."""

    producer_epoch: int
    #: Where its last data batch ended; None if only markers are known.
    last_data_offset: int | None


class BatchFate(NamedTuple):
    """What happens to a batch as a whole."""

    #: Whether its header stays even if none of its records does.
    keeps_header: bool
    #: Whether all its records go, unseen.
    discards_records: bool
    #: Whether it is a marker that needs a horizon, as nothing is left of its transaction.
    is_spent_marker: bool


def fate_of(
    batch: BatchHeader,
    *,
    may_discard: bool,
    last_record: LastRecord | None,
    is_last: bool,
    now_ms: int,
) -> BatchFate:
    """Decide about a batch.

    ``may_discard`` is what the transactions say, ``is_last`` whether it ends what a round may
    touch.
    """
    keeps_header = is_last or (last_record is not None and _is_last_of_producer(batch, last_record))
    if not batch.is_control:
        return BatchFate(keeps_header, may_discard, False)
    horizon = batch.delete_horizon_ms
    is_due = may_discard and horizon is not None and horizon <= now_ms
    return BatchFate(keeps_header, is_due, may_discard)


def _is_last_of_producer(batch: BatchHeader, last: LastRecord) -> bool:
    if last.last_data_offset is not None:
        return batch.last_offset == last.last_data_offset
    return batch.is_control and batch.producer_epoch == last.producer_epoch


class Kept(NamedTuple):
    """Which records of a data batch stay."""

    #: Their numbers; None if all stay.
    records: list[int] | None
    #: How many were dropped because they have no key.
    invalid: int
    #: How many of those that stay are tombstones.
    tombstones: int


def kept_records(
    records: RecordColumns,
    base_offset: int,
    latest: Sequence[int],
    map_end: int,
    *,
    tombstones_due_below: int = 0,
) -> Kept:
    """Decide about the records of a data batch that was not aborted.

    ``latest`` has the last offset of each record's key, -1 if the map does not know it; ``map_end``
    is the last offset that the map covers. Below ``tombstones_due_below`` no tombstone stays.
    """
    deltas = records.offset_deltas
    relative_end = map_end - base_offset
    if deltas and deltas[-1] > relative_end:
        # The map ends within the batch: what is behind it stays.
        covered = sum(delta <= relative_end for delta in deltas)
    else:
        covered = len(deltas)
        if not records.has_null_key and not records.null_values:
            # Most batches: nothing but keys counts, and no loop over records is needed.
            stays = map(le, latest, map(base_offset.__add__, deltas))
            left = list(compress(range(covered), stays))
            return Kept(None if len(left) == covered else left, 0, 0)
    invalid = 0
    dropped: list[int] = [
        number for number in range(covered) if base_offset + deltas[number] < latest[number]
    ]
    if records.has_null_key:
        nulls = [number for number in range(covered) if records.keys[number] is None]
        invalid = len(nulls)
        dropped += nulls
    tombstones = len(records.null_values)
    if tombstones:
        gone = set(dropped)
        left = [number for number in records.null_values if number not in gone]
        tombstones = len(left)
        due = [n for n in left if base_offset + deltas[n] < tombstones_due_below]
        tombstones -= len(due)
        dropped += due
    if not dropped:
        return Kept(None, 0, tombstones)
    gone = set(dropped)
    return Kept(
        [number for number in range(len(deltas)) if number not in gone], invalid, tombstones
    )
