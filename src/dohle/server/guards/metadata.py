"""Guards of what describes topics and the cluster: without DESCRIBE a topic is not seen.

- Metadata: DESCRIBE on each topic. If all are asked for, others are left out. By name: 29 and no
  id, whether it exists or not. By id: 29 and no name. A topic that the request would create also
  needs CREATE, on the cluster or on the topic: else 29.
- DescribeTopicPartitions: the same.
- DescribeCluster: nothing. To a controller: ALTER on the cluster, else 31.
- Operations are told as far as they are allowed, those of the cluster only to those who
  may describe it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dohle.core.acls import AclOperation, AclResourceType
from dohle.core.errors import ErrorCode
from dohle.core.ids import TopicName
from dohle.core.steps import PlainSteps, mapped
from dohle.core.uuid import ZERO_UUID
from dohle.metadata.topic_names import is_internal
from dohle.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from dohle.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
)
from dohle.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from dohle.protocol.schema import Response
from dohle.server.guards.guard import GuardedRequest, Narrowed, split
from dohle.server.handlers.metadata import (
    answer_metadata,
    may_create,
    page_of_partitions,
)
from dohle.server.net.handler import RequestContext
from dohle.server.rights import Rights

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer

_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_TOPIC = AclResourceType.TOPIC
_NULL_IS_ALL = 1


# Metadata


def authorized_metadata(
    broker: BrokerServer, context: RequestContext, request: MetadataRequest, rights: Rights
) -> PlainSteps[MetadataResponse]:
    """Answer Metadata with what the sender may see."""
    refused: list[MetadataResponseTopic] = []
    asked = request.topics
    is_all, is_nothing = asked is None or (not asked and context.version < _NULL_IS_ALL), False
    if not is_all:
        assert asked is not None
        left = yield from _describable(broker, context, request, asked, rights, refused)
        request = request.replace(topics=tuple(left))
        # In the first version an empty list asks for all.
        is_nothing = not left and context.version < _NULL_IS_ALL
    response, _ = yield from answer_metadata(broker, context, request)
    topics = [] if is_nothing else list(response.topics)
    if is_all:
        topics, _ = yield from split(
            rights, AclOperation.DESCRIBE, topics, lambda topic: topic.name, quiet=True
        )
    if request.include_topic_authorized_operations:
        topics = list((yield from mapped(lambda topic: _with_operations(rights, topic), topics)))
    if request.include_cluster_authorized_operations:
        operations = rights.cluster_operations()
        response = response.replace(cluster_authorized_operations=operations)
    return response.replace(topics=(*topics, *refused))


def _describable(
    broker: BrokerServer,
    context: RequestContext,
    request: MetadataRequest,
    asked: tuple[MetadataRequestTopic, ...],
    rights: Rights,
    refused: list[MetadataResponseTopic],
) -> PlainSteps[list[MetadataRequestTopic]]:
    """Return the topics to describe or create; the answers for others are added to ``refused``."""
    image, by_id = broker.image, any(topic.topic_id != ZERO_UUID for topic in asked)

    def name_of(topic: MetadataRequestTopic) -> TopicName | None:
        if not by_id:
            return topic.name
        found = image.topic_by_id(topic.topic_id)
        return None if found is None else found.name

    left, hidden = yield from split(rights, AclOperation.DESCRIBE, asked, name_of)
    told = dict.fromkeys((topic.topic_id if by_id else topic.name) for topic in hidden)
    for topic in told:
        name, topic_id = (None, topic) if by_id else (topic, ZERO_UUID)
        refused.append(
            MetadataResponseTopic(error_code=_DENIED, name=name, topic_id=topic_id)  # type: ignore[arg-type]
        )
        yield
    if by_id or not may_create(broker, context.version, request):
        return left
    new = dict.fromkeys(
        topic.name for topic in left if topic.name is not None and image.topic(topic.name) is None
    )
    if not new or rights.may_cluster(AclOperation.CREATE, quiet=True):
        return left
    _, uncreated = yield from split(rights, AclOperation.CREATE, new, lambda name: name)
    for name in uncreated:
        refused.append(
            MetadataResponseTopic(error_code=_DENIED, name=name, is_internal=is_internal(name))
        )
        yield
    out = set(uncreated)
    return [topic for topic in left if topic.name not in out]


def _with_operations(rights: Rights, topic: MetadataResponseTopic) -> MetadataResponseTopic:
    if topic.error_code or topic.name is None:
        return topic
    return topic.replace(topic_authorized_operations=rights.operations(_TOPIC, topic.name))


# DescribeTopicPartitions


def authorized_topic_partitions(
    broker: BrokerServer,
    context: RequestContext,
    request: DescribeTopicPartitionsRequest,
    rights: Rights,
) -> PlainSteps[DescribeTopicPartitionsResponse]:
    """Answer DescribeTopicPartitions with what the sender may see."""
    hidden: list[TopicName] = []
    response = DescribeTopicPartitionsResponse()
    is_nothing = False
    if request.topics:
        names = dict.fromkeys(topic.name for topic in request.topics)
        left, hidden = yield from split(rights, AclOperation.DESCRIBE, names, lambda name: name)
        allowed = set(left)
        topics = tuple(topic for topic in request.topics if topic.name in allowed)
        # An empty list would ask for all.
        request, is_nothing = request.replace(topics=topics), not topics
    if not is_nothing:
        response = yield from page_of_partitions(
            broker,
            context,
            request,
            may_see=lambda name: rights.may(AclOperation.DESCRIBE, _TOPIC, name, quiet=True),
        )
    described = yield from mapped(
        lambda topic: topic.replace(
            topic_authorized_operations=rights.operations(_TOPIC, topic.name or "")
        ),
        response.topics,
    )
    refused = yield from mapped(
        lambda name: DescribeTopicPartitionsResponseTopic(name=name, error_code=_DENIED), hidden
    )
    return response.replace(topics=(*described, *refused))


# DescribeCluster


def guard_describe_cluster(asked: GuardedRequest) -> PlainSteps[Response | Narrowed | None]:
    """Let everybody pass, and tell what they may do."""
    yield
    request: DescribeClusterRequest = asked.request
    if not request.include_cluster_authorized_operations:
        return None

    def complete(response: DescribeClusterResponse) -> PlainSteps[Response]:
        yield
        if response.error_code:
            return response
        return response.replace(cluster_authorized_operations=asked.rights.cluster_operations())

    return Narrowed(request, complete)


def guard_describe_controllers(asked: GuardedRequest) -> PlainSteps[Response | Narrowed | None]:
    """Let those pass who may alter the cluster."""
    if not asked.rights.may_cluster(AclOperation.ALTER):
        return DescribeClusterResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            error_message="Cluster authorization failed.",
        )
    return (yield from guard_describe_cluster(asked))
