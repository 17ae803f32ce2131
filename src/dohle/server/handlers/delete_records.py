"""DeleteRecords (21), v0-2.

- Everything below an offset goes from the readers' sight at once, by moving the log start; the
  segments that lie below it go with the next retention check. -1 stands for the high watermark.
- Below 0 or above the high watermark: 1. Below the log start: no error, nothing changes.
- A topic that is only compacted: 44. An internal topic: 17.
- The answer tells the low watermark, the lowest log start of all replicas. There is one replica,
  so nothing is waited for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from dohle.server.partitions.lookup import led_partition

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer
    from dohle.server.net.dispatch import RequestContext

_NO_LOW_WATERMARK = -1


def handle_delete_records(
    broker: BrokerServer, context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    """Move log starts."""
    return DeleteRecordsResponse(
        topics=tuple(
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=tuple(_delete(broker, topic.name, asked) for asked in topic.partitions),
            )
            for topic in request.topics
        )
    )


def _delete(
    broker: BrokerServer, topic: TopicName, asked: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    index = asked.partition_index
    try:
        if is_internal(topic) and broker.image.partition(topic, index) is not None:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is internal: its records must stay"
            )
        low_watermark = led_partition(broker, topic, index).log.delete_records(asked.offset)
    except KafkaError as error:
        return DeleteRecordsPartitionResult(
            partition_index=index, low_watermark=_NO_LOW_WATERMARK, error_code=error.code
        )
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark)


HANDLERS: tuple[tuple[ApiKey, Handler], ...] = (
    serves(ApiKey.DELETE_RECORDS, handle_delete_records),
)
