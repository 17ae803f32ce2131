"""DeleteRecords (21), v0-2.

- The log start offset moves to the given offset, so that readers no longer see the records below
  it; segments entirely below it are deleted by the next retention check. -1 is the high watermark.
- Below 0 or above the high watermark: 1. Below the log start offset: no error, nothing changes.
- A topic that is only compacted: 44. An internal topic: 17.
- The answer has the low watermark: the lowest log start offset of all live replicas. It waits until
  that has reached the offset; after ``timeout_ms``: 7, with the low watermark before the wait.
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName
from dohle.metadata.topic_names import is_internal
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from dohle.server.net.dispatch import Handler, serves
from dohle.server.partitions.commits import gathered
from dohle.server.partitions.lookup import NEEDS_LEADER, find_partition
from dohle.server.partitions.partitions import Partition

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer
    from dohle.server.net.dispatch import RequestContext

_NO_LOW_WATERMARK = -1


class _Deleted(NamedTuple):
    """A partition whose log start offset was moved, and the offset asked for."""

    partition: Partition
    offset: int
    low_watermark: int

    @property
    def is_done(self) -> bool:
        """Tell whether all replicas have followed."""
        return self.low_watermark >= self.offset


#: The result for each partition of each topic.
_Results = dict[TopicName, dict[int, _Deleted | KafkaError]]


def handle_delete_records(
    broker: BrokerServer, context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse | Coroutine[Any, Any, DeleteRecordsResponse]:
    """Move log start offsets; answer when all replicas have followed."""
    results: _Results = {
        topic.name: {
            asked.partition_index: _delete(broker, topic.name, asked) for asked in topic.partitions
        }
        for topic in request.topics
    }
    found = [one for by_index in results.values() for one in by_index.values()]
    waiting = [one for one in found if not isinstance(one, KafkaError) and not one.is_done]
    if waiting:
        return _answer_when_deleted(broker, results, waiting, request.timeout_ms)
    return _response(results, {})


async def _answer_when_deleted(
    broker: BrokerServer, results: _Results, waiting: list[_Deleted], timeout_ms: int
) -> DeleteRecordsResponse:
    wait = broker.commits.wait_for_deletion
    codes = await gathered(
        broker.loop, [partial(wait, one.partition, one.offset, timeout_ms) for one in waiting]
    )
    return _response(
        results, {one.partition: code for one, code in zip(waiting, codes, strict=True)}
    )


def _delete(
    broker: BrokerServer, topic: TopicName, asked: DeleteRecordsPartition
) -> _Deleted | KafkaError:
    try:
        if is_internal(topic) and broker.image.partition(topic, asked.partition_index) is not None:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"{topic} is internal: its records cannot be deleted",
            )
        partition = find_partition(broker, topic, asked.partition_index, NEEDS_LEADER)
        offset = partition.log.high_watermark if asked.offset == -1 else asked.offset
        partition.log.delete_records(asked.offset)
        return _Deleted(partition, offset, _low_watermark(partition))
    except KafkaError as error:
        return error


def _low_watermark(partition: Partition) -> int:
    partition.replication.log_start_offset = partition.log.log_start_offset
    return partition.replication.low_watermark


def _response(results: _Results, codes: dict[Partition, ErrorCode]) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=tuple(
            DeleteRecordsTopicResult(
                name=name,
                partitions=tuple(_result(index, one, codes) for index, one in found.items()),
            )
            for name, found in results.items()
        )
    )


def _result(
    index: int, outcome: _Deleted | KafkaError, codes: dict[Partition, ErrorCode]
) -> DeleteRecordsPartitionResult:
    if isinstance(outcome, KafkaError):
        return DeleteRecordsPartitionResult(
            partition_index=index, low_watermark=_NO_LOW_WATERMARK, error_code=outcome.code
        )
    code = codes.get(outcome.partition, ErrorCode.NONE)
    low_watermark = outcome.low_watermark
    if code is not ErrorCode.REQUEST_TIMED_OUT:
        low_watermark = _low_watermark(outcome.partition)
    return DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=low_watermark, error_code=code
    )


HANDLERS: tuple[tuple[ApiKey, Handler], ...] = (
    serves(ApiKey.DELETE_RECORDS, handle_delete_records),
)
