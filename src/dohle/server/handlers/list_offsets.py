"""ListOffsets (2), v0-11, and OffsetForLeaderEpoch (23), v2-4.

- -1 latest (bounded by isolation level), -2 earliest, -3 the record with the largest timestamp
  (v7), -4 earliest local (v8), -5 last tiered (v9), -6 first not yet tiered (v11); of a log that
  is not tiered the last two find nothing. A special value that the version does not have: 35.
- A timestamp finds the offset and timestamp of the first record with this timestamp or a later one.
  If there is none: -1 for both, without an error.
- A leader that does not know yet what is committed (KIP-207) answers 78, below v5 5, to a consumer
  that asks for the latest offset, or for a time behind which nothing is found.
- v0 answers with a list of base offsets of segments, newest first.
- A timestamp of a log that is partly in the remote tier only is looked for there first, in other
  threads; what takes longer than ``timeout_ms`` (v10), or 30 s, gets 7.
- A partition that is named twice: 42.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName, TopicPartition
from dohle.core.steps import PlainSteps, mapped, mapped_steps
from dohle.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from dohle.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)
from dohle.server.partitions.lookup import NEEDS_LEADER, find_partition, listing_offsets
from dohle.server.partitions.partitions import Partition
from dohle.storage import log_read
from dohle.storage.log import Log
from dohle.storage.segment.reader import TimestampedOffset
from dohle.tiering.store import StoreError

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer
    from dohle.server.net.handler import RequestContext

logger = logging.getLogger("dohle.server")

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

#: Special timestamps and the first version that has them.
_SINCE = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
#: The first version whose clients know OFFSET_NOT_AVAILABLE.
_KNOWS_NOT_AVAILABLE = 5
_READ_COMMITTED = 1
_CONSUMER = -1
_NOTHING = TimestampedOffset(-1, -1, -1)


def handle_list_offsets(
    broker: BrokerServer, context: RequestContext, request: ListOffsetsRequest
) -> PlainSteps[ListOffsetsResponse | Coroutine[Any, Any, ListOffsetsResponse]]:
    """Find offsets by time."""
    times: Counter[tuple[TopicName, int]] = Counter()
    for topic in request.topics:
        for asked in topic.partitions:
            times[topic.name, asked.partition_index] += 1
            yield
    committed = request.isolation_level == _READ_COMMITTED
    topics: list[tuple[TopicName, list[_Answer]]] = []
    for topic in request.topics:
        found: list[_Answer] = []
        # A partition that is named twice is answered once.
        told: set[int] = set()
        for asked in topic.partitions:
            yield
            if asked.partition_index in told:
                continue
            told.add(asked.partition_index)
            try:
                if times[topic.name, asked.partition_index] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "the partition is named twice")
                key = TopicPartition(topic.name, asked.partition_index)
                found.append(
                    _find(broker, context.version, request.replica_id, key, asked, committed)
                )
            except KafkaError as error:
                found.append(
                    ListOffsetsPartitionResponse(
                        partition_index=asked.partition_index, error_code=error.code
                    )
                )
        topics.append((topic.name, found))
        yield
    if any(isinstance(each, _InTiers) for _, found in topics for each in found):
        return _look_in_tiers(broker, request, context.version, topics)
    return _response(topics)


class _InTiers(NamedTuple):
    """A partition of which a time is looked for in the remote tier first."""

    partition: Partition
    timestamp: int
    bound: int
    #: Whether it is not known yet how far the log is committed.
    is_catching_up: bool


_Answer = ListOffsetsPartitionResponse | _InTiers


def _response(topics: list[tuple[TopicName, list[_Answer]]]) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=tuple(
            ListOffsetsTopicResponse(
                name=name,
                partitions=tuple(each for each in found if not isinstance(each, _InTiers)),
            )
            for name, found in topics
        )
    )


async def _look_in_tiers(
    broker: BrokerServer,
    request: ListOffsetsRequest,
    version: int,
    topics: list[tuple[TopicName, list[_Answer]]],
) -> ListOffsetsResponse:
    timeout_ms = broker.broker_values().get_int("remote.list.offsets.request.timeout.ms")
    if request.timeout_ms > 0:
        timeout_ms = request.timeout_ms
    deadline = broker.loop.time() + timeout_ms / 1000
    for _, found in topics:
        for number, each in enumerate(found):
            if isinstance(each, _InTiers):
                found[number] = await _look(broker, each, version, deadline)
    return _response(topics)


async def _look(
    broker: BrokerServer, asked: _InTiers, version: int, deadline: float
) -> ListOffsetsPartitionResponse:
    index = asked.partition.key.partition
    assert broker.tier is not None
    try:
        async with asyncio.timeout_at(deadline):
            found = await broker.tier.reads.find_by_timestamp(asked.partition, asked.timestamp)
    except TimeoutError:
        code = ErrorCode.REQUEST_TIMED_OUT
    except KafkaError as error:
        code = error.code
    except StoreError as error:
        logger.warning(
            "%s: the offset of a timestamp could not be looked up: %s", asked.partition.key, error
        )
        code = ErrorCode.UNKNOWN_SERVER_ERROR
    else:
        known = found if found is not None and found.offset < asked.bound else _NOTHING
        if known is not _NOTHING or not asked.is_catching_up:
            return _told(index, known, version)
        code = _not_available(version).code
    return ListOffsetsPartitionResponse(partition_index=index, error_code=code)


def _told(index: int, found: TimestampedOffset, version: int) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=index,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch if version >= 4 else -1,
    )


def _find(
    broker: BrokerServer,
    version: int,
    replica_id: int,
    key: TopicPartition,
    asked: ListOffsetsPartition,
    committed: bool,
) -> _Answer:
    timestamp = asked.timestamp
    if timestamp < 0 and version < _SINCE.get(timestamp, version + 1):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp} is not valid in this version"
        )
    partition = find_partition(
        broker, *key, listing_offsets(replica_id), asked.current_leader_epoch
    )
    log = partition.log
    bound = _bound(log, replica_id, committed)
    is_catching_up = replica_id == _CONSUMER and partition.replication.is_catching_up
    if is_catching_up and timestamp == LATEST:
        raise _not_available(version)
    if version == 0:
        now_ms = broker.clock.now_ms()
        offsets = _segment_offsets(log, timestamp, bound, now_ms, asked.max_num_offsets)
        return ListOffsetsPartitionResponse(
            partition_index=key.partition, old_style_offsets=tuple(offsets)
        )
    if timestamp >= 0 and broker.tier is not None and log.has_remote_part:
        return _InTiers(partition, timestamp, bound, is_catching_up)
    found = _lookup(log, timestamp, bound)
    if is_catching_up and found is _NOTHING:
        raise _not_available(version)
    return _told(key.partition, found, version)


def _not_available(version: int) -> KafkaError:
    known = version >= _KNOWS_NOT_AVAILABLE
    return KafkaError(
        ErrorCode.OFFSET_NOT_AVAILABLE if known else ErrorCode.LEADER_NOT_AVAILABLE,
        "the leader does not know yet how far the log is committed; ask again",
    )


def _bound(log: Log, replica_id: int, committed: bool) -> int:
    """Return the offset up to which the asker may see: only consumers are bounded by commits."""
    if replica_id != _CONSUMER:
        return log.log_end_offset
    return log.last_stable_offset if committed else log.high_watermark


def _lookup(log: Log, timestamp: int, bound: int) -> TimestampedOffset:
    epochs = log.leader_epochs
    if timestamp == LATEST:
        latest = epochs.latest_epoch
        return TimestampedOffset(-1, bound, -1 if latest is None else latest)
    if timestamp == EARLIEST:
        return _at(log, log.log_start_offset)
    if timestamp == EARLIEST_LOCAL:
        return _at(log, log.local_log_start_offset)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _tiered(log, timestamp)
    found = (
        log_read.find_max_timestamp(log)
        if timestamp == MAX_TIMESTAMP
        else log_read.find_by_timestamp(log, timestamp)
    )
    return found if found is not None and found.offset < bound else _NOTHING


def _at(log: Log, offset: int) -> TimestampedOffset:
    """Tell of an offset with its epoch, if that is known."""
    epoch = log.leader_epochs.epoch_of(offset)
    return TimestampedOffset(-1, offset, -1 if epoch is None else epoch)


def _tiered(log: Log, timestamp: int) -> TimestampedOffset:
    """Tell how far the remote tier reaches, or what is copied next (T13)."""
    remote = log.highest_remote_offset
    if not log.config.remote_storage_enable:
        return _NOTHING
    if timestamp == LATEST_TIERED:
        return _NOTHING if remote < 0 else _at(log, remote)
    if remote < 0 and log.local_log_start_offset != log.log_start_offset:
        return _NOTHING
    return _at(log, max(remote + 1, log.log_start_offset))


def _segment_offsets(log: Log, timestamp: int, bound: int, now_ms: int, count: int) -> list[int]:
    """Serve v0: base offsets of the segments last written before a time, newest first."""
    if timestamp == EARLIEST:
        return [log.log_start_offset][:count]
    starts = [
        (max(segment.base_offset, log.log_start_offset), log.fs.stat(segment.path).mtime_ms)
        for segment in log.segments
    ]
    starts.append((bound, now_ms))
    if timestamp != LATEST:
        starts = [start for start in starts if start[1] <= timestamp]
    return sorted({offset for offset, _ in starts}, reverse=True)[: max(0, count)]


def handle_offset_for_leader_epoch(
    broker: BrokerServer, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> PlainSteps[OffsetForLeaderEpochResponse]:
    """Return the end offset of a leader epoch."""

    def of_topic(topic: OffsetForLeaderTopic) -> PlainSteps[OffsetForLeaderTopicResult]:
        partitions = yield from mapped(
            lambda asked: _epoch_end(broker, TopicPartition(topic.topic, asked.partition), asked),
            topic.partitions,
        )
        return OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions)

    topics = yield from mapped_steps(of_topic, request.topics)
    return OffsetForLeaderEpochResponse(topics=topics)


def _epoch_end(
    broker: BrokerServer, key: TopicPartition, asked: OffsetForLeaderPartition
) -> EpochEndOffset:
    try:
        log = find_partition(broker, *key, NEEDS_LEADER, asked.current_leader_epoch).log
    except KafkaError as error:
        return EpochEndOffset(partition=key.partition, error_code=error.code)
    end = log.leader_epochs.end_offset_for(asked.leader_epoch, log.log_end_offset)
    return EpochEndOffset(
        partition=key.partition, leader_epoch=end.epoch, end_offset=end.end_offset
    )
