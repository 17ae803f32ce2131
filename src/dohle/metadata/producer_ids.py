"""AllocateProducerIds: brokers get producer ids in blocks of a thousand, and none twice."""

from __future__ import annotations

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import ProducerId
from dohle.metadata.brokers import check_broker_epoch
from dohle.metadata.decision import Decision, VersionedRecord
from dohle.metadata.image import ClusterImage
from dohle.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from dohle.protocol.messages.records.cluster_metadata import ProducerIdsRecord

BLOCK_SIZE = 1000
_PRODUCER_ID_MAX = 2**63 - 1


def allocate_producer_ids(
    image: ClusterImage, request: AllocateProducerIdsRequest
) -> Decision[AllocateProducerIdsResponse]:
    """Give the next block to a broker."""
    try:
        check_broker_epoch(image, request.broker_id, request.broker_epoch)
        start = max(image.next_producer_id, 0)
        if start > _PRODUCER_ID_MAX - BLOCK_SIZE:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids are used up.")
    except KafkaError as error:
        reply = AllocateProducerIdsResponse(error_code=error.code)
        return Decision((), reply, reason=str(error))
    record = ProducerIdsRecord(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        next_producer_id=start + BLOCK_SIZE,
    )
    reply = AllocateProducerIdsResponse(
        producer_id_start=ProducerId(start), producer_id_len=BLOCK_SIZE
    )
    return Decision((VersionedRecord(record, 0),), reply)
