"""CreateTopics: each topic of a request is created completely or refused, one by one.

Numbers of -1 stand for the broker's defaults. With a manual assignment both numbers must be -1. A
topic's records are TopicRecord, its ConfigRecords, then its PartitionRecords.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from dohle.core.config.describe import describe_topic
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName, Uuid
from dohle.core.steps import PlainSteps, mapped, mapped_steps
from dohle.core.uuid import random_uuid
from dohle.metadata.assignment import assigned_partition, placed_partitions
from dohle.metadata.configs import new_topic_config_records
from dohle.metadata.context import ControllerContext
from dohle.metadata.decision import (
    RECORDS_PER_REQUEST_MAX,
    ApiError,
    Decision,
    VersionedRecord,
    too_many_records,
)
from dohle.metadata.image import ClusterImage
from dohle.metadata.partition import PartitionImage
from dohle.metadata.topic_names import CLUSTER_METADATA_TOPIC, collision_key, topic_name_error
from dohle.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from dohle.protocol.messages.records.cluster_metadata import TopicRecord
from dohle.quotas.mutations import Spend, free

PARTITIONS_PER_REQUEST_MAX = 10_000

_DUPLICATE = ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
_METADATA_TOPIC = ApiError(
    ErrorCode.INVALID_REQUEST,
    f"Creation of internal topic {CLUSTER_METADATA_TOPIC} is prohibited.",
)


def create_topics(
    image: ClusterImage,
    request: CreateTopicsRequest,
    context: ControllerContext,
    spend: Spend = free,
) -> PlainSteps[Decision[CreateTopicsResponse]]:
    """Create those of the topics that can be created, and that the client's quota allows."""
    counts: Counter[TopicName] = Counter()
    for topic in request.topics:
        counts[topic.name] += 1
        yield
    refused = []
    for name, count in counts.items():
        if count > 1:
            refused.append(_refusal(name, _DUPLICATE))
        yield
    if counts[TopicName(CLUSTER_METADATA_TOPIC)] == 1:
        refused.append(_refusal(TopicName(CLUSTER_METADATA_TOPIC), _METADATA_TOPIC))
    wanted = []
    for topic in request.topics:
        if counts[topic.name] == 1 and topic.name != CLUSTER_METADATA_TOPIC:
            wanted.append(topic)
        yield
    creation = _Creation(image, context, spend)
    try:
        yield from _check_size(wanted, context)
        results = yield from mapped_steps(creation.result, wanted)
        if len(creation.records) > RECORDS_PER_REQUEST_MAX:
            raise too_many_records()
    except KafkaError as error:
        shown = ApiError.of(error)
        results = yield from mapped(lambda topic: _refusal(topic.name, shown), wanted)
        return Decision((), CreateTopicsResponse(topics=(*results, *refused)))
    records = () if request.validate_only else tuple(creation.records)
    return Decision(records, CreateTopicsResponse(topics=(*results, *refused)))


