"""Where records gather into batches: a queue for each partition, and the progress of each queue.

Only queues with work are examined, so that the cost grows with the partitions in use and not with
those that exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from dohle.client.config import IDEMPOTENT_IN_FLIGHT_MAX, ProducerConfig
from dohle.client.producer.batch import ProducerBatch, RecordMetadata
from dohle.client.producer.partition_queue import PartitionQueue
from dohle.core.ids import TopicPartition
from dohle.records.batch import HEADER_SIZE
from dohle.records.builder import RECORD_OVERHEAD_MAX, BatchBuilder, encode_headers
from dohle.records.record import Header

#: The largest size of the lengths of key and value and the count of headers.
_LENGTHS_MAX = 3 * 5
_NO_LIMIT = 2**31


def record_bytes_max(key: bytes | None, value: bytes | None, headers: Iterable[Header]) -> int:
    """Return the largest size of a record, alone in a batch."""
    size = HEADER_SIZE + RECORD_OVERHEAD_MAX + _LENGTHS_MAX
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    return size + len(encode_headers(headers)) if headers else size


class RecordAccumulator:
    """The unfinished batches of all partitions."""

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._active: dict[TopicPartition, PartitionQueue] = {}
        if config.acks == 0:
            self._in_flight_max = _NO_LIMIT
        elif config.enable_idempotence:
            self._in_flight_max = IDEMPOTENT_IN_FLIGHT_MAX
        else:
            self._in_flight_max = 1

    @property
    def is_empty(self) -> bool:
        """Whether every batch is finished."""
        return not self._active

    def queue(self, partition: TopicPartition) -> PartitionQueue:
        """Return a partition's queue."""
        return self._queues[partition]

    def active_queues(self) -> list[PartitionQueue]:
        """Return the queues with work, those first that have waited longest for their turn."""
        return list(self._active.values())

    def had_its_turn(self, queue: PartitionQueue) -> None:
        """Move a queue to the end."""
        self._active[queue.partition] = self._active.pop(queue.partition)

    def settle(self, queue: PartitionQueue) -> None:
        """Drop a queue from the active ones if it has nothing to do."""
        if queue.is_idle and not queue.is_broken:
            self._active.pop(queue.partition, None)

    def restart_sequences(self) -> None:
        """Restart all sequences with another identity; nothing may be in flight."""
        for queue in self._queues.values():
            assert queue.is_idle
            queue.identity = None
            queue.is_broken = False
        self._active.clear()

    def unfinished(self) -> Iterator[ProducerBatch]:
        """Iterate over all unfinished batches."""
        for queue in self._active.values():
            yield from queue.waiting
            yield from queue.in_flight

    def has_room(self, partition: TopicPartition, record_bytes: int) -> bool:
        """Tell whether the partition has an open batch with room for the record."""
        queue = self._active.get(partition)
        batch = None if queue is None else queue.open_batch
        return batch is not None and self._fits(batch, record_bytes)

    def seal(self, partition: TopicPartition) -> bool:
        """Close the partition's open batch, so that it does not linger; tell whether it had one."""
        queue = self._active.get(partition)
        batch = None if queue is None else queue.open_batch
        if batch is None:
            return False
        batch.is_sealed = True
        return True

    def append(
        self,
        partition: TopicPartition,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Iterable[Header],
        record_bytes: int,
        now_ms: float,
    ) -> tuple[asyncio.Future[RecordMetadata], bool]:
        """Add a record; return its future, and whether the sender should be woken."""
        queue = self._queue_for(partition)
        batch = queue.open_batch
        look = False
        if batch is None or not self._fits(batch, record_bytes):
            if batch is not None:
                batch.is_sealed = True
            batch = self._begin(queue, self.new_builder(), now_ms)
            look = True
        future = batch.append(timestamp, key, value, headers, record_bytes)
        if batch.builder.size >= self._config.batch_size:
            batch.is_sealed = True
            look = True
        return future, look

    def append_batch(
        self, partition: TopicPartition, builder: BatchBuilder, now_ms: float
    ) -> asyncio.Future[RecordMetadata]:
        """Add a batch that is already filled, after the existing ones."""
        queue = self._queue_for(partition)
        if queue.open_batch is not None:
            queue.open_batch.is_sealed = True
        return self._begin(queue, builder, now_ms).seal_whole(builder.size)

    def new_builder(self) -> BatchBuilder:
        """Start an empty batch with these settings."""
        return BatchBuilder(
            codec=self._config.codec,
            level=self._config.compression_level,
            is_transactional=self._config.transactional_id is not None,
        )

    def _queue_for(self, partition: TopicPartition) -> PartitionQueue:
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = PartitionQueue(partition)
        return queue

    def _begin(self, queue: PartitionQueue, builder: BatchBuilder, now_ms: float) -> ProducerBatch:
        batch = ProducerBatch(queue.partition, builder, queue.take_ordinal(), now_ms)
        queue.waiting.append(batch)
        self._active[queue.partition] = queue
        return batch

    def send_at_ms(self, queue: PartitionQueue, *, at_once: bool) -> float | None:
        """Return when the queue's first batch may be sent; None if something must happen first."""
        linger_ms = 0 if at_once else self._config.linger_ms
        return queue.send_at_ms(linger_ms, self._in_flight_max)

    def _fits(self, batch: ProducerBatch, record_bytes: int) -> bool:
        return batch.builder.size + record_bytes - HEADER_SIZE <= self._config.batch_size
