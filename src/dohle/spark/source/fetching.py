"""Reads a range of offsets from the partition's leader, for a task.

Rules it keeps:

- Bytes are fetched as the leader has them and decoded by the caller's thread; meanwhile the next
  fetch is in flight.
- A moved leader, a missing broker and a lost connection are retried, for
  ``kafkaConsumer.pollTimeoutMs``.
- Each offset of the range is either returned, or known to have no record (compaction, markers,
  aborted transactions), or lost. Losses are reported, and fail the task if they should.
- A topic that was recreated since the range was planned is not read in place of the old one.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dohle.client import Cluster, IsolationLevel, PartitionInfo, TimedOut
from dohle.client.errors import answered_error
from dohle.client.metadata import BrokerInfo
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.uuid import uuid_to_text
from dohle.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from dohle.protocol.schema import Records
from dohle.records.batch import LOG_OVERHEAD, read_batch
from dohle.records.errors import IncompleteBatch
from dohle.spark import worker_loop
from dohle.spark.source.data_loss import report_losses
from dohle.spark.source.lookup import earliest_offsets, latest_offsets
from dohle.spark.source.options import SourceOptions
from dohle.spark.source.splits import OffsetRange

if TYPE_CHECKING:
    import pyarrow as pa

_FETCH_BYTES_MIN = 64 * 1024
#: The assumed size of a record before the first ones have arrived.
_RECORD_BYTES = 1024
_LENGTH = struct.Struct(">i")
_LENGTH_AT = 8
_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
#: A broker that has just started may not know a topic yet. Retried for some seconds, since what is
#: given up as gone is never read again.
_UNKNOWN_TRIES = 8


@dataclass(frozen=True, slots=True)
class Fetched:
    """The result of one fetch, and where the next one starts."""

    data: Records
    aborted: tuple[tuple[int, int], ...]
    start: int
    next_offset: int
    losses: tuple[str, ...] = ()


def read_range(wanted: OffsetRange, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range as Arrow batches."""
    from dohle.records.columnar.decode import Decoding

    fetcher = RangeFetcher(worker_loop.cluster(options.bootstrap, options.client), wanted, options)
    aborted_matter = options.isolation_level is IsolationLevel.READ_COMMITTED
    pending = worker_loop.submit(fetcher.fetch(wanted.start))
    try:
        while True:
            fetched = pending.result()
            report_losses(fetched.losses, fail=options.fail_on_data_loss)
            is_last = fetched.next_offset >= wanted.end
            if not is_last:
                pending = worker_loop.submit(fetcher.fetch(fetched.next_offset))
            if len(fetched.data):
                yield from Decoding(
                    fetched.data,
                    fetched.start,
                    wanted.end,
                    topic=wanted.topic,
                    partition=wanted.partition,
                    aborted=fetched.aborted if aborted_matter else None,
                    include_headers=options.include_headers,
                )
            if is_last:
                return
    finally:
        pending.cancel()


