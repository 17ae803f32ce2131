"""DeleteTopics and CreatePartitions: topics are deleted, by name or by id, and extended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName, Uuid
from dohle.core.steps import PlainSteps, mapped
from dohle.core.uuid import ZERO_UUID
from dohle.metadata.assignment import assigned_partition, placed_partitions
from dohle.metadata.context import ControllerContext
from dohle.metadata.decision import (
    NO_ERROR,
    RECORDS_PER_REQUEST_MAX,
    ApiError,
    Decision,
    VersionedRecord,
    too_many_records,
)
from dohle.metadata.image import ClusterImage, TopicImage
from dohle.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from dohle.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from dohle.protocol.messages.records.cluster_metadata import RemoveTopicRecord
from dohle.quotas.mutations import Spend, free

#: The first version that can report that deletion is disabled.
_TELLS_DISABLED = 3

_DUPLICATE_NAME = ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
_NO_SUCH_TOPIC = ApiError(
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
)


def delete_topics(
    image: ClusterImage,
    request: DeleteTopicsRequest,
    context: ControllerContext,
    spend: Spend = free,
    *,
    version: int,
) -> PlainSteps[Decision[DeleteTopicsResponse]]:
    """Delete those of the topics that can be deleted, and that the client's quota allows."""
    named = yield from mapped(lambda name: DeleteTopicState(name=name), request.topic_names)
    wanted = [*named, *request.topics]
    if not context.config.get_bool("delete.topic.enable"):
        if version < _TELLS_DISABLED:
            refusal = ApiError(
                ErrorCode.INVALID_REQUEST, "This version does not support topic deletion."
            )
        else:
            refusal = ApiError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
        return (yield from _refused_deletion(wanted, refusal))
    deletion = _Deletion(image, spend)
    yield from deletion.resolve(wanted)
    if len(deletion.topic_ids) > RECORDS_PER_REQUEST_MAX:
        return (yield from _refused_deletion(wanted, ApiError.of(too_many_records())))
    records = yield from mapped(
        lambda topic_id: VersionedRecord(RemoveTopicRecord(topic_id=topic_id), 0),
        deletion.topic_ids,
    )
    return Decision(records, DeleteTopicsResponse(responses=tuple(deletion.results)))


def _refused_deletion(
    wanted: Sequence[DeleteTopicState], error: ApiError
) -> PlainSteps[Decision[DeleteTopicsResponse]]:
    responses = yield from mapped(lambda topic: _deleted(topic.name, topic.topic_id, error), wanted)
    return Decision((), DeleteTopicsResponse(responses=responses))


class _Deletion:
    """Resolves the topics of a request: each must be named in one way, once."""

    def __init__(self, image: ClusterImage, spend: Spend) -> None:
        self._spend = spend
        self.topic_ids: dict[Uuid, None] = {}
        self.results: list[DeletableTopicResult] = []
        self._image = image
        #: How often each is named, in the order of the request.
        self._names: Counter[TopicName | None] = Counter()
        self._ids: Counter[Uuid] = Counter()

    def resolve(self, wanted: Sequence[DeleteTopicState]) -> PlainSteps[None]:
        """Find out what to delete, and what to answer."""
        for topic in wanted:
            yield
            if topic.topic_id == ZERO_UUID:
                self._names[topic.name] += 1
            if topic.name is None:
                self._ids[topic.topic_id] += 1
            if topic.name is not None and topic.topic_id != ZERO_UUID:
                self._refuse(topic, "You may not specify both topic name and topic id.")
            elif topic.name is None and topic.topic_id == ZERO_UUID:
                self._refuse(topic, "Neither topic name nor id were specified.")
        for name, count in self._names.items():
            yield
            if name is not None and count > 1:
                self._refuse(DeleteTopicState(name=name), "Duplicate topic name.")
            elif name is not None:
                self._by_name(name)
        for topic_id, count in self._ids.items():
            yield
            if topic_id != ZERO_UUID and count > 1:
                self._refuse(DeleteTopicState(topic_id=topic_id), "Duplicate topic id.")
            elif topic_id != ZERO_UUID:
                self._by_id(topic_id)

    def _by_id(self, topic_id: Uuid) -> None:
        topic = self._image.topic_by_id(topic_id)
        if topic is None:
            error = ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
            self.results.append(_deleted(None, topic_id, error))
        elif self._names.get(topic.name) != 1:
            self._delete(topic)
        # Otherwise the answer for the name, which covers both, says that the topic was named twice.

    def _by_name(self, name: TopicName) -> None:
        topic = self._image.topic(name)
        if topic is None:
            self.results.append(_deleted(name, ZERO_UUID, _NO_SUCH_TOPIC))
        elif topic.id in self._ids:
            error = ApiError(
                ErrorCode.INVALID_REQUEST,
                "The provided topic name maps to an ID that was already supplied.",
            )
            self.results.append(_deleted(name, topic.id, error))
        else:
            self._delete(topic)

    def _delete(self, topic: TopicImage) -> None:
        error = NO_ERROR
        try:
            self._spend(len(topic.partitions))
            self.topic_ids[topic.id] = None
        except KafkaError as refusal:
            error = ApiError.of(refusal)
        self.results.append(_deleted(topic.name, topic.id, error))

    def _refuse(self, topic: DeleteTopicState, message: str) -> None:
        error = ApiError(ErrorCode.INVALID_REQUEST, message)
        self.results.append(_deleted(topic.name, topic.topic_id, error))


