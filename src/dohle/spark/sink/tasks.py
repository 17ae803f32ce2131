"""What a task does with its rows: encode and send them, and leave nothing behind if it fails.

The caller's thread encodes while the loop sends what was encoded before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future

import pyarrow as pa

from dohle.client import Cluster, PreparedTransaction, Producer, RecordMetadata, TopicInfo
from dohle.core.ids import TopicName
from dohle.core.seams import Clock, SystemClock, system_rng
from dohle.spark import worker_loop
from dohle.spark.sink.options import SinkOptions
from dohle.spark.sink.rows import EncodedBatch, RowEncoder, gather
from dohle.spark.sink.schema import Columns

#: How long a failed task tries to abort its transaction; otherwise others do it later.
_ABORT_TIMEOUT_S = 5


class RowWriter:
    """Sends the rows of one task through one producer, which is opened with the first row."""

    def __init__(
        self,
        cluster: Cluster,
        options: SinkOptions,
        columns: Columns,
        open_producer: Callable[[], Awaitable[Producer]],
        clock: Clock | None = None,
    ) -> None:
        self.rows = 0
        self._cluster = cluster
        self._open_producer = open_producer
        self._clock = clock or SystemClock()
        self._producer: Producer | None = None
        self._sending: Future[None] | None = None
        #: The same, as seen by the loop.
        self._sending_task: asyncio.Task[None] | None = None
        #: The outcome of batches without a transaction.
        self._outcomes: list[asyncio.Future[RecordMetadata]] = []
        self._encoder = RowEncoder(
            columns,
            options.topic,
            options.producer.batch_size,
            self._count_partitions,
            system_rng(),
        )

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Send all rows; they are in flight when it returns."""
        for table in gather(batches):
            encoded = list(self._encoder.encode(table, self._clock.now_ms()))
            self._wait()
            self._sending = worker_loop.submit(self._send(encoded))
            self.rows += table.num_rows
        self._wait()

    def flush(self) -> None:
        """Wait until all rows are written; raise if one is not."""
        if self._producer is not None:
            worker_loop.run(self._flush(self._producer))

    def prepare(self) -> PreparedTransaction | None:
        """Wait until all rows are written, and leave their transaction open."""
        if self._producer is None:
            return None
        return worker_loop.run(self._producer.prepare_transaction())

    def abort(self) -> None:
        """Discard what was sent, as far as possible now."""
        if self._producer is not None or self._sending is not None:
            worker_loop.run(self._abort())

    def close(self) -> None:
        """Close the producer, without waiting for anything."""
        if self._producer is not None or self._sending is not None:
            worker_loop.run(self._close())

    def _wait(self) -> None:
        if self._sending is not None:
            sending, self._sending = self._sending, None
            sending.result()

    async def _send(self, batches: Sequence[EncodedBatch]) -> None:
        self._sending_task = asyncio.current_task()
        if self._producer is None:
            self._producer = await self._open_producer()
            if self._producer.config.transactional_id is not None:
                self._producer.begin_transaction()
        is_transactional = self._producer.config.transactional_id is not None
        for each in batches:
            batch = self._producer.new_batch()
            batch.append_encoded(
                each.records, each.record_count, each.base_timestamp, each.max_timestamp
            )
            outcome = await self._producer.send_batch(each.partition, batch)
            if not is_transactional:
                self._outcomes.append(outcome)

    async def _flush(self, producer: Producer) -> None:
        await producer.flush()
        outcomes, self._outcomes = self._outcomes, []
        for result in await asyncio.gather(*outcomes, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    async def _abort(self) -> None:
        await self._stop_sending()
        for outcome in self._outcomes:
            outcome.cancel()
        if self._producer is None or self._producer.config.transactional_id is None:
            return
        async with asyncio.timeout(_ABORT_TIMEOUT_S):
            await self._producer.abort_transaction()

    async def _close(self) -> None:
        await self._stop_sending()
        if self._producer is not None:
            producer, self._producer = self._producer, None
            await producer.close(flush=False)

    async def _stop_sending(self) -> None:
        """Stop what is in progress when rows fail: it would open a producer for nobody."""
        self._sending = None
        if self._sending_task is not None:
            self._sending_task.cancel()
            await asyncio.wait((self._sending_task,))

    def _count_partitions(self, topic: TopicName) -> int:
        known = self._cluster.metadata.topics.get(topic)
        if known is None:
            known = worker_loop.run(self._find_topic(topic))
        return len(known.partitions)

    async def _find_topic(self, topic: TopicName) -> TopicInfo:
        return await self._cluster.retry(
            f"metadata of {topic}",
            lambda: self._cluster.topic(topic, allow_auto_topic_creation=True),
            topics=(topic,),
        )