class RangeFetcher:
    """Fetches one range; its methods run on the worker's loop."""

    def __init__(self, cluster: Cluster, wanted: OffsetRange, options: SourceOptions) -> None:
        self._cluster = cluster
        self._wanted = wanted
        self._partition = wanted.topic_partition
        self._options = options
        self._record_bytes: float = _RECORD_BYTES

    async def fetch(self, offset: int) -> Fetched:
        """Fetch from an offset on until something is known about it."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._options.poll_timeout_ms / 1000
        try:
            while loop.time() < deadline:
                data = await self._fetch_once(offset)
                fetched = look_at(data, offset, self._wanted, self._options.isolation_level)
                if fetched is None:
                    continue
                if len(fetched.data):
                    self._record_bytes = len(fetched.data) / (fetched.next_offset - offset)
                    return fetched
                if await self._is_empty_to_its_end(data):
                    return fetched
            return await self._never_came(offset)
        except _Gone as gone:
            return self._lost(offset, self._wanted.end, str(gone))
        except KafkaError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            return await self._out_of_range(offset)

    async def _fetch_once(self, offset: int) -> PartitionData:
        unknown = 0

        async def attempt() -> PartitionData:
            nonlocal unknown
            try:
                return await self._ask_leader(offset)
            except KafkaError as error:
                if error.code in _UNKNOWN:
                    unknown += 1
                    if unknown >= _UNKNOWN_TRIES:
                        raise _Gone(f"{self._partition} no longer exists") from None
                raise

        return await self._cluster.retry(
            f"fetch of {self._partition}",
            attempt,
            topics=(self._wanted.topic,),
            timeout_ms=self._options.poll_timeout_ms,
        )

    async def _is_empty_to_its_end(self, data: PartitionData) -> bool:
        """Tell whether a leader that sent no records has none up to its end.

        A leader that must get them from remote storage also sends none if that takes too long. But
        then it has its last records at hand, and a log that has records there is not empty before.
        """
        last = _visible(data, self._options.isolation_level) - 1
        return not len((await self._fetch_once(last)).records or b"")

    async def _ask_leader(self, offset: int) -> PartitionData:
        cluster, options = self._cluster, self._options
        leader, info = await self._leader()
        topic_id = cluster.metadata.topic_id(self._wanted.topic)
        connection = await cluster.connection(leader.node_id)
        size = self._fetch_bytes(offset)
        request = FetchRequest(
            max_wait_ms=options.fetch_max_wait_ms,
            min_bytes=options.fetch_min_bytes,
            max_bytes=size,
            isolation_level=options.isolation_level,
            topics=(
                FetchTopic(
                    topic=self._wanted.topic,
                    topic_id=topic_id,
                    partitions=(
                        FetchPartition(
                            partition=self._wanted.partition,
                            current_leader_epoch=info.leader_epoch,
                            fetch_offset=offset,
                            partition_max_bytes=size,
                        ),
                    ),
                ),
            ),
        )
        answer = await connection.request(
            request,
            FetchResponse,
            timeout_ms=cluster.config.request_timeout_ms + options.fetch_max_wait_ms,
        )
        about = f"fetch of {self._partition} from {connection.address}"
        if answer.error_code:
            raise answered_error(answer.error_code, about)
        for topic in answer.responses:
            for data in topic.partitions:
                if data.error_code:
                    self._note_leader(answer, data)
                    raise answered_error(data.error_code, about)
                return data
        # A broker that throttles its clients answers without the partition at first.
        await asyncio.sleep(answer.throttle_time_ms / 1000)
        raise TimedOut(f"{about}: no answer yet")

    async def _leader(self) -> tuple[BrokerInfo, PartitionInfo]:
        """Find the leader, and make sure that it leads a partition of the intended topic."""
        found = await self._cluster.leader_of(self._partition)
        if not self._is_same_topic():
            # Either the topic was recreated, or the metadata here is older than that.
            await self._cluster.refresh((self._wanted.topic,))
            found = await self._cluster.leader_of(self._partition)
            if not self._is_same_topic():
                raise _Gone(f"topic {self._wanted.topic} was deleted and recreated")
        return found

    def _is_same_topic(self) -> bool:
        topic_id = self._cluster.metadata.topic_id(self._wanted.topic)
        return self._wanted.topic_id in ("", uuid_to_text(topic_id))

    def _note_leader(self, answer: FetchResponse, data: PartitionData) -> None:
        endpoints = tuple(
            BrokerInfo(each.node_id, each.host, each.port, each.rack)
            for each in answer.node_endpoints
        )
        leader = data.current_leader
        self._cluster.note_leader(self._partition, leader.leader_id, leader.leader_epoch, endpoints)

    def _fetch_bytes(self, offset: int) -> int:
        """Request about as much as is wanted; at least one batch comes in any case."""
        rest = int((self._wanted.end - offset) * self._record_bytes * 1.1)
        return min(self._options.fetch_bytes_max, max(rest, _FETCH_BYTES_MIN))

    async def _out_of_range(self, offset: int) -> Fetched:
        """Find out what happened to an offset that is not in the log."""
        begin = (await earliest_offsets(self._cluster, [self._partition]))[self._partition]
        if begin > offset:
            return self._lost(
                offset,
                begin,
                f"{self._partition}: its log now starts at offset {begin}, and offsets {offset} "
                f"to {min(begin, self._wanted.end) - 1} should still be read: they were deleted, "
                "or were too old or too many to be kept",
            )
        return await self._never_came(offset)

    async def _never_came(self, offset: int) -> Fetched:
        """Find out why there are no records where there should be some."""
        level = self._options.isolation_level
        end = (await latest_offsets(self._cluster, [self._partition], level))[self._partition]
        if end < self._wanted.end:
            return self._lost(
                offset,
                self._wanted.end,
                f"{self._partition}: its log now ends at offset {end}, and offsets {offset} to "
                f"{self._wanted.end - 1} should still be read: it was truncated",
            )
        raise TimedOut(
            f"{self._partition}: nothing came from offset {offset} on within "
            f"{self._options.poll_timeout_ms} ms (kafkaConsumer.pollTimeoutMs)"
        )

    def _lost(self, offset: int, go_on_at: int, what: str) -> Fetched:
        return Fetched(b"", (), offset, min(go_on_at, self._wanted.end), (what,))


class _Gone(Exception):
    """The partition that was to be read does not exist any more."""


def look_at(
    data: PartitionData, offset: int, wanted: OffsetRange, isolation_level: IsolationLevel
) -> Fetched | None:
    """Return what a fetch response says about an offset and those after it; None if nothing yet."""
    records = data.records or b""
    if len(records):
        after = _next_offset(records)
        if after <= offset:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"{wanted.topic_partition}: the leader answered a fetch of offset {offset} with "
                f"records that end before {after}",
            )
        aborted = tuple(
            (each.producer_id, each.first_offset) for each in data.aborted_transactions or ()
        )
        return Fetched(records, aborted, offset, after)
    if _visible(data, isolation_level) >= wanted.end:
        # The leader has all of the range and nothing at or after this offset: a compacted end.
        return Fetched(b"", (), offset, wanted.end)
    return None


def _visible(data: PartitionData, isolation_level: IsolationLevel) -> int:
    """Return the end of the partition that is visible to a consumer."""
    is_committed = isolation_level is IsolationLevel.READ_COMMITTED
    return data.last_stable_offset if is_committed else data.high_watermark


def _next_offset(records: Records) -> int:
    """Return the offset after the last whole batch, by following lengths only."""
    view = memoryview(records)
    position, last, end = 0, -1, len(view)
    while end - position >= LOG_OVERHEAD:
        size = _LENGTH.unpack_from(view, position + _LENGTH_AT)[0] + LOG_OVERHEAD
        if size > end - position:
            break
        last = position
        position += size
    if last < 0:
        raise IncompleteBatch(f"the first batch does not fit into {end} bytes", 0)
    return read_batch(view, last).next_offset
