"""Metadata (3), v0-13, and DescribeTopicPartitions (75), v0.

- A topic that does not exist is created if the client allows it (v4+; older ones always do) and
  ``auto.create.topics.enable`` is on. As in Kafka the answer is UNKNOWN_TOPIC_OR_PARTITION all the
  same, the topic is created in the background, and the client asks again.
- A request that is wrong as a whole is answered by an error for each of its topics.
- Everything else is read off the image (``dohle.metadata.queries``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName
from dohle.core.steps import PlainSteps, mapped
from dohle.metadata import queries
from dohle.protocol.apis import ApiKey
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
from dohle.server.net.outcome import EncodedResponse

#: The first version whose answer may name a topic by its id alone.
_NULL_NAMES = 12

#: Answers to requests that name so many topics or all of them are remembered, if they are long:
#: if they are about this many partitions.
_TOPICS_REMEMBERED = 16
_LONG_ANSWER = 100

#: Read, write, create, delete, alter, describe, describe configs and alter configs: one bit each.
TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer
    from dohle.server.net.handler import RequestContext


def handle_metadata(
    broker: BrokerServer, context: RequestContext, request: MetadataRequest
) -> PlainSteps[MetadataResponse | EncodedResponse]:
    """Describe topics, their leaders and the brokers."""
    key = context.version, context.connection.listener, request
    answers = broker.metadata_answers
    image = broker.image
    may_be_known = request.topics is None or len(request.topics) <= _TOPICS_REMEMBERED
    if context.connection.on_used is not None:
        # Its answer may have to say how long to wait.
        may_be_known = False
    if may_be_known and (known := answers.find(image, key)) is not None:
        return known
    response, is_whole = yield from answer_metadata(broker, context, request)
    if not response.error_code:
        response = yield from _with_operations(request, response)
    # Who asks for a topic that is not there asks again, and may have it created then.
    if not may_be_known or not is_whole or not _is_long(response):
        return response
    body = b"".join((yield from response.encode_chunks_in_steps(context.version)))
    encoded = EncodedResponse(ApiKey.METADATA, body)
    answers.keep(image, key, encoded)
    return encoded


def answer_metadata(
    broker: BrokerServer, context: RequestContext, request: MetadataRequest
) -> PlainSteps[tuple[MetadataResponse, bool]]:
    """Return the answer, and whether all that was asked for is in it."""
    try:
        answer = yield from _answer(broker, context, request)
    except KafkaError as error:
        return (yield from _refused(context, request, error.code)), False
    if answer.missing and may_create(broker, context.version, request):
        broker.auto_creation.begin(answer.missing)
    return answer.response, not answer.missing


def may_create(broker: BrokerServer, version: int, request: MetadataRequest) -> bool:
    """Tell whether topics that are not there are created."""
    allowed = version < 4 or request.allow_auto_topic_creation
    return allowed and broker.broker_values().get_bool("auto.create.topics.enable")


def _answer(
    broker: BrokerServer, context: RequestContext, request: MetadataRequest
) -> PlainSteps[queries.MetadataAnswer]:
    return queries.metadata(
        broker.image,
        request,
        version=context.version,
        listener=context.connection.listener,
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
    )


def _is_long(response: MetadataResponse) -> bool:
    return sum(len(topic.partitions) for topic in response.topics) >= _LONG_ANSWER


def _refused(
    context: RequestContext, request: MetadataRequest, code: ErrorCode
) -> PlainSteps[MetadataResponse]:
    """Answer a request that is wrong as a whole: by an error for each of its topics."""
    no_name = None if context.version >= _NULL_NAMES else TopicName("")
    topics = yield from mapped(
        lambda topic: MetadataResponseTopic(
            error_code=code,
            name=no_name if topic.name is None else topic.name,
            topic_id=topic.topic_id,
        ),
        request.topics or (),
    )
    return MetadataResponse(topics=topics, error_code=code)


def _with_operations(
    request: MetadataRequest, response: MetadataResponse
) -> PlainSteps[MetadataResponse]:
    """Add the operations that the client may do, if it asks (v8+): all, without an authorizer."""
    if request.include_cluster_authorized_operations:
        response = response.replace(cluster_authorized_operations=CLUSTER_OPERATIONS)
    if request.include_topic_authorized_operations:
        topics = yield from mapped(
            lambda topic: (
                topic
                if topic.error_code
                else topic.replace(topic_authorized_operations=TOPIC_OPERATIONS)
            ),
            response.topics,
        )
        response = response.replace(topics=topics)
    return response


def handle_describe_topic_partitions(
    broker: BrokerServer, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> PlainSteps[DescribeTopicPartitionsResponse]:
    """Describe partitions, page by page."""
    response = yield from page_of_partitions(broker, context, request)
    # As in Metadata, but whether it asks or not.
    topics = yield from mapped(
        lambda topic: (
            topic
            if topic.error_code == ErrorCode.INVALID_REQUEST
            else topic.replace(topic_authorized_operations=TOPIC_OPERATIONS)
        ),
        response.topics,
    )
    return response.replace(topics=topics)


def page_of_partitions(
    broker: BrokerServer,
    context: RequestContext,
    request: DescribeTopicPartitionsRequest,
    may_see: Callable[[TopicName], bool] | None = None,
) -> PlainSteps[DescribeTopicPartitionsResponse]:
    """Return a page; of all topics those that the client may see."""
    try:
        return (
            yield from queries.describe_topic_partitions(
                broker.image,
                request,
                listener=context.connection.listener,
                partition_limit=broker.config.get_int("max.request.partition.size.limit"),
                may_see=may_see,
            )
        )
    except KafkaError as error:
        # There is no place for an error of the whole request.
        code = error.code
        refused = yield from mapped(
            lambda topic: DescribeTopicPartitionsResponseTopic(name=topic.name, error_code=code),
            request.topics,
        )
        return DescribeTopicPartitionsResponse(topics=refused)
