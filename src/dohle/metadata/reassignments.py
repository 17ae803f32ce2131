"""AlterPartitionReassignments and ListPartitionReassignments: other brokers for partitions.

A reassignment first adds the new replicas, and when all of them are in sync it removes the old
ones. One that only removes replicas, or changes their order, is complete at once. None in place of
the replicas ends a reassignment, and takes back what it has added.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId
from dohle.core.steps import PlainSteps
from dohle.metadata.assignment import check_assignment, new_directory
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
from dohle.metadata.error_responses import failed_alter_partition_reassignments
from dohle.metadata.image import ClusterImage, TopicImage
from dohle.metadata.partition import PartitionImage
from dohle.metadata.partition_change import Election, with_replicas
from dohle.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)
from dohle.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def alter_partition_reassignments(
    image: ClusterImage, request: AlterPartitionReassignmentsRequest, context: ControllerContext
) -> PlainSteps[Decision[AlterPartitionReassignmentsResponse]]:
    """Begin or end reassignments, each partition by itself."""
    if not request.topics:
        return Decision((), AlterPartitionReassignmentsResponse())
    records: list[VersionedRecord] = []

    def altered(topic: ReassignableTopic, wanted: ReassignablePartition) -> ApiError:
        try:
            record = _altered(image, context, topic, wanted, request)
        except KafkaError as error:
            return ApiError.of(error)
        if record is not None:
            records.append(record)
        return NO_ERROR

    responses = []
    for topic in request.topics:
        partitions = []
        for each in topic.partitions:
            yield
            error = altered(topic, each)
            partitions.append(
                ReassignablePartitionResponse(
                    partition_index=each.partition_index,
                    error_code=error.code,
                    error_message=error.message,
                )
            )
        responses.append(ReassignableTopicResponse(name=topic.name, partitions=tuple(partitions)))
        yield
    if len(records) > RECORDS_PER_REQUEST_MAX:
        error = ApiError.of(too_many_records())
        return Decision((), (yield from failed_alter_partition_reassignments(request, error)))
    reply = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=tuple(responses),
    )
    return Decision(tuple(records), reply)


def list_partition_reassignments(
    image: ClusterImage, request: ListPartitionReassignmentsRequest
) -> PlainSteps[ListPartitionReassignmentsResponse]:
    """Return the reassignments that have begun and are not complete."""
    asked: Iterable[tuple[TopicImage | None, Iterable[int]]]
    if request.topics is None:
        asked = ((topic, topic.partitions) for topic in image.topics.values())
    else:
        asked = ((image.topic(one.name), one.partition_indexes) for one in request.topics)
    found = []
    for topic, indexes in asked:
        yield
        if topic is not None:
            partitions = yield from _ongoing(topic, indexes)
            if partitions:
                found.append(OngoingTopicReassignment(name=topic.name, partitions=partitions))
    return ListPartitionReassignmentsResponse(error_message=None, topics=tuple(found))


def _ongoing(
    topic: TopicImage, indexes: Iterable[int]
) -> PlainSteps[tuple[OngoingPartitionReassignment, ...]]:
    found = []
    for index in indexes:
        yield
        partition = topic.partitions.get(index)
        if partition is not None and _is_ongoing(partition):
            found.append(
                OngoingPartitionReassignment(
                    partition_index=index,
                    replicas=partition.replicas,
                    adding_replicas=partition.adding_replicas,
                    removing_replicas=partition.removing_replicas,
                )
            )
    return tuple(found)


def _altered(
    image: ClusterImage,
    context: ControllerContext,
    topic: ReassignableTopic,
    wanted: ReassignablePartition,
    request: AlterPartitionReassignmentsRequest,
) -> VersionedRecord | None:
    found = image.topic(topic.name)
    if found is None:
        raise _unknown(f"a topic named {topic.name}")
    index = wanted.partition_index
    partition = found.partitions.get(index)
    if partition is None:
        raise _unknown(f"partition {topic.name}:{index}")
    if wanted.replicas is None:
        target = _reverted(partition)
        if not target.isr:
            if not context.allows_unclean_election(image, found.name):
                raise KafkaError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"Unable to revert partition assignment for {topic.name}:{index} because it "
                    "would require an unclean leader election.",
                )
            target = replace(target, isr=target.replicas[:1])
        return partition_update(image, context, found, index, target)
    check_assignment(image, wanted.replicas)
    if not request.allow_replication_factor_change:
        _check_same_number(partition, wanted.replicas)
    target = _target(image, partition, wanted.replicas)
    return partition_update(image, context, found, index, target, Election.ONLINE)


def _target(
    image: ClusterImage, partition: PartitionImage, wanted: tuple[BrokerId, ...]
) -> PartitionImage:
    removing = tuple(sorted(set(partition.replicas) - set(wanted)))
    adding = tuple(sorted(set(wanted) - set(partition.replicas)))
    target = with_replicas(partition, (*wanted, *removing), partial(new_directory, image))
    # As in Kafka, what a reassignment before this one adds or removes stays, if nothing is new.
    return replace(
        target,
        adding_replicas=adding or partition.adding_replicas,
        removing_replicas=removing or partition.removing_replicas,
    )


def _reverted(partition: PartitionImage) -> PartitionImage:
    """Return a partition without what its reassignment has added; nobody may be left in sync."""
    if not _is_ongoing(partition):
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "")
    adding = partition.adding_replicas
    replicas = tuple(replica for replica in partition.replicas if replica not in adding)
    return replace(
        partition,
        replicas=replicas,
        directories=tuple(map(partition.directory_of, replicas)),
        isr=tuple(replica for replica in partition.isr if replica not in adding),
        adding_replicas=(),
        removing_replicas=(),
    )


def _check_same_number(partition: PartitionImage, wanted: tuple[BrokerId, ...]) -> None:
    after = {*partition.replicas, *partition.adding_replicas} - set(partition.removing_replicas)
    if len(after) != len(wanted):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {len(after)} to {len(wanted)}",
        )


def _is_ongoing(partition: PartitionImage) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


def _unknown(what: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find {what}.")
