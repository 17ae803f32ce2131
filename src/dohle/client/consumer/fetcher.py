"""Fetching: which partitions are requested, from which brokers, and what the responses hold.

Rules it keeps:

- At most one fetch per broker is in flight, and at most two responses per partition are buffered:
  the one being read and the one after it. Together with the fetch sizes this bounds the memory.
- A partition whose fetch fails with a retriable error is retried, with growing pauses; an error
  that lasts longer than the time for an operation, or is not retriable, is raised to the caller,
  who may read on afterwards: nothing has been skipped.
- An offset that is no longer in the log is reset as ``auto_offset_reset`` says.
- A partition is read from its leader, or from the replica that the leader has named (KIP-392), for
  as long as metadata is valid. Any failure there, and an offset that this replica does not have,
  sends it back to the leader.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any

from dohle.client.cluster import Cluster
from dohle.client.config import ConsumerConfig, OffsetReset
from dohle.client.consumer.fetched import (
    NO_EPOCH,
    ConsumedRecord,
    FetchedRecords,
    PartitionReader,
)
from dohle.client.consumer.offsets import resolve_starts
from dohle.client.consumer.starts import Beginning, End
from dohle.client.errors import answered_error, is_retriable
from dohle.client.metadata import BrokerInfo
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


#: How the records of a response are handed out: one by one, or by columns.
Form = Callable[[FetchedRecords, ConsumerConfig], Iterator[Any]]


def records_one_by_one(fetched: FetchedRecords, config: ConsumerConfig) -> Iterator[ConsumedRecord]:
    """Hand out each record."""
    return fetched.records(config)


class Fetcher:
    """Fetches partitions for a consumer; used by one task at a time."""

    def __init__(self, cluster: Cluster, config: ConsumerConfig) -> None:
        self.config = config
        #: In the order of the next fetch: a partition that returned records goes to the end.
        self.readers: dict[TopicPartition, PartitionReader] = {}
        #: Errors that were not raised yet.
        self.errors: deque[Exception] = deque()
        #: Set when there may be something to do or to return.
        self.news = asyncio.Event()
        self._cluster = cluster
        self._channel = cluster.new_channel("fetch")
        self._loop = asyncio.get_running_loop()
        self._ready: deque[FetchedRecords] = deque()
        self._current: FetchedRecords | None = None
        self._records: Iterator[Any] | None = None
        self._form: Form = records_one_by_one
        self._busy_nodes: set[BrokerId] = set()
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._is_refreshing = False

    @property
    def has_answers(self) -> bool:
        """Whether a response is ready to be read."""
        return bool(self._ready)

    def add(self, readers: Iterable[PartitionReader]) -> None:
        """Read these partitions too."""
        for reader in readers:
            self.readers[reader.partition] = reader
        self.news.set()

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading these partitions; none of their records are returned from now on."""
        for partition in partitions:
            reader = self.readers.pop(partition, None)
            if reader is not None:
                reader.generation += 1
        self.news.set()

    async def close(self) -> None:
        """Stop fetching."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._cluster.close_channel(self._channel)

    def next_buffered(self) -> Any:
        """Return the next record of the current response, if there is one, in its form."""
        if self._records is None or self._current is None:
            return None
        reader = self._current.reader
        if self._current.is_current:
            try:
                for item in self._records:
                    return item
                reader.buffered -= 1
            except BaseException:
                # The records before the invalid ones were returned; the rest is fetched again.
                reader.go_to(reader.position)
                self._current = self._records = None
                raise
        self._current = self._records = None
        return None

    def hand_out(self, form: Form) -> None:
        """Return what is fetched in this form from now on, from where the caller is."""
        if form != self._form:
            self._form = form
            if self._current is not None:
                self._records = form(self._current, self.config)

    def open_next(self) -> None:
        """Start with the next response, and let the one after it be fetched meanwhile."""
        if self._ready:
            self._current = self._ready.popleft()
            self._records = self._form(self._current, self.config)
            self.fetch_more()

    def fetch_more(self) -> None:
        """Send a fetch to each leader of partitions to be fetched that has none in flight."""
        now = self._loop.time()
        groups: dict[BrokerId, list[PartitionReader]] = {}
        for reader in self.readers.values():
            if not reader.wants_more(_BUFFERED_MAX):
                continue
            if reader.not_before > now:
                continue  # the failure has set a timer
            node = self._source(reader, now)
            if node is None:
                self._failed(
                    reader,
                    KafkaError(
                        ErrorCode.LEADER_NOT_AVAILABLE, f"{reader.partition} has no known leader"
                    ),
                )
            elif node.node_id not in self._busy_nodes:
                groups.setdefault(node.node_id, []).append(reader)
        for node_id, readers in groups.items():
            self._busy_nodes.add(node_id)
            for reader in readers:
                reader.is_fetching = True
            self._spawn(self._fetch(node_id, readers))

    def _source(self, reader: PartitionReader, now: float) -> BrokerInfo | None:
        """Return the broker to fetch from: the replica that the leader has named, or the leader."""
        metadata = self._cluster.metadata
        if reader.preferred is not None:
            node_id, until = reader.preferred
            found = metadata.online_replica(reader.partition, node_id) if now <= until else None
            if found is not None:
                return found
            reader.preferred = None
            if now <= until:
                # It has gone, or what is known is too old.
                self._refresh_soon()
        return metadata.leader(reader.partition)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _fetch(self, node_id: BrokerId, readers: list[PartitionReader]) -> None:
        """Fetch from one broker once."""
        asked = {reader.partition: (reader, reader.generation) for reader in readers}
        topic_names: dict[Uuid, TopicName] = {}
        try:
            connection = await self._cluster.connection(node_id, self._channel)
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
                    self._fetch_failed(reader, error)
        except Exception as error:
            # Nobody awaits this task: the error must reach the caller here.
            self.errors.append(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, repr(error)))
            raise
        finally:
            self._busy_nodes.discard(node_id)
            for reader in readers:
                reader.is_fetching = False
            self.news.set()

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
                # A follower that lags behind would take what it lacks for truncated.
                last_fetched_epoch=NO_EPOCH if reader.preferred else reader.last_fetched_epoch,
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
            rack_id=self.config.client_rack,
        )

    async def _take_answer(
        self,
        answer: FetchResponse,
        asked: Mapping[TopicPartition, tuple[PartitionReader, int]],
        topic_names: Mapping[Uuid, TopicName],
    ) -> None:
        endpoints = tuple(
            BrokerInfo(each.node_id, each.host, each.port, each.rack)
            for each in answer.node_endpoints
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
        """Tell whether what was requested for a reader is still what it needs."""
        same = self.readers.get(reader.partition) is reader
        return same and reader.generation == generation

    async def _take_partition(self, reader: PartitionReader, data: PartitionData) -> None:
        if data.error_code:
            error = answered_error(data.error_code, f"fetch of {reader.partition}")
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                self._fetch_failed(reader, error)
            elif reader.preferred is not None:
                # It may not be there yet, or there no more: the leader knows.
                reader.preferred = None
                self._pause(reader)
            else:
                await self._reset(reader, error)
            return
        if data.preferred_read_replica >= 0:
            # What has failed there before may fail again: that is seen when it is read.
            self._prefer(reader, data.preferred_read_replica)
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
        self.readers[reader.partition] = self.readers.pop(reader.partition)

    def _prefer(self, reader: PartitionReader, node_id: BrokerId) -> None:
        """Read from a replica for as long as metadata is valid, from when it was first named."""
        if reader.preferred is None or reader.preferred[0] != node_id:
            lease_s = self._cluster.config.metadata_max_age_ms / 1000
            reader.preferred = node_id, self._loop.time() + lease_s

    def _fetch_failed(self, reader: PartitionReader, error: KafkaError) -> None:
        """Ask the leader next; as in Kafka, an epoch that a follower does not know yet may come."""
        if error.code is not ErrorCode.UNKNOWN_LEADER_EPOCH:
            reader.preferred = None
        self._failed(reader, error)

    def _failed(self, reader: PartitionReader, error: KafkaError) -> None:
        """Retry a partition later, or report the error to the caller."""
        now = self._loop.time()
        if reader.failing_since is None:
            reader.failing_since = now
        self._pause(reader)
        lasts_s = now - reader.failing_since
        if not is_retriable(error) or lasts_s * 1000 > self._cluster.config.api_timeout_ms:
            reader.failing_since = None
            self.errors.append(error)
            self.news.set()
            return
        if error.code.refreshes_metadata:
            self._refresh_soon()

    def _pause(self, reader: PartitionReader) -> None:
        """Fetch a partition again after a while, that grows with each failure."""
        reader.failures += 1
        reader.not_before = self._loop.time() + self._cluster.backoff.delay_s(reader.failures)
        self._loop.call_at(reader.not_before, self.news.set)

    def _refresh_soon(self) -> None:
        if not self._is_refreshing:
            self._is_refreshing = True
            self._spawn(self._refresh())

    async def _refresh(self) -> None:
        try:
            await self._cluster.refresh({partition.topic for partition in self.readers})
        except KafkaError:
            pass  # the partitions are retried anyway, and ask for it again
        finally:
            self._is_refreshing = False
            self.news.set()

    async def _reset(self, reader: PartitionReader, error: KafkaError) -> None:
        """Reset the position by policy, once everything fetched before is returned."""
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
        """Go back to where the log was truncated since it was read (KIP-320)."""
        if self.config.auto_offset_reset is OffsetReset.NONE:
            text = (
                f"{reader.partition} was truncated to offset {end_offset} after it had been read "
                f"up to {reader.fetch_offset}"
            )
            self._failed(reader, KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, text))
        else:
            reader.go_to(min(end_offset, reader.fetch_offset))
