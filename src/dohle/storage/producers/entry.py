"""What a partition remembers about one producer.

Entries never change: an append makes a new one and the log swaps it in once the bytes are written,
so a failed append leaves no trace. They are named tuples, not dataclasses, because one is made for
every idempotent batch.

A sequence number runs from 0 to 2147483647 and then starts at 0 again.
"""

from __future__ import annotations

from typing import NamedTuple

from dohle.core.ids import ProducerId
from dohle.records.batch import Batch
from dohle.records.checking.fast_check import FastCheckedBatch

#: How many batches of a producer are remembered, so that a resent one is recognised.
BATCHES_RETAINED = 5

NO_EPOCH = -1
NO_SEQUENCE = -1
NO_OFFSET = -1
NO_TIMESTAMP = -1


class BatchMetadata(NamedTuple):
    """A data batch that was appended."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """Return the sequence of the first record."""
        return (self.last_sequence - self.offset_delta) & 0x7FFF_FFFF

    @property
    def first_offset(self) -> int:
        """Return the offset of the first record."""
        return self.last_offset - self.offset_delta


class ProducerEntry(NamedTuple):
    """One producer's state in one partition, up to the last batch appended."""

    producer_id: ProducerId
    producer_epoch: int = NO_EPOCH
    coordinator_epoch: int = NO_EPOCH
    last_timestamp: int = NO_TIMESTAMP
    #: Where its open transaction began here; -1 if none is open.
    current_txn_first_offset: int = NO_OFFSET
    #: The last data batches of this epoch, oldest first. Empty if only a marker was seen.
    batches: tuple[BatchMetadata, ...] = ()

    @property
    def has_open_transaction(self) -> bool:
        """Tell whether a transaction of this producer waits for its marker here."""
        return self.current_txn_first_offset >= 0

    @property
    def last_sequence(self) -> int:
        """Return the newest sequence of this epoch; -1 if there is none."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        """Return the last offset of the newest batch; -1 if there is none."""
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    @property
    def last_offset_delta(self) -> int:
        """Return last minus first offset of the newest batch; 0 if there is none."""
        return self.batches[-1].offset_delta if self.batches else 0

    def follows(self, batch: Batch | FastCheckedBatch) -> bool:
        """Tell whether a batch has the next sequence in the same epoch."""
        return (
            batch.producer_epoch == self.producer_epoch
            and len(self.batches) > 0
            and batch.base_sequence == self.batches[-1].last_sequence + 1
        )

    def find_duplicate(self, batch: Batch) -> BatchMetadata | None:
        """Return the remembered batch with exactly the same sequences in the same epoch."""
        if batch.producer_epoch == self.producer_epoch:
            first_sequence, last_sequence = batch.base_sequence, batch.last_sequence
            for known in self.batches:
                if known.last_sequence == last_sequence and known.first_sequence == first_sequence:
                    return known
        return None

    def with_batch(
        self,
        producer_epoch: int,
        last_sequence: int,
        first_offset: int,
        last_offset: int,
        timestamp: int,
        current_txn_first_offset: int,
    ) -> ProducerEntry:
        """Return the entry after a data batch; a new epoch forgets the earlier batches."""
        batch = BatchMetadata(last_sequence, last_offset, last_offset - first_offset, timestamp)
        if producer_epoch == self.producer_epoch:
            batches = (*self.batches[1 - BATCHES_RETAINED :], batch)
        else:
            batches = (batch,)
        return ProducerEntry(
            self.producer_id,
            producer_epoch,
            self.coordinator_epoch,
            timestamp,
            current_txn_first_offset,
            batches,
        )

    def with_marker(
        self, producer_epoch: int, coordinator_epoch: int, timestamp: int
    ) -> ProducerEntry:
        """Return the entry after the end of a transaction."""
        return ProducerEntry(
            self.producer_id,
            producer_epoch,
            coordinator_epoch,
            timestamp,
            NO_OFFSET,
            self.batches if producer_epoch == self.producer_epoch else (),
        )
