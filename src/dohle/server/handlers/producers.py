"""DescribeProducers (61), v0.

Returns what a replica's log knows about each producer. An invalid topic name: 17; no such topic or
partition: 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import ProducerId, TopicName
from dohle.metadata.topic_names import topic_name_error
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from dohle.server.net.dispatch import Handler, serves
from dohle.server.partitions.lookup import ANY_REPLICA, find_partition

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer
    from dohle.server.net.dispatch import RequestContext


def handle_describe_producers(
    broker: BrokerServer, context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """Describe the producers that have written to partitions."""
    return DescribeProducersResponse(
        topics=tuple(
            TopicResponse(
                name=topic.name,
                partitions=tuple(
                    _described(broker, topic.name, index) for index in topic.partition_indexes
                ),
            )
            for topic in request.topics
        )
    )


def _described(broker: BrokerServer, topic: TopicName, index: int) -> PartitionResponse:
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
        active_producers=tuple(
            ProducerState(
                producer_id=ProducerId(producer_id),
                producer_epoch=entry.producer_epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=entry.current_txn_first_offset,
            )
            for producer_id, entry in state.producers.items()
        ),
    )


HANDLERS: tuple[tuple[ApiKey, Handler], ...] = (
    serves(ApiKey.DESCRIBE_PRODUCERS, handle_describe_producers),
)
