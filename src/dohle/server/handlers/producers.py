"""InitProducerId (22) v0-5 and DescribeProducers (61) v0.

InitProducerId:
- Without a transactional id: a producer id that was never given before, at epoch 0. From v3 on a
  producer may name the id and epoch it had; it gets a new id all the same.
- Only one of the two named: 42. An empty transactional id: 42.
- With a transactional id: 15, as nobody coordinates transactions yet.
- No ids to be had, because the metadata log cannot be written: 14, which clients try again.

DescribeProducers: what a replica's log knows of each producer. Not a topic's name: 17; no such
topic or partition: 3.
"""

from __future__ import annotations

import logging
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
from dohle.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from dohle.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from dohle.server.dispatch import Handler, serves
from dohle.server.handlers.hosted import hosted_partition

if TYPE_CHECKING:
    from dohle.server.broker import Broker
    from dohle.server.dispatch import RequestContext

logger = logging.getLogger("dohle.server")


async def handle_init_producer_id(
    broker: Broker, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """Give a producer its id."""
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id == "":
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    try:
        producer_id = await broker.producer_ids.next()
    except KafkaError as error:
        logger.warning("no producer id for %s: %s", context.client_id, error)
        return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH
    )


def handle_describe_producers(
    broker: Broker, context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """Tell who has written to partitions."""
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


def _described(broker: Broker, topic: TopicName, index: int) -> PartitionResponse:
    try:
        reason = topic_name_error(topic)
        if reason is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
        state = hosted_partition(broker, topic, index).log.producer_state
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
    serves(ApiKey.INIT_PRODUCER_ID, handle_init_producer_id),
    serves(ApiKey.DESCRIBE_PRODUCERS, handle_describe_producers),
)
