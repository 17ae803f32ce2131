"""Metadata (3), v0-13, and DescribeTopicPartitions (75), v0.

- A topic that does not exist is created if the client allows it (v4+; older ones always do) and
  ``auto.create.topics.enable`` is on. As in Kafka the answer is UNKNOWN_TOPIC_OR_PARTITION all the
  same, the topic is created in the background, and the client asks again.
- A request that is wrong as a whole is answered by an error for each of its topics.
- Everything else is read off the image (``dohle.metadata.queries``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName
from dohle.metadata import queries
from dohle.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
)
from dohle.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseTopic,
)
from dohle.server.handlers.cluster import CLUSTER_OPERATIONS

#: The first version whose answer may name a topic by its id alone.
_NULL_NAMES = 12

#: Read, write, create, delete, alter, describe, describe configs and alter configs: one bit each.
TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer
    from dohle.server.net.dispatch import RequestContext


def handle_metadata(
    broker: BrokerServer, context: RequestContext, request: MetadataRequest
) -> MetadataResponse:
    """Describe topics, their leaders and the brokers."""
    try:
        answer = _answer(broker, context, request)
    except KafkaError as error:
        return _refused(context, request, error.code)
    allowed = context.version < 4 or request.allow_auto_topic_creation
    if answer.missing and allowed and broker.broker_values().get_bool("auto.create.topics.enable"):
        broker.auto_creation.begin(answer.missing)
    return _with_operations(request, answer.response)


def _answer(
    broker: BrokerServer, context: RequestContext, request: MetadataRequest
) -> queries.MetadataAnswer:
    return queries.metadata(
        broker.image,
        request,
        version=context.version,
        listener=context.connection.listener,
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
    )


def _refused(
    context: RequestContext, request: MetadataRequest, code: ErrorCode
) -> MetadataResponse:
    """Answer a request that is wrong as a whole: by an error for each of its topics."""
    no_name = None if context.version >= _NULL_NAMES else TopicName("")
    return MetadataResponse(
        topics=tuple(
            MetadataResponseTopic(
                error_code=code,
                name=no_name if topic.name is None else topic.name,
                topic_id=topic.topic_id,
            )
            for topic in request.topics or ()
        ),
        error_code=code,
    )


def _with_operations(request: MetadataRequest, response: MetadataResponse) -> MetadataResponse:
    """Add the operations that the client may do, if it asks (v8+): all, as there are no ACLs."""
    if request.include_cluster_authorized_operations:
        response = response.replace(cluster_authorized_operations=CLUSTER_OPERATIONS)
    if request.include_topic_authorized_operations:
        topics = tuple(
            topic
            if topic.error_code
            else topic.replace(topic_authorized_operations=TOPIC_OPERATIONS)
            for topic in response.topics
        )
        response = response.replace(topics=topics)
    return response


def handle_describe_topic_partitions(
    broker: BrokerServer, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Describe partitions, page by page."""
    try:
        response = queries.describe_topic_partitions(
            broker.image,
            request,
            listener=context.connection.listener,
            partition_limit=broker.config.get_int("max.request.partition.size.limit"),
        )
    except KafkaError as error:
        # The response has no field for an error of the whole request.
        return DescribeTopicPartitionsResponse(
            topics=tuple(
                DescribeTopicPartitionsResponseTopic(name=topic.name, error_code=error.code)
                for topic in request.topics
            )
        )
    # As in Metadata, but always.
    topics = tuple(
        topic.replace(topic_authorized_operations=TOPIC_OPERATIONS) for topic in response.topics
    )
    return response.replace(topics=topics)
