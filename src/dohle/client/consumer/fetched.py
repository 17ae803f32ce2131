"""The state of reading one partition, and the records in one response for it.

A response starts with the batch that holds the requested offset, so earlier records are dropped
here, like those of control batches and of aborted transactions. The position advances as records
are returned, and past the skipped ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from dohle.client.config import ConsumerConfig
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, TopicName, TopicPartition
from dohle.protocol.messages.fetch import PartitionData
from dohle.records.aborted import AbortedTransactions
from dohle.records.batch import Batch, batches
from dohle.records.errors import CorruptBatch
from dohle.records.record import Header, Record, TimestampType

NO_EPOCH = -1


class ConsumedRecord(NamedTuple):
    """A record and its topic, partition and offset."""

    topic: TopicName
    partition: int
    record: Record
    leader_epoch: int
    timestamp_type: TimestampType

    @property
    def offset(self) -> int:
        """Its place in the partition."""
        return self.record.offset

    @property
    def timestamp(self) -> int:
        """When it was sent, or appended, in milliseconds."""
        return self.record.timestamp

    @property
    def key(self) -> Any:
        """Its key: bytes, what the ``key_deserializer`` makes of them, or None."""
        return self.record.key

    @property
    def value(self) -> Any:
        """Its value: bytes, what the ``value_deserializer`` makes of them, or None."""
        return self.record.value

    @property
    def headers(self) -> tuple[Header, ...]:
        """Its headers, each a name and bytes or None."""
        return self.record.headers


class PartitionReader:
    """How far a partition has been read, and how far fetched."""

    def __init__(self, partition: TopicPartition, offset: int, stop_at: int | None = None) -> None:
        self.partition = partition
        #: The offset of the next record to return.
        self.position = offset
        #: The offset of the next fetch.
        self.fetch_offset = offset
        #: The leader epoch of the last batch of which records were returned.
        self.position_epoch = NO_EPOCH
        #: Whether fetching and returning records is paused.
        self.is_paused = False
        #: Reading ends before this offset.
        self.stop_at = stop_at
        #: The leader epoch of the last fetched batch: reveals a truncation of the log since
        #: (KIP-320).
        self.last_fetched_epoch = NO_EPOCH
        #: Fetched responses whose records are not all returned yet.
        self.buffered = 0
        #: Incremented when fetched or requested records are no longer wanted.
        self.generation = 0
        self.is_fetching = False
        self.failures = 0
        self.failing_since: float | None = None
        self.not_before = 0.0
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None
        #: The follower that the leader has said to read from, and until when.
        self.preferred: tuple[BrokerId, float] | None = None

    @property
    def is_done(self) -> bool:
        """Whether everything wanted has been read."""
        return self.stop_at is not None and self.position >= self.stop_at

    def wants_more(self, buffered_max: int) -> bool:
        """Tell whether to fetch more, given how many responses may be buffered."""
        return not (
            self.is_fetching or self.is_paused or self.is_done or self.buffered >= buffered_max
        )

    def go_to(self, offset: int) -> None:
        """Continue at another offset, and drop what was fetched."""
        self.position = self.fetch_offset = offset
        self.last_fetched_epoch = NO_EPOCH
        self.buffered = 0
        self.generation += 1
        self.failures = 0
        self.failing_since = None
        self.not_before = 0.0


class FetchedRecords:
    """The batches of one response for a partition, located but not decoded."""

    def __init__(self, reader: PartitionReader, data: PartitionData) -> None:
        self.reader = reader
        self.generation = reader.generation
        #: Producer id and first offset of transactions that were aborted.
        self.aborted = tuple(
            (each.producer_id, each.first_offset) for each in data.aborted_transactions or ()
        )
        self._batches: list[Batch] = []
        self._error: KafkaError | None = None
        self.data = records = data.records or b""
        try:
            self._batches.extend(batches(records))
        except CorruptBatch as error:
            self._error = error
        if records and not self._batches and self._error is None:
            self._error = KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the batch at offset {reader.fetch_offset} of {reader.partition} does not fit "
                f"into {len(records)} bytes: raise max_partition_fetch_bytes",
            )

    @property
    def is_empty(self) -> bool:
        """Whether it contains nothing, not even an error."""
        return not self._batches and self._error is None

    @property
    def is_current(self) -> bool:
        """Whether it is still wanted."""
        return self.generation == self.reader.generation

    @property
    def next_offset(self) -> int:
        """The offset after the last batch."""
        if not self._batches:
            return self.reader.fetch_offset
        return self._batches[-1].next_offset

    @property
    def last_leader_epoch(self) -> int:
        """The leader epoch of the last batch."""
        return self._batches[-1].partition_leader_epoch if self._batches else NO_EPOCH

    def records(self, config: ConsumerConfig) -> Iterator[ConsumedRecord]:
        """Yield the records and advance the reader's position."""
        reader = self.reader
        topic, partition = reader.partition
        aborted = AbortedTransactions(self.aborted)
        for batch in self._batches:
            if config.check_crcs:
                batch.ensure_valid()
            skip = aborted.covers(batch) or batch.is_control
            if not skip and batch.last_offset >= reader.position:
                epoch, kind = batch.partition_leader_epoch, batch.timestamp_type
                reader.position_epoch = epoch
                stop_at = reader.stop_at
                for record in batch.records(config.decompressed_bytes_max):
                    offset = record.offset
                    if offset < reader.position:
                        continue
                    if stop_at is not None and offset >= stop_at:
                        break
                    reader.position = offset + 1
                    yield ConsumedRecord(topic, partition, record, epoch, kind)
            reader.position = max(reader.position, batch.next_offset)
            if reader.stop_at is not None and reader.position >= reader.stop_at:
                reader.position = reader.stop_at
                return
        if self._error is not None:
            raise self._error

    def record_lists(self, config: ConsumerConfig) -> Iterator[list[Record]]:
        """Yield the records of each batch; the caller reports what it has returned of them."""
        start, stop_at = self.reader.position, self.reader.stop_at
        aborted = AbortedTransactions(self.aborted)
        for batch in self._batches:
            if config.check_crcs:
                batch.ensure_valid()
            skip = aborted.covers(batch) or batch.is_control
            if not skip and batch.last_offset >= start:
                records = list(batch.records(config.decompressed_bytes_max))
                if records and records[0].offset < start:
                    records = [record for record in records if record.offset >= start]
                if stop_at is not None and batch.last_offset >= stop_at:
                    records = [record for record in records if record.offset < stop_at]
                yield records
            if stop_at is not None and batch.next_offset >= stop_at:
                return
        if self._error is not None:
            raise self._error

    def returned_to(self, offset: int) -> None:
        """Advance the reader's position past what was returned."""
        if offset > self.reader.position:
            self.reader.position = offset
            for batch in self._batches:
                if batch.last_offset >= offset - 1:
                    self.reader.position_epoch = batch.partition_leader_epoch
                    break