def create_partitions(
    image: ClusterImage,
    request: CreatePartitionsRequest,
    context: ControllerContext,
    spend: Spend = free,
) -> PlainSteps[Decision[CreatePartitionsResponse]]:
    """Add partitions to those of the topics that allow it, as the client's quota does."""
    records: list[VersionedRecord] = []
    results = []
    wanted: dict[TopicName, CreatePartitionsTopic] = {}
    duplicates: set[TopicName] = set()
    for topic in request.topics:
        if topic.name in wanted:
            duplicates.add(topic.name)
        wanted[topic.name] = topic
        yield
    for topic in wanted.values():
        yield
        error = NO_ERROR
        if topic.name in duplicates:
            error = _DUPLICATE_NAME
        else:
            try:
                added = yield from _added_partitions(image, topic, context)
                if len(records) + len(added) > RECORDS_PER_REQUEST_MAX:
                    raise too_many_records()
                spend(len(added))
                records += added
            except KafkaError as refusal:
                error = ApiError.of(refusal)
        results.append(
            CreatePartitionsTopicResult(
                name=topic.name, error_code=error.code, error_message=error.message
            )
        )
    reply = CreatePartitionsResponse(results=tuple(results))
    return Decision(() if request.validate_only else tuple(records), reply)


def _added_partitions(
    image: ClusterImage, wanted: CreatePartitionsTopic, context: ControllerContext
) -> PlainSteps[list[VersionedRecord]]:
    level = image.metadata_version
    assert level is not None, "a topic can be there only after the bootstrap"
    topic = image.topic(wanted.name)
    if topic is None:
        raise KafkaError(_NO_SUCH_TOPIC.code, "")
    count = len(topic.partitions)
    if wanted.count == count:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {count} partition(s).")
    if wanted.count < count:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {count} partition(s); {wanted.count} would not "
            "be an increase.",
        )
    additional = wanted.count - count
    if additional > RECORDS_PER_REQUEST_MAX:
        raise too_many_records()
    replication_factor = len(topic.partitions[0].replicas)
    if wanted.assignments is None:
        partitions = yield from placed_partitions(image, additional, replication_factor, context)
    else:
        if len(wanted.assignments) != additional:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {additional} additional partition(s), but only "
                f"{len(wanted.assignments)} assignment(s) were specified.",
            )
        partitions = []
        for index, assignment in enumerate(wanted.assignments, start=count):
            partitions.append(
                assigned_partition(image, index, assignment.broker_ids, replication_factor)
            )
            yield
    records = []
    for index, partition in enumerate(partitions, start=count):
        records.append(partition.to_record(topic.id, index, level))
        yield
    return records


def _deleted(name: TopicName | None, topic_id: Uuid, error: ApiError) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=name, topic_id=topic_id, error_code=error.code, error_message=error.message
    )
