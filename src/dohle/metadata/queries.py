"""What a broker answers from its image: Metadata, DescribeCluster, DescribeTopicPartitions.

Addresses are those of the listener on which the request arrived. Topics are not created here: the
answer says which ones are missing, and the server decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, TopicName, Uuid
from dohle.core.steps import PlainSteps, mapped, mapped_steps, sorted_in_steps
from dohle.core.uuid import ZERO_UUID
from dohle.metadata.image import BrokerRegistration, ClusterImage, TopicImage
from dohle.metadata.partition import NO_LEADER, PartitionImage
from dohle.metadata.topic_names import is_internal, topic_name_error
from dohle.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from dohle.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from dohle.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

#: The first versions of Metadata in which a null list instead of an empty one asks for all topics,
#: which distinguish a leader without the listener from no leader, and which accept topic ids.
_NULL_IS_ALL = 1
_TELLS_MISSING_LISTENER = 6
_TAKES_TOPIC_IDS = 12

_BROKER_ENDPOINTS, _CONTROLLER_ENDPOINTS = 1, 2

_Location = tuple[tuple[BrokerId, ...], tuple[Uuid, ...]]


class MetadataAnswer(NamedTuple):
    """The response, which already has the error of each missing topic."""

    response: MetadataResponse
    #: Valid names of topics that do not exist.
    missing: tuple[TopicName, ...]


def metadata(
    image: ClusterImage,
    request: MetadataRequest,
    *,
    version: int,
    listener: str,
    cluster_id: str,
    controller_id: int,
) -> PlainSteps[MetadataAnswer]:
    """Return the brokers and the leaders of the partitions."""
    view = _View(image, listener, version)
    missing: list[TopicName] = []
    topics: Sequence[MetadataResponseTopic]
    if request.topics is None or (not request.topics and version < _NULL_IS_ALL):
        topics = yield from mapped_steps(view.topic, image.topics.values())
    else:
        topics = yield from _asked_topics(view, request.topics, version, missing)
    response = MetadataResponse(
        brokers=view.brokers(),
        cluster_id=cluster_id,
        controller_id=BrokerId(controller_id),
        topics=tuple(topics),
    )
    return MetadataAnswer(response, tuple(missing))


def _asked_topics(
    view: _View,
    asked: Sequence[MetadataRequestTopic],
    version: int,
    missing: list[TopicName],
) -> PlainSteps[list[MetadataResponseTopic]]:
    """Return each topic once: by id if the request has any, else by name."""
    ids: dict[Uuid, None] = {}
    names: dict[TopicName | None, None] = {}
    for each in asked:
        _check_topic(each, version)
        if each.topic_id != ZERO_UUID:
            ids[each.topic_id] = None
        names[each.name] = None
        yield
    if ids:
        return list((yield from mapped_steps(view.topic_of_id, ids)))
    topics = []
    for name in names:
        assert name is not None
        found = view.image.topic(name)
        if found is not None:
            topics.append((yield from view.topic(found)))
            yield
            continue
        invalid = topic_name_error(name) is not None
        topics.append(view.no_topic(name, invalid))
        if not invalid:
            missing.append(name)
        yield
    return topics


def describe_cluster(
    image: ClusterImage,
    request: DescribeClusterRequest,
    *,
    version: int,
    listener: str,
    cluster_id: str,
    controller_id: int,
) -> DescribeClusterResponse:
    """Return the brokers. Controllers are described by controllers."""
    if request.endpoint_type != _BROKER_ENDPOINTS:
        return _other_endpoints(request, version, "broker")
    brokers = tuple(
        DescribeClusterBroker(
            broker_id=broker.id,
            host=broker.endpoints[listener].host,
            port=broker.endpoints[listener].port,
            rack=broker.rack,
            is_fenced=broker.fenced,
        )
        for broker in image.brokers.values()
        if listener in broker.endpoints and (request.include_fenced_brokers or not broker.fenced)
    )
    known = any(broker.broker_id == controller_id for broker in brokers)
    return DescribeClusterResponse(
        cluster_id=cluster_id,
        controller_id=BrokerId(controller_id if known else -1),
        brokers=brokers,
    )


class ListenerAddress(Protocol):
    """Where a controller listens, whoever tells it."""

    @property
    def name(self) -> str:
        """The listener."""

    @property
    def host(self) -> str:
        """Its host."""

    @property
    def port(self) -> int:
        """Its port."""


def describe_controllers(
    controllers: Iterable[tuple[BrokerId, Iterable[ListenerAddress]]],
    request: DescribeClusterRequest,
    *,
    version: int,
    listener: str,
    cluster_id: str,
    leader_id: BrokerId,
) -> DescribeClusterResponse:
    """Return those of the controllers that have the listener (A14).

    A leader that is not among them is not named: a client could not reach it.
    """
    if request.endpoint_type != _CONTROLLER_ENDPOINTS:
        return _other_endpoints(request, version, "controller")
    described = tuple(
        DescribeClusterBroker(broker_id=id, host=each.host, port=each.port, rack=None)
        for id, endpoints in controllers
        for each in endpoints
        if each.name == listener
    )
    known = any(one.broker_id == leader_id for one in described)
    return DescribeClusterResponse(
        cluster_id=cluster_id,
        endpoint_type=_CONTROLLER_ENDPOINTS,
        controller_id=leader_id if known else BrokerId(-1),
        brokers=described,
    )


def _other_endpoints(
    request: DescribeClusterRequest, version: int, asked: str
) -> DescribeClusterResponse:
    """Refuse to describe the endpoints of the others: they are to be asked themselves."""
    if request.endpoint_type in (_BROKER_ENDPOINTS, _CONTROLLER_ENDPOINTS):
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        other = "controller" if asked == "broker" else "broker"
        message = f"The request was sent to a {asked}, but it wants an endpoint of a {other}."
    else:
        code = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        message = f"Unsupported endpoint type {request.endpoint_type}"
    if version == 0:
        code = ErrorCode.INVALID_REQUEST
    return DescribeClusterResponse(error_code=code, error_message=message)


def describe_topic_partitions(
    image: ClusterImage,
    request: DescribeTopicPartitionsRequest,
    *,
    listener: str,
    partition_limit: int,
    may_see: Callable[[TopicName], bool] | None = None,
) -> PlainSteps[DescribeTopicPartitionsResponse]:
    """Return as many partitions as allowed, by topic name, starting at a cursor (KIP-966).

    If all topics are asked for, those are left out that ``may_see`` does not accept.
    """
    cursor = request.cursor
    from_name = TopicName("") if cursor is None else cursor.topic_name
    if request.topics:
        asked: set[TopicName] = set()
        for named in request.topics:
            asked.add(named.name)
            yield
    elif may_see is None:
        asked = set(image.topics)
    else:
        asked = set()
        for name in image.topics:
            if may_see(name):
                asked.add(name)
            yield
    names = yield from sorted_in_steps(name for name in asked if name >= from_name)
    if cursor is not None:
        if request.topics and cursor.topic_name not in asked:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"The cursor's topic {cursor.topic_name} is not among the topics asked for.",
            )
        if cursor.partition_index < 0:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"The cursor's partition {cursor.partition_index} cannot be negative.",
            )
    view = _View(image, listener, DescribeTopicPartitionsRequest.VERSIONS.highest)
    left = max(min(partition_limit, request.response_partition_limit), 1)
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        yield
        if left == 0:
            return _page(topics, name, 0)
        topic = image.topic(name)
        if topic is None:
            if request.topics:
                topics.append(_no_such_topic(name))
            continue
        start = cursor.partition_index if cursor is not None and name == from_name else 0
        indexes = [index for index in topic.partitions if index >= start]
        topics.append(view.described_topic(topic, indexes[:left]))
        if len(indexes) > left:
            return _page(topics, name, indexes[left])
        left -= len(indexes)
    return DescribeTopicPartitionsResponse(topics=tuple(topics))


class _View:
    """An image as seen by clients on one listener."""

    def __init__(self, image: ClusterImage, listener: str, version: int) -> None:
        self.image = image
        self._listener = listener
        self._filters_replicas = version == 0
        self._tells_missing_listener = version >= _TELLS_MISSING_LISTENER
        self._brokers: dict[BrokerId, BrokerRegistration] = dict(image.brokers.items())
        self._reachable = {
            broker.id
            for broker in self._brokers.values()
            if not broker.fenced and listener in broker.endpoints
        }
        # Thousands of partitions share few sets of brokers.
        self._leader_errors: dict[BrokerId, ErrorCode] = {}
        self._offline_replicas: dict[_Location, tuple[BrokerId, ...]] = {}

    def brokers(self) -> tuple[MetadataResponseBroker, ...]:
        """Return the addresses of the reachable brokers."""
        found = []
        for broker_id in sorted(self._reachable):
            broker = self._brokers[broker_id]
            endpoint = broker.endpoints[self._listener]
            found.append(
                MetadataResponseBroker(
                    node_id=broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack
                )
            )
        return tuple(found)

    def topic(self, topic: TopicImage) -> PlainSteps[MetadataResponseTopic]:
        """Return an existing topic."""
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.id,
            is_internal=is_internal(topic.name),
            partitions=(
                yield from mapped(lambda item: self._partition(*item), topic.partitions.items())
            ),
        )

    def topic_of_id(self, topic_id: Uuid) -> PlainSteps[MetadataResponseTopic]:
        """Return the topic of an id, which may not exist."""
        topic = self.image.topic_by_id(topic_id)
        if topic is not None:
            return (yield from self.topic(topic))
        return MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id
        )

    def no_topic(self, name: TopicName, invalid: bool) -> MetadataResponseTopic:
        """Return a missing topic."""
        return MetadataResponseTopic(
            error_code=(
                ErrorCode.INVALID_TOPIC_EXCEPTION
                if invalid
                else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            ),
            name=name,
            is_internal=is_internal(name),
        )

    def described_topic(
        self, topic: TopicImage, indexes: list[int]
    ) -> DescribeTopicPartitionsResponseTopic:
        """Return some partitions of a topic for DescribeTopicPartitions."""
        return DescribeTopicPartitionsResponseTopic(
            name=topic.name,
            topic_id=topic.id,
            is_internal=is_internal(topic.name),
            partitions=tuple(
                self._described_partition(index, topic.partitions[index]) for index in indexes
            ),
        )

    def _partition(self, index: int, partition: PartitionImage) -> MetadataResponsePartition:
        replicas, isr = partition.replicas, partition.isr
        error = self._leader_error(partition.leader)
        leader = partition.leader if error is ErrorCode.NONE else NO_LEADER
        if self._filters_replicas:
            replicas = tuple(replica for replica in replicas if replica in self._reachable)
            isr = tuple(replica for replica in isr if replica in self._reachable)
            hidden = len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr)
            if hidden and error is ErrorCode.NONE:
                error = ErrorCode.REPLICA_NOT_AVAILABLE
        return MetadataResponsePartition(
            error_code=error,
            partition_index=index,
            leader_id=leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=self._offline(partition),
        )

    def _described_partition(
        self, index: int, partition: PartitionImage
    ) -> DescribeTopicPartitionsResponsePartition:
        error = self._leader_error(partition.leader)
        return DescribeTopicPartitionsResponsePartition(
            partition_index=index,
            leader_id=partition.leader if error is ErrorCode.NONE else NO_LEADER,
            leader_epoch=partition.leader_epoch,
            replica_nodes=partition.replicas,
            isr_nodes=partition.isr,
            eligible_leader_replicas=partition.elr,
            last_known_elr=partition.last_known_elr,
            offline_replicas=self._offline(partition),
        )

    def _leader_error(self, leader_id: BrokerId) -> ErrorCode:
        error = self._leader_errors.get(leader_id)
        if error is not None:
            return error
        leader = self._brokers.get(leader_id)
        if leader is not None and self._listener in leader.endpoints:
            error = ErrorCode.NONE
        elif leader is not None and self._tells_missing_listener:
            error = ErrorCode.LISTENER_NOT_FOUND
        else:
            error = ErrorCode.LEADER_NOT_AVAILABLE
        self._leader_errors[leader_id] = error
        return error

    def _offline(self, partition: PartitionImage) -> tuple[BrokerId, ...]:
        location = (partition.replicas, partition.directories)
        offline = self._offline_replicas.get(location)
        if offline is None:
            offline = self._offline_replicas[location] = tuple(
                replica
                for replica, directory in zip(*location, strict=True)
                if replica not in self._reachable
                or not self._brokers[replica].has_online_dir(directory)
            )
        return offline


def _check_topic(topic: MetadataRequestTopic, version: int) -> None:
    if version < _TAKES_TOPIC_IDS and topic.topic_id != ZERO_UUID:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Topic IDs are not supported in requests for version {version}",
        )
    if topic.name is None and topic.topic_id == ZERO_UUID:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Topic name can not be null for version {version}"
        )


def _no_such_topic(name: TopicName) -> DescribeTopicPartitionsResponseTopic:
    invalid = topic_name_error(name) is not None
    return DescribeTopicPartitionsResponseTopic(
        error_code=(
            ErrorCode.INVALID_TOPIC_EXCEPTION if invalid else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ),
        name=name,
        is_internal=is_internal(name),
    )


def _page(
    topics: list[DescribeTopicPartitionsResponseTopic], name: TopicName, index: int
) -> DescribeTopicPartitionsResponse:
    cursor = Cursor(topic_name=name, partition_index=index)
    return DescribeTopicPartitionsResponse(topics=tuple(topics), next_cursor=cursor)
