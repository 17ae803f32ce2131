"""Leaders that somebody asks for (ElectLeaders), or that the controller looks for on its own.

A preferred election moves the leadership to a partition's first replica if that one is in sync. An
unclean one gives a partition without a leader one that may lack records. Without partitions
ElectLeaders is for all of them, and only those are in the answer that needed it. From time to time
the controller holds preferred elections, and unclean ones where a topic allows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName
from dohle.core.steps import PlainSteps
from dohle.metadata.context import ControllerContext
from dohle.metadata.decision import (
    NO_ERROR,
    RECORDS_PER_REQUEST_MAX,
    ApiError,
    Decision,
    VersionedRecord,
    too_many_records,
)
from dohle.metadata.elections import partition_update
from dohle.metadata.error_responses import failed_elect_leaders
from dohle.metadata.image import ClusterImage, TopicImage
from dohle.metadata.partition import NO_LEADER, PartitionImage
from dohle.metadata.partition_change import Election
from dohle.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

#: How many leaders are elected at a time when nobody asked for them.
_ELECTIONS_MAX = 1_000


class ElectionType(IntEnum):
    """Which leader is wanted."""

    PREFERRED = 0
    UNCLEAN = 1


def elect_leaders(
    image: ClusterImage, request: ElectLeadersRequest, context: ControllerContext
) -> PlainSteps[Decision[ElectLeadersResponse]]:
    """Elect leaders as asked for."""
    if request.topic_partitions == ():
        return Decision((), ElectLeadersResponse())
    if request.election_type not in set(ElectionType):
        error = ApiError(
            ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}"
        )
        return Decision((), (yield from failed_elect_leaders(request, error)))
    wanted: Iterable[tuple[TopicName, Iterable[int]]]
    if request.topic_partitions is None:
        wanted = ((topic.name, topic.partitions) for topic in image.topics.values())
    else:
        wanted = ((topic.topic, topic.partitions) for topic in request.topic_partitions)
    records: list[VersionedRecord] = []
    results = []
    for name, indexes in wanted:
        answers = []
        for index in indexes:
            yield
            error = _elect(image, context, name, index, request.election_type, records)
            if error.code is ErrorCode.ELECTION_NOT_NEEDED and request.topic_partitions is None:
                continue
            answers.append(
                PartitionResult(
                    partition_id=index, error_code=error.code, error_message=error.message
                )
            )
        results.append(ReplicaElectionResult(topic=name, partition_result=tuple(answers)))
        yield
    if len(records) > RECORDS_PER_REQUEST_MAX:
        error = ApiError.of(too_many_records())
        return Decision((), (yield from failed_elect_leaders(request, error)))
    reply = ElectLeadersResponse(replica_election_results=tuple(results))
    return Decision(tuple(records), reply, is_atomic=False)


def _elect(
    image: ClusterImage,
    context: ControllerContext,
    name: TopicName,
    index: int,
    kind: int,
    records: list[VersionedRecord],
) -> ApiError:
    topic = image.topic(name)
    partition = None if topic is None else topic.partitions.get(index)
    if topic is None or partition is None:
        return ApiError.of(
            KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"No such topic as {name}" if topic is None else f"There is no {name}-{index}",
            )
        )
    preferred = kind == ElectionType.PREFERRED
    if partition.leader == partition.replicas[0] if preferred else partition.leader != NO_LEADER:
        return ApiError(
            ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
        )
    election = Election.PREFERRED if preferred else Election.UNCLEAN
    record = partition_update(image, context, topic, index, partition, election)
    if record is None:
        if preferred:
            return ApiError(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                f"Broker {partition.replicas[0]}, the first replica, is not in sync or not there.",
            )
        return ApiError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "No replica's broker is there.")
    records.append(record)
    return NO_ERROR


def balance_leaders(image: ClusterImage, context: ControllerContext) -> PlainSteps[Decision[bool]]:
    """Let first replicas lead where they can; tell whether there may be more of them."""
    return (
        yield from _elect_where(
            image,
            context,
            lambda _, partition: partition.leader != partition.replicas[0],
            Election.PREFERRED,
        )
    )


def elect_unclean_leaders(
    image: ClusterImage, context: ControllerContext
) -> PlainSteps[Decision[bool]]:
    """Give partitions without a leader one, if that is allowed; tell whether there may be more."""
    return (
        yield from _elect_where(
            image,
            context,
            lambda topic, partition: (
                partition.leader == NO_LEADER and context.allows_unclean_election(image, topic.name)
            ),
            Election.UNCLEAN,
        )
    )


def _elect_where(
    image: ClusterImage,
    context: ControllerContext,
    is_needed: Callable[[TopicImage, PartitionImage], bool],
    election: Election,
) -> PlainSteps[Decision[bool]]:
    records: list[VersionedRecord] = []
    for topic in image.topics.values():
        for index, partition in topic.partitions.items():
            if not is_needed(topic, partition):
                continue
            record = partition_update(image, context, topic, index, partition, election)
            if record is not None:
                records.append(record)
                if len(records) == _ELECTIONS_MAX:
                    return Decision(tuple(records), reply=True, is_atomic=False)
            yield
        yield
    return Decision(tuple(records), reply=False, is_atomic=False)
