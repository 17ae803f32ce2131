"""Guards of what reads and writes partitions (section 6 of Kafka's rules of rights).

- Produce: WRITE on each topic, else 29 for its partitions. Transactional records need WRITE on the
  transactional id, else the whole request gets 53, also if it names none (CVE-2018-17196). With
  acks=0 a refusal closes the connection.
- ListOffsets: DESCRIBE; OffsetForLeaderEpoch: CLUSTER_ACTION, or DESCRIBE; DescribeProducers: READ;
  DeleteRecords: DELETE. Refused: 29 for the partitions of the topic.

Fetches are in sessions: what they are about is known to their handler alone, which asks itself.
"""

from __future__ import annotations

from typing import Any

from dohle.core.acls import AclOperation, AclResourceType
from dohle.core.errors import ErrorCode
from dohle.core.steps import PlainSteps
from dohle.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from dohle.protocol.messages.describe_producers import (
    DescribeProducersResponse,
    PartitionResponse,
    TopicResponse,
)
from dohle.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from dohle.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from dohle.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from dohle.protocol.schema import Response
from dohle.server.guards.guard import (
    GuardedRequest,
    Narrowed,
    error_for_every_partition,
    guarded_topics,
    joined,
    name_of_topic,
    split,
    topic_of_id,
)
from dohle.server.handlers.produce import has_transactional
from dohle.server.net.outcome import CloseConnection
from dohle.server.partitions.appends import BATCHES, TOPIC_IDS

_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_NO_OFFSET = -1
_TXN_ID = AclResourceType.TRANSACTIONAL_ID


def guard_produce(asked: GuardedRequest) -> PlainSteps[Response | Narrowed | None]:
    """Let records pass to topics that may be written."""
    request: ProduceRequest = asked.request
    rights, version = asked.rights, asked.version
    if version >= BATCHES and has_transactional(request):
        name = request.transactional_id
        if name is None or not rights.may(AclOperation.WRITE, _TXN_ID, name):
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return (yield from _refused_produce(request, request.topic_data, code))
    if version >= TOPIC_IDS:
        name_of: Any = topic_of_id(asked.image)
    else:
        name_of = name_of_topic
    allowed, refused = yield from split(rights, AclOperation.WRITE, request.topic_data, name_of)
    if not refused:
        return None
    left = request.replace(topic_data=tuple(allowed))
    if request.acks == 0 and allowed:
        return Narrowed(left, _close)
    answer = yield from _refused_produce(request, refused, _DENIED)
    return Narrowed(left, joined("responses", answer.responses)) if allowed else answer


def _close(_: object) -> PlainSteps[Response]:
    yield
    raise CloseConnection(f"produce with acks=0 failed: {_DENIED.name}")


def _refused_produce(
    request: ProduceRequest, topics: Any, code: ErrorCode
) -> PlainSteps[ProduceResponse]:
    if request.acks == 0:
        # All that such a client can notice.
        raise CloseConnection(f"produce with acks=0 failed: {code.name}")

    answers = yield from error_for_every_partition(
        topics,
        lambda data: PartitionProduceResponse(
            index=data.index, error_code=code, base_offset=_NO_OFFSET
        ),
        lambda topic, partitions: TopicProduceResponse(
            name=topic.name, topic_id=topic.topic_id, partition_responses=partitions
        ),
        field="partition_data",
    )
    return ProduceResponse(responses=answers)


def guard_list_offsets(asked: GuardedRequest) -> PlainSteps[Response | Narrowed | None]:
    """Let pass what may be described."""

    def refuse(topics: list[Any]) -> PlainSteps[tuple[ListOffsetsTopicResponse, ...]]:
        return error_for_every_partition(
            topics,
            lambda each: ListOffsetsPartitionResponse(
                partition_index=each.partition_index, error_code=_DENIED
            ),
            lambda topic, partitions: ListOffsetsTopicResponse(
                name=topic.name, partitions=partitions
            ),
        )

    return guarded_topics(asked, AclOperation.DESCRIBE, refuse, ListOffsetsResponse)


def guard_offset_for_leader_epoch(asked: GuardedRequest) -> PlainSteps[Response | Narrowed | None]:
    """Let brokers pass, and consumers to what they may describe."""
    if asked.rights.may_cluster(AclOperation.CLUSTER_ACTION, quiet=True):
        return None

    def refuse(topics: list[Any]) -> PlainSteps[tuple[OffsetForLeaderTopicResult, ...]]:
        return error_for_every_partition(
            topics,
            lambda each: EpochEndOffset(partition=each.partition, error_code=_DENIED),
            lambda topic, partitions: OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=partitions
            ),
        )

    return (
        yield from guarded_topics(
            asked,
            AclOperation.DESCRIBE,
            refuse,
            OffsetForLeaderEpochResponse,
            name_of=lambda topic: topic.topic,
        )
    )


def guard_describe_producers(asked: GuardedRequest) -> PlainSteps[Response | Narrowed | None]:
    """Let pass what may be read."""

    def refuse(topics: list[Any]) -> PlainSteps[tuple[TopicResponse, ...]]:
        return error_for_every_partition(
            topics,
            lambda index: PartitionResponse(
                partition_index=index,
                error_code=_DENIED,
                error_message="Topic authorization failed.",
            ),
            lambda topic, partitions: TopicResponse(name=topic.name, partitions=partitions),
            field="partition_indexes",
        )

    return guarded_topics(asked, AclOperation.READ, refuse, DescribeProducersResponse)


def guard_delete_records(asked: GuardedRequest) -> PlainSteps[Response | Narrowed | None]:
    """Let pass what may be deleted."""

    def refuse(topics: list[Any]) -> PlainSteps[tuple[DeleteRecordsTopicResult, ...]]:
        return error_for_every_partition(
            topics,
            lambda each: DeleteRecordsPartitionResult(
                partition_index=each.partition_index, low_watermark=_NO_OFFSET, error_code=_DENIED
            ),
            lambda topic, partitions: DeleteRecordsTopicResult(
                name=topic.name, partitions=partitions
            ),
        )

    return guarded_topics(asked, AclOperation.DELETE, refuse, DeleteRecordsResponse)
