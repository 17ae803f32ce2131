"""DescribeProducers (61), v0.

Returns what a replica's log knows about each producer. An invalid topic name: 17; no such topic or
partition: 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import ProducerId, TopicName
from dohle.core.steps import PlainSteps, mapped, mapped_steps
from dohle.metadata.topic_names import topic_name_error
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)
from dohle.server.net.handler import Handler, serves
from dohle.server.partitions.lookup import ANY_REPLICA, find_partition
from dohle.storage.producers.entry import ProducerEntry

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer
    from dohle.server.net.handler import RequestContext


def handle_describe_producers(
    broker: BrokerServer, context: RequestContext, request: DescribeProducersRequest
) -> PlainSteps[DescribeProducersResponse]:
    """Describe the producers that have written to partitions."""

    def of_topic(topic: TopicRequest) -> PlainSteps[TopicResponse]:
        partitions = yield from mapped_steps(
            lambda index: _described(broker, topic.name, index), topic.partition_indexes
        )
        return TopicResponse(name=topic.name, partitions=partitions)

    topics = yield from mapped_steps(of_topic, request.topics)
    return DescribeProducersResponse(topics=topics)


def _described(broker: BrokerServer, topic: TopicName, index: int) -> PlainSteps[PartitionResponse]:
    try:
        reason = topic_name_error(topic)
        if reason is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
        state = find_partition(broker, topic, index, ANY_REPLICA).log.producer_state
    except KafkaError as error:
        return PartitionResponse(
            partition_index=index, error_code=error.code, error_message=str(error.args[0])
        )
    return PartitionResponse(
        partition_index=index,
        active_producers=(yield from mapped(_active, tuple(state.producers.items()))),
    )


def _active(producer: tuple[int, ProducerEntry]) -> ProducerState:
    producer_id, entry = producer
    return ProducerState(
        producer_id=ProducerId(producer_id),
        producer_epoch=entry.producer_epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.current_txn_first_offset,
    )


HANDLERS: tuple[tuple[ApiKey, Handler], ...] = (
    serves(ApiKey.DESCRIBE_PRODUCERS, handle_describe_producers),
)
