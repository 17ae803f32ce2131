"""The consumer: reads partitions that are assigned to it by hand, from wherever one likes.

Rules it keeps:

- At most one fetch a broker is on its way, and at most two answers a partition are held: the one
  that is given out and the one after it. With the sizes of fetches this bounds its memory.
- A partition whose fetch fails with a retriable error is tried again, with growing pauses; an error
  that lasts longer than the time for an operation, or is not retriable, is raised to the reader. It
  may read on afterwards: nothing has been skipped.
- An offset that is not in the log any more is reset as ``auto_offset_reset`` says.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterator, Mapping
from typing import Any, Self

from dohle.client.cluster import Cluster
from dohle.client.config import ConsumerConfig, OffsetReset
from dohle.client.errors import ClientClosed, answered_error, is_retriable
from dohle.client.fetched import ConsumedRecord, FetchedRecords, PartitionReader
from dohle.client.metadata import Broker
from dohle.client.offsets import resolve_starts
from dohle.client.starts import Beginning, End, Start
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, TopicName, TopicPartition, Uuid
from dohle.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

_BUFFERED_MAX = 2


class Consumer:
    """Reads assigned partitions; made and used within a running loop, by one task at a time."""

    def __init__(self, cluster: Cluster, config: ConsumerConfig | None = None) -> None:
        self.config = config or ConsumerConfig()
        self._cluster = cluster
        self._loop = asyncio.get_running_loop()
        #: In the order of the next fetch: a partition that gave records goes behind the others.
        self._readers: dict[TopicPartition, PartitionReader] = {}
        self._ready: deque[FetchedRecords] = deque()
        self._current: FetchedRecords | None = None
        self._records: Iterator[ConsumedRecord] | None = None
        self._errors: deque[KafkaError] = deque()
        self._busy_nodes: set[BrokerId] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()
        self._is_refreshing = False
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def assign(
        self, starts: Mapping[TopicPartition, Start], *, stop_at_end: bool = False
    ) -> None:
        """Read these partitions from these places on, instead of what was assigned before.

        With ``stop_at_end`` reading ends where the partitions end now.
        """
        self._check_open()
        level = self.config.isolation_level
        offsets = await resolve_starts(self._cluster, starts, level)
        for topic in {partition.topic for partition in starts}:
            await self._cluster.topic(topic)
        ends: Mapping[TopicPartition, int] = {}
        if stop_at_end:
            ends = await resolve_starts(self._cluster, dict.fromkeys(starts, End()), level)
        for reader in self._readers.values():
            reader.generation += 1
        self._readers = {
            partition: PartitionReader(partition, offset, ends.get(partition))
            for partition, offset in offsets.items()
        }
        self._errors.clear()
        self._news.set()

    async def seek(self, partition: TopicPartition, start: Start) -> None:
        """Go on reading a partition from another place."""
        offsets = await resolve_starts(
            self._cluster, {partition: start}, self.config.isolation_level
        )
        self._readers[partition].go_to(offsets[partition])
        self._news.set()

    def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record of a partition."""
        return self._readers[partition].position

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """Return the end of a partition as of the last fetch, if there was one."""
        return self._readers[partition].high_watermark

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that are read."""
        return tuple(self._readers)

    @property
    def is_done(self) -> bool:
        """Whether all partitions have been read up to where they are to stop."""
        return all(reader.is_done for reader in self._readers.values())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumedRecord:
        """Return the next record of any partition; in a partition they come in order."""
        while True:
            item = self._next_buffered()
            if item is not None:
                return item
            if self._ready:
                # Between two answers others get their turn, the next fetch among them.
                await asyncio.sleep(0)
                self._open_next()
                continue
            self._check_open()
            if self._errors:
                raise self._errors.popleft()
            if self.is_done:
                raise StopAsyncIteration
            self._news.clear()
            self._fetch_more()
            await self._news.wait()

    async def poll(self, *, timeout_ms: int = 0, max_records: int = 500) -> list[ConsumedRecord]:
        """Return the records that are there, waiting for the first one for a while.

        An empty list means that none came in time, or that reading is done.
        """
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                items = [await self.__anext__()]
        except (TimeoutError, StopAsyncIteration):
            return []
        while len(items) < max_records:
            item = self._next_buffered()
            if item is None:
                if not self._ready:
                    break
                self._open_next()
                continue
            items.append(item)
        return items

    async def close(self) -> None:
        """Stop fetching."""
        self._is_closed = True
        self._news.set()
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed("the consumer is closed")

    def _next_buffered(self) -> ConsumedRecord | None:
        """Return the next record of the answer that is given out, if there is one."""
        if self._records is None or self._current is None:
            return None
        reader = self._current.reader
        if self._current.is_current:
            try:
                for item in self._records:
                    return item
                reader.buffered -= 1
            except BaseException:
                # The records before the bad ones were given out; the rest is fetched again.
                reader.go_to(reader.position)
                self._current = self._records = None
                raise
        self._current = self._records = None
        return None

    def _open_next(self) -> None:
        """Begin with the next answer, and let its successor be fetched meanwhile."""
        if self._ready:
            self._current = self._ready.popleft()
            self._records = self._current.records(self.config)
            self._fetch_more()

    def _fetch_more(self) -> None:
        """Send a fetch to each broker that has none to answer and leads what can be fetched."""
        now = self._loop.time()
        groups: dict[BrokerId, list[PartitionReader]] = {}
        for reader in self._readers.values():
            if reader.is_fetching or reader.is_done or reader.buffered >= _BUFFERED_MAX:
                continue
            if reader.not_before > now:
                continue  # the failure has set a timer
            leader = self._cluster.metadata.leader(reader.partition)
            if leader is None:
                self._failed(
                    reader,
                    KafkaError(
                        ErrorCode.LEADER_NOT_AVAILABLE, f"{reader.partition} has no known leader"
                    ),
                )
            elif leader.node_id not in self._busy_nodes:
                groups.setdefault(leader.node_id, []).append(reader)
        for node_id, readers in groups.items():
            self._busy_nodes.add(node_id)
            for reader in readers:
                reader.is_fetching = True
            self._spawn(self._fetch(node_id, readers))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _fetch(self, node_id: BrokerId, readers: list[PartitionReader]) -> None:
        """Fetch from one broker once."""
        asked = {reader.partition: (reader, reader.generation) for reader in readers}
        topic_names: dict[Uuid, TopicName] = {}
        try:
            connection = await self._cluster.connection(node_id)
            request = self._request(readers, topic_names)
            config = self._cluster.config
            answer = await connection.request(
                request,
                FetchResponse,
                timeout_ms=config.request_timeout_ms + self.config.fetch_max_wait_ms,
            )
            if answer.error_code:
                raise answered_error(answer.error_code, f"fetch from {connection.address}")
            await self._take_answer(answer, asked, topic_names)
        except KafkaError as error:
            for reader, generation in asked.values():
                if self._is_wanted(reader, generation):
                    self._failed(reader, error)
        except Exception as error:
            # Nobody awaits this task: the reader must learn of what is wrong here.
            self._errors.append(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, repr(error)))
            raise
        finally:
            self._busy_nodes.discard(node_id)
            for reader in readers:
                reader.is_fetching = False
            self._news.set()

    def _request(
        self, readers: list[PartitionReader], topic_names: dict[Uuid, TopicName]
    ) -> FetchRequest:
        metadata = self._cluster.metadata
        topics: dict[TopicName, list[FetchPartition]] = {}
        for reader in readers:
            info = metadata.partition(reader.partition)
            entry = FetchPartition(
                partition=reader.partition.partition,
                current_leader_epoch=-1 if info is None else info.leader_epoch,
                fetch_offset=reader.fetch_offset,
                last_fetched_epoch=reader.last_fetched_epoch,
                partition_max_bytes=self.config.max_partition_fetch_bytes,
            )
            topics.setdefault(reader.partition.topic, []).append(entry)
        entries = []
        for name, partitions in topics.items():
            topic_id = metadata.topic_id(name)
            topic_names[topic_id] = name
            entries.append(FetchTopic(topic=name, topic_id=topic_id, partitions=tuple(partitions)))
        return FetchRequest(
            max_wait_ms=self.config.fetch_max_wait_ms,
            min_bytes=self.config.fetch_min_bytes,
            max_bytes=self.config.fetch_max_bytes,
            isolation_level=self.config.isolation_level,
            topics=tuple(entries),
        )

    async def _take_answer(
        self,
        answer: FetchResponse,
        asked: Mapping[TopicPartition, tuple[PartitionReader, int]],
        topic_names: Mapping[Uuid, TopicName],
    ) -> None:
        endpoints = tuple(
            Broker(each.node_id, each.host, each.port, each.rack) for each in answer.node_endpoints
        )
        for topic in answer.responses:
            name = topic.topic or topic_names.get(topic.topic_id)
            for data in topic.partitions:
                partition = TopicPartition(TopicName(name or ""), data.partition_index)
                reader, generation = asked.get(partition, (None, 0))
                if reader is None or not self._is_wanted(reader, generation):
                    continue
                leader = data.current_leader
                self._cluster.note_leader(
                    partition, leader.leader_id, leader.leader_epoch, endpoints
                )
                await self._take_partition(reader, data)

    def _is_wanted(self, reader: PartitionReader, generation: int) -> bool:
        """Tell whether what was asked for a reader is still what it needs."""
        same = self._readers.get(reader.partition) is reader
        return same and reader.generation == generation

    async def _take_partition(self, reader: PartitionReader, data: PartitionData) -> None:
        if data.error_code:
            error = answered_error(data.error_code, f"fetch of {reader.partition}")
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                await self._reset(reader, error)
            else:
                self._failed(reader, error)
            return
        reader.failures = 0
        reader.failing_since = None
        reader.high_watermark = data.high_watermark
        reader.last_stable_offset = data.last_stable_offset
        reader.log_start_offset = data.log_start_offset
        if data.diverging_epoch.end_offset >= 0:
            self._truncated(reader, data.diverging_epoch.end_offset)
            return
        fetched = FetchedRecords(reader, data)
        if fetched.is_empty:
            return
        reader.fetch_offset = max(reader.fetch_offset, fetched.next_offset)
        reader.last_fetched_epoch = fetched.last_leader_epoch
        reader.buffered += 1
        self._ready.append(fetched)
        self._readers[reader.partition] = self._readers.pop(reader.partition)

    def _failed(self, reader: PartitionReader, error: KafkaError) -> None:
        """Try a partition again later, or tell the reader."""
        now = self._loop.time()
        reader.failures += 1
        if reader.failing_since is None:
            reader.failing_since = now
        delay_s = self._cluster.backoff.delay_s(reader.failures)
        reader.not_before = now + delay_s
        lasts_s = now - reader.failing_since
        self._loop.call_at(reader.not_before, self._news.set)
        if not is_retriable(error) or lasts_s * 1000 > self._cluster.config.api_timeout_ms:
            reader.failing_since = None
            self._errors.append(error)
            self._news.set()
            return
        if error.code.refreshes_metadata and not self._is_refreshing:
            self._is_refreshing = True
            self._spawn(self._refresh())

    async def _refresh(self) -> None:
        try:
            await self._cluster.refresh({partition.topic for partition in self._readers})
        except KafkaError:
            pass  # the partitions are tried again in any case, and ask for it again
        finally:
            self._is_refreshing = False
            self._news.set()

    async def _reset(self, reader: PartitionReader, error: KafkaError) -> None:
        """Go to where the reset policy says, once all that was fetched before is given out."""
        if reader.buffered:
            return
        if reader.fetch_offset != reader.position:
            reader.go_to(reader.position)
            return
        policy = self.config.auto_offset_reset
        if policy is OffsetReset.NONE:
            text = f"offset {reader.position} of {reader.partition} is not in the log"
            self._failed(reader, KafkaError(error.code, text))
            return
        start = Beginning() if policy is OffsetReset.EARLIEST else End()
        generation = reader.generation
        offsets = await resolve_starts(
            self._cluster, {reader.partition: start}, self.config.isolation_level
        )
        if self._is_wanted(reader, generation):
            reader.go_to(offsets[reader.partition])

    def _truncated(self, reader: PartitionReader, end_offset: int) -> None:
        """Go back to where the log was cut since it was read (KIP-320)."""
        if self.config.auto_offset_reset is OffsetReset.NONE:
            text = (
                f"{reader.partition} was cut at offset {end_offset} after it had been read up to "
                f"{reader.fetch_offset}"
            )
            self._failed(reader, KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, text))
        else:
            reader.go_to(min(end_offset, reader.fetch_offset))
