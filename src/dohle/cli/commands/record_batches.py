"""Gathers records into large batches, one being filled per partition, and sends them.

A record costs a fifth of what it costs by ``Producer.send_soon``: it has no future of its own, and
those that share a timestamp and have no headers are encoded together.

Batches begin as small as a producer's (``batch.size``). Once one is full there is more to come:
from then on they are as large as the topic takes them, up to ``LARGE_BYTES``.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from dohle.client.producer.batch import RecordMetadata
from dohle.client.producer.partitioner import partition_of_key
from dohle.client.producer.producer import Producer
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName, TopicPartition
from dohle.records.builder import RECORD_OVERHEAD_MAX, BatchBuilder
from dohle.records.record import Header

LARGE_BYTES = 262_144
#: Lengths of key and value, and the number of headers, beside what every record has.
_RECORD_BYTES = RECORD_OVERHEAD_MAX + 11
_HEADER_BYTES = 10
_KEYS_KEPT_MAX = 65_536


class NewRecord(NamedTuple):
    """A record to be written."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Sequence[Header] = ()
    #: None leaves it to the key.
    partition: int | None = None


class SentBatch(NamedTuple):
    """What a batch that was sent had in it."""

    record_count: int
    #: Of each record; empty if nobody wants to know.
    timestamps: Sequence[int]


class _Open:
    """The batch of a partition that is being filled."""

    __slots__ = ("builder", "run", "size", "timestamps")

    def __init__(self, builder: BatchBuilder) -> None:
        self.builder = builder
        #: Keys and values that are not encoded yet.
        self.run: list[tuple[bytes | None, bytes | None]] = []
        #: At most this many bytes are in it.
        self.size = builder.size
        self.timestamps: list[int] = []


class RecordBatches:
    """The batches of one topic."""

    def __init__(
        self,
        producer: Producer,
        topic: str,
        partitions: Sequence[int],
        *,
        find_limit: Callable[[], Awaitable[int]],
        on_outcome: Callable[[SentBatch, Future[RecordMetadata]], None],
        first_turn: int = 0,
        keeps_timestamps: bool = False,
    ) -> None:
        """``find_limit`` tells how large batches may be; ``on_outcome`` is told of each batch."""
        self._producer = producer
        self._topic = TopicName(topic)
        self._partitions = partitions
        self._find_limit = find_limit
        self._on_outcome = on_outcome
        self._keeps_timestamps = keeps_timestamps
        self._limit = producer.config.batch_size
        self._has_limit = False
        self._open: dict[int, _Open] = {}
        #: Where records without a key go until their batch is full.
        self._turn = first_turn
        self._by_key: dict[bytes, int] = {}

    async def add_pairs(
        self,
        pairs: Iterable[tuple[bytes | None, bytes | None]],
        timestamp: int,
        partition: int | None = None,
    ) -> None:
        """Add keys and values that have the same timestamp and no headers."""
        try:
            for pair in pairs:
                key, value = pair
                size = _RECORD_BYTES + (len(key) if key else 0) + (len(value) if value else 0)
                where = self._choose(key) if partition is None else partition
                batch = self._open.get(where)
                if batch is None or batch.size + size > self._limit:
                    is_free = key is None and partition is None
                    batch = await self._begin(where, size, timestamp, is_free=is_free)
                batch.run.append(pair)
                batch.size += size
        finally:
            for batch in self._open.values():
                self._encode(batch, timestamp)

    async def add(self, record: NewRecord) -> None:
        """Add one record."""
        key, value, timestamp, headers, partition = record
        size = _RECORD_BYTES + len(key or b"") + len(value or b"")
        for name, content in headers:
            size += _HEADER_BYTES + 4 * len(name) + len(content or b"")
        where = self._choose(key) if partition is None else partition
        batch = self._open.get(where)
        if batch is None or batch.size + size > self._limit:
            is_free = key is None and partition is None
            batch = await self._begin(where, size, timestamp, is_free=is_free)
        batch.builder.append(timestamp, key, value, headers)
        batch.size += size
        if self._keeps_timestamps:
            batch.timestamps.append(timestamp)

    async def flush(self) -> None:
        """Send what there is; :meth:`Producer.flush` waits for the outcome."""
        for where in list(self._open):
            await self._send(where)

    def _choose(self, key: bytes | None) -> int:
        if key is None:
            return self._partitions[self._turn % len(self._partitions)]
        known = self._by_key.get(key)
        if known is None:
            if len(self._by_key) >= _KEYS_KEPT_MAX:
                self._by_key.clear()
            known = self._by_key[key] = partition_of_key(key, len(self._partitions))
        return known

    async def _begin(self, where: int, size: int, timestamp: int, *, is_free: bool) -> _Open:
        """Begin a batch instead of one that is full; one that is free goes elsewhere."""
        if where in self._open:
            self._encode(self._open[where], timestamp)
            if not self._has_limit:
                self._has_limit = True
                self._limit = max(self._limit, min(LARGE_BYTES, await self._find_limit()))
                if self._open[where].size + size <= self._limit:
                    return self._open[where]
            await self._send(where)
            if is_free:
                self._turn += 1
                where = self._choose(None)
        if size > self._producer.config.max_request_size:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a record of up to {size} bytes is larger than a request may be: "
                f"{self._producer.config.max_request_size}",
            )
        if where not in self._open:
            self._open[where] = _Open(self._producer.new_batch())
        return self._open[where]

    def _encode(self, batch: _Open, timestamp: int) -> None:
        if batch.run:
            batch.builder.append_all(timestamp, batch.run)
            if self._keeps_timestamps:
                batch.timestamps += [timestamp] * len(batch.run)
            batch.run = []

    async def _send(self, where: int) -> None:
        batch = self._open.pop(where)
        if not batch.builder.record_count:
            return
        sent = SentBatch(batch.builder.record_count, batch.timestamps)
        future = await self._producer.send_batch(TopicPartition(self._topic, where), batch.builder)
        future.add_done_callback(lambda done: self._on_outcome(sent, done))
