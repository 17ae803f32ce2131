"""DeleteRecords (21), v0-2.

- The log start offset moves to the given offset, so that readers no longer see the records below
  it; segments entirely below it are deleted by the next retention check. -1 is the high watermark.
- Below 0 or above the high watermark: 1. Below the log start offset: no error, nothing changes.
- A topic that is only compacted: 44. An internal topic: 17.
- The answer has the low watermark: the lowest log start offset of all live replicas. It waits until
  that has reached the offset; after ``timeout_ms``: 7, with the low watermark before the wait. If
  the leader changes meanwhile: 6, without any.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName
from dohle.core.steps import PlainSteps, mapped, mapped_steps
from dohle.metadata.topic_names import is_internal
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from dohle.server.net.handler import Handler, serves
from dohle.server.net.slices import Slices
from dohle.server.partitions.commits import gathered
from dohle.server.partitions.lookup import NEEDS_LEADER, find_partition
from dohle.server.partitions.partitions import Partition

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer
    from dohle.server.net.handler import RequestContext

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
_Results = dict[TopicName, dict[int, _Deleted | ErrorCode]]


async def handle_delete_records(
    broker: BrokerServer, context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    """Move log starts; answer when all replicas have followed."""
    results: _Results = {}
    waiting: list[_Deleted] = []
    slices = Slices(broker.turns)
    for topic in request.topics:
        found = results[topic.name] = {}
        for asked in topic.partitions:
            await slices.give_way()
            found[asked.partition_index] = _delete(broker, topic.name, asked)
        await slices.give_way()
    for found in results.values():
        for one in found.values():
            await slices.give_way()
            if isinstance(one, _Deleted) and not one.is_done:
                waiting.append(one)
    codes = await _codes_when_deleted(broker, waiting, request.timeout_ms) if waiting else {}
    return await slices.run(_response(results, codes))


async def _codes_when_deleted(
    broker: BrokerServer, waiting: list[_Deleted], timeout_ms: int
) -> dict[Partition, ErrorCode]:
    wait = broker.commits.wait_for_deletion
    codes = await gathered(
        broker.loop, [partial(wait, one.partition, one.offset, timeout_ms) for one in waiting]
    )
    return {one.partition: code for one, code in zip(waiting, codes, strict=True)}


def _delete(
    broker: BrokerServer, topic: TopicName, asked: DeleteRecordsPartition
) -> _Deleted | ErrorCode:
    try:
        if is_internal(topic) and broker.image.partition(topic, asked.partition_index) is not None:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"{topic} is internal: its records cannot be deleted",
            )
        partition = find_partition(broker, topic, asked.partition_index, NEEDS_LEADER)
        offset = partition.log.high_watermark if asked.offset == -1 else asked.offset
        partition.log.delete_records(asked.offset)
        # Its followers are told with their next fetch.
        broker.recheck(partition.key)
        return _Deleted(partition, offset, _low_watermark(partition))
    except KafkaError as error:
        return error.code


def _low_watermark(partition: Partition) -> int:
    partition.replication.log_start_offset = partition.log.log_start_offset
    return partition.replication.low_watermark


def _response(
    results: _Results, codes: dict[Partition, ErrorCode]
) -> PlainSteps[DeleteRecordsResponse]:
    def of_topic(
        result: tuple[TopicName, dict[int, _Deleted | ErrorCode]],
    ) -> PlainSteps[DeleteRecordsTopicResult]:
        name, found = result
        partitions = yield from mapped(lambda item: _result(item[0], item[1], codes), found.items())
        return DeleteRecordsTopicResult(name=name, partitions=partitions)

    return DeleteRecordsResponse(topics=(yield from mapped_steps(of_topic, results.items())))


def _result(
    index: int, outcome: _Deleted | ErrorCode, codes: dict[Partition, ErrorCode]
) -> DeleteRecordsPartitionResult:
    if isinstance(outcome, ErrorCode):
        return DeleteRecordsPartitionResult(
            partition_index=index, low_watermark=_NO_LOW_WATERMARK, error_code=outcome
        )
    code = codes.get(outcome.partition, ErrorCode.NONE)
    low_watermark = outcome.low_watermark
    if code is ErrorCode.NONE:
        low_watermark = _low_watermark(outcome.partition)
    elif code is not ErrorCode.REQUEST_TIMED_OUT:
        low_watermark = _NO_LOW_WATERMARK
    return DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=low_watermark, error_code=code
    )


HANDLERS: tuple[tuple[ApiKey, Handler], ...] = (
    serves(ApiKey.DELETE_RECORDS, handle_delete_records),
)