class _Creation:
    """The topics of one request, processed so far."""

    def __init__(self, image: ClusterImage, context: ControllerContext, spend: Spend) -> None:
        assert image.metadata_version is not None, "the cluster has been bootstrapped"
        self.records: list[VersionedRecord] = []
        self._image = image
        self._level = image.metadata_version
        self._context = context
        self._spend = spend
        self._colliding_names: dict[str, TopicName] = {}
        self._described: dict[frozenset[tuple[str, str]], tuple[CreatableTopicConfigs, ...]] = {}

    def result(self, topic: CreatableTopic) -> PlainSteps[CreatableTopicResult]:
        """Create a topic, or say why not."""
        try:
            self._check_name(topic.name)
            configs = yield from _configs_of(topic)
            config_records = yield from new_topic_config_records(
                self._image, topic.name, configs, self._context
            )
            if topic.assignments:
                partitions = yield from self._assigned(topic)
            else:
                partitions = yield from self._placed(topic)
            self._spend(len(partitions))
        except KafkaError as error:
            return _refusal(topic.name, ApiError.of(error))
        topic_id = self._new_topic_id()
        self.records.append(VersionedRecord(TopicRecord(name=topic.name, topic_id=topic_id), 0))
        self.records += config_records
        for index, partition in enumerate(partitions):
            self.records.append(partition.to_record(topic_id, index, self._level))
            yield
        key = collision_key(topic.name)
        if key is not None:
            self._colliding_names[key] = topic.name
        return self._success(topic.name, topic_id, configs, partitions)

    def _new_topic_id(self) -> Uuid:
        while True:
            topic_id = random_uuid(self._context.rng)
            if self._image.topic_by_id(topic_id) is None:
                return topic_id

    def _check_name(self, name: TopicName) -> None:
        if self._image.topic(name) is not None:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        reason = topic_name_error(name)
        if reason is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
        key = collision_key(name)
        if key is None:
            return
        others = self._image.colliding_names.get(key, ())
        other = others[0] if others else self._colliding_names.get(key)
        if other is not None:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topic: {other}",
            )

    def _assigned(self, topic: CreatableTopic) -> PlainSteps[list[PartitionImage]]:
        for what, number in (
            ("replication factor", topic.replication_factor),
            ("numPartitions", topic.num_partitions),
        ):
            if number != -1:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"A manual partition assignment was specified, but {what} was not set to -1.",
                )
        partitions: dict[int, PartitionImage] = {}
        replication_factor = None
        for assignment in topic.assignments:
            yield
            index = assignment.partition_index
            if index in partitions:
                raise KafkaError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"Found multiple manual partition assignments for partition {index}",
                )
            replicas = assignment.broker_ids
            partitions[index] = assigned_partition(self._image, index, replicas, replication_factor)
            replication_factor = len(replicas)
        if partitions.keys() != set(range(len(partitions))):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "partitions should be a consecutive 0-based integer sequence",
            )
        return [partitions[index] for index in range(len(partitions))]

    def _placed(self, topic: CreatableTopic) -> PlainSteps[list[PartitionImage]]:
        count, replication_factor = topic.num_partitions, topic.replication_factor
        if replication_factor == 0 or replication_factor < -1:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            )
        if count == 0 or count < -1:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                "Number of partitions was set to an invalid non-positive value.",
            )
        if replication_factor == -1:
            replication_factor = self._context.config.get_int("default.replication.factor")
        if count == -1:
            count = self._context.config.get_int("num.partitions")
        return (yield from placed_partitions(self._image, count, replication_factor, self._context))

    def _success(
        self,
        name: TopicName,
        topic_id: Uuid,
        configs: Mapping[str, str],
        partitions: list[PartitionImage],
    ) -> CreatableTopicResult:
        return CreatableTopicResult(
            name=name,
            topic_id=topic_id,
            error_message=None,
            num_partitions=len(partitions),
            replication_factor=len(partitions[0].replicas),
            configs=self._effective_configs(configs),
        )

    def _effective_configs(self, configs: Mapping[str, str]) -> tuple[CreatableTopicConfigs, ...]:
        # The topics of a request mostly have the same configs, or none.
        key = frozenset(configs.items())
        if key not in self._described:
            described = describe_topic(
                configs,
                self._context.config,
                self._image.broker_config(self._context.node_id),
                self._image.cluster_config(),
            )
            self._described[key] = tuple(
                CreatableTopicConfigs(
                    name=config.name,
                    value=None if config.is_sensitive else config.value,
                    read_only=config.read_only,
                    config_source=config.source,
                    is_sensitive=config.is_sensitive,
                )
                for config in sorted(described, key=lambda config: config.name)
            )
        return self._described[key]


def _configs_of(topic: CreatableTopic) -> PlainSteps[dict[str, str]]:
    configs = {}
    nulls = []
    for config in topic.configs:
        yield
        if config.value is None:
            nulls.append(config.name)
        else:
            configs[config.name] = config.value
    if nulls:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Null value not supported for topic configs: {','.join(nulls)}",
        )
    return configs


def _check_size(topics: list[CreatableTopic], context: ControllerContext) -> PlainSteps[None]:
    default = context.config.get_int("num.partitions")
    total = 0
    for topic in topics:
        yield
        if topic.assignments:
            total += len(topic.assignments)
        else:
            total += default if topic.num_partitions == -1 else max(topic.num_partitions, 0)
    if total > PARTITIONS_PER_REQUEST_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
        )


def _refusal(name: TopicName, error: ApiError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.code, error_message=error.message)
