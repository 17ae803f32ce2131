"""DeleteTopics and CreatePartitions: topics are deleted, by name or by id, and extended."""

from __future__ import annotations

from collections import Counter

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName, Uuid
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
from dohle.metadata.image import ClusterImage
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
    *,
    version: int,
) -> Decision[DeleteTopicsResponse]:
    """Delete those of the topics that can be deleted."""
    wanted = [*(DeleteTopicState(name=name) for name in request.topic_names), *request.topics]
    if not context.config.get_bool("delete.topic.enable"):
        if version < _TELLS_DISABLED:
            refusal = ApiError(
                ErrorCode.INVALID_REQUEST, "This version does not support topic deletion."
            )
        else:
            refusal = ApiError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
        results = [_deleted(topic.name, topic.topic_id, refusal) for topic in wanted]
        return Decision((), DeleteTopicsResponse(responses=tuple(results)))
    deletion = _Deletion(image, wanted)
    if len(deletion.topic_ids) > RECORDS_PER_REQUEST_MAX:
        refusal = ApiError.of(too_many_records())
        results = [_deleted(topic.name, topic.topic_id, refusal) for topic in wanted]
        return Decision((), DeleteTopicsResponse(responses=tuple(results)))
    return Decision(
        tuple(
            VersionedRecord(RemoveTopicRecord(topic_id=topic_id), 0)
            for topic_id in deletion.topic_ids
        ),
        DeleteTopicsResponse(responses=tuple(deletion.results)),
    )


class _Deletion:
    """Resolves the topics of a request: each must be named in one way, once."""

    def __init__(self, image: ClusterImage, wanted: list[DeleteTopicState]) -> None:
        self.topic_ids: dict[Uuid, None] = {}
        self.results: list[DeletableTopicResult] = []
        self._image = image
        names = Counter(topic.name for topic in wanted if topic.topic_id == ZERO_UUID)
        ids = Counter(topic.topic_id for topic in wanted if topic.name is None)
        self._ids = ids.keys()
        self._names = {name for name, count in names.items() if count == 1}
        for topic in wanted:
            if topic.name is not None and topic.topic_id != ZERO_UUID:
                self._refuse(topic, "You may not specify both topic name and topic id.")
            elif topic.name is None and topic.topic_id == ZERO_UUID:
                self._refuse(topic, "Neither topic name nor id were specified.")
        for name, count in names.items():
            if name is not None and count > 1:
                self._refuse(DeleteTopicState(name=name), "Duplicate topic name.")
            elif name is not None:
                self._by_name(name)
        for topic_id, count in ids.items():
            if topic_id != ZERO_UUID and count > 1:
                self._refuse(DeleteTopicState(topic_id=topic_id), "Duplicate topic id.")
            elif topic_id != ZERO_UUID:
                self._by_id(topic_id)

    def _by_id(self, topic_id: Uuid) -> None:
        topic = self._image.topic_by_id(topic_id)
        if topic is None:
            error = ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
            self.results.append(_deleted(None, topic_id, error))
        elif topic.name not in self._names:
            self.topic_ids[topic_id] = None
            self.results.append(_deleted(topic.name, topic_id, NO_ERROR))
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
            self.topic_ids[topic.id] = None
            self.results.append(_deleted(name, topic.id, NO_ERROR))

    def _refuse(self, topic: DeleteTopicState, message: str) -> None:
        error = ApiError(ErrorCode.INVALID_REQUEST, message)
        self.results.append(_deleted(topic.name, topic.topic_id, error))


def create_partitions(
    image: ClusterImage, request: CreatePartitionsRequest, context: ControllerContext
) -> Decision[CreatePartitionsResponse]:
    """Add partitions to those of the topics that allow it."""
    records: list[VersionedRecord] = []
    results = []
    counts = Counter(topic.name for topic in request.topics)
    for topic in {topic.name: topic for topic in request.topics}.values():
        error = NO_ERROR
        if counts[topic.name] > 1:
            error = _DUPLICATE_NAME
        else:
            try:
                added = _added_partitions(image, topic, context)
                if len(records) + len(added) > RECORDS_PER_REQUEST_MAX:
                    raise too_many_records()
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
) -> list[VersionedRecord]:
    assert image.metadata_version is not None, "a topic can be there only after the bootstrap"
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
        partitions = placed_partitions(image, additional, replication_factor, context)
    else:
        if len(wanted.assignments) != additional:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {additional} additional partition(s), but only "
                f"{len(wanted.assignments)} assignment(s) were specified.",
            )
        partitions = [
            assigned_partition(image, index, assignment.broker_ids, replication_factor)
            for index, assignment in enumerate(wanted.assignments, start=count)
        ]
    return [
        partition.to_record(topic.id, index, image.metadata_version)
        for index, partition in enumerate(partitions, start=count)
    ]


def _deleted(name: TopicName | None, topic_id: Uuid, error: ApiError) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=name, topic_id=topic_id, error_code=error.code, error_message=error.message
    )
