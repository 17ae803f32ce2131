"""WriteTxnMarkers (27), v1-2.

Sent by a transaction's coordinator to the leaders of its partitions, and by an operator to end a
hanging transaction.

- v2 has the transaction version, which says how the producer's epoch is compared (KIP-1228); before
  that the rules of version 0 apply.
- An invalid producer id, epoch or transaction version: 42.
- A partition that does not exist or cannot be used: 3. Not its leader: 6; too few replicas in sync:
  19; not committed within ``request.timeout.ms``: 7. An older epoch of the producer: 47; of the
  coordinator: 52.
- ``__consumer_offsets``: the group coordinator writes the marker; if it is not ready: 6.
- There is one result for each producer id.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import ProducerId, TopicName, TopicPartition
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from dohle.server.net.dispatch import Handler, serves
from dohle.server.partitions.lookup import local_partition
from dohle.server.partitions.partitions import Partition
from dohle.server.transactions.markers import Marker

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer
    from dohle.server.net.dispatch import RequestContext

_Codes = dict[ProducerId, dict[TopicPartition, ErrorCode]]
#: A marker's producer, its partition, and the end of the log after the append.
_Appended = tuple[ProducerId, Partition, int]


def handle_write_txn_markers(
    broker: BrokerServer, context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse | Coroutine[Any, Any, WriteTxnMarkersResponse]:
    """Write markers; answer when they are committed."""
    codes: _Codes = {}
    appended: list[_Appended] = []
    for asked in request.markers:
        found = codes.setdefault(asked.producer_id, {})
        marker = _marker(asked)
        for key in _partitions(asked):
            found[key] = ErrorCode.NONE
            if min(marker.producer_id, marker.producer_epoch, marker.transaction_version) < 0:
                found[key] = ErrorCode.INVALID_REQUEST
            elif not _is_usable(broker, key):
                found[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                try:
                    partition = broker.txn_markers.writer.append(key, marker)
                    end_offset = partition.log.log_end_offset
                    appended.append((asked.producer_id, partition, end_offset))
                except KafkaError as error:
                    found[key] = error.code
    broker.write_appends()
    for producer_id, partition, _ in appended:
        try:
            partition.log.disk.ensure_online()
        except KafkaError as error:
            codes[producer_id][partition.key] = error.code
    waiting = [
        one for one in appended if not codes[one[0]][one[1].key] and not _is_committed(*one[1:])
    ]
    return _answer_when_committed(broker, codes, waiting) if waiting else _response(codes)


def _is_committed(partition: Partition, end_offset: int) -> bool:
    return partition.log.high_watermark >= end_offset


async def _answer_when_committed(
    broker: BrokerServer, codes: _Codes, waiting: list[_Appended]
) -> WriteTxnMarkersResponse:
    found = await broker.commits.wait_for_all(
        [(partition, end_offset) for _, partition, end_offset in waiting],
        broker.config.get_int("request.timeout.ms"),
    )
    for (producer_id, partition, _), code in zip(waiting, found, strict=True):
        codes[producer_id][partition.key] = code
    return _response(codes)


def _response(codes: _Codes) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=tuple(
            WritableTxnMarkerResult(producer_id=producer_id, topics=_by_topic(found))
            for producer_id, found in codes.items()
        )
    )


def _marker(asked: WritableTxnMarker) -> Marker:
    return Marker(
        asked.producer_id,
        asked.producer_epoch,
        asked.transaction_result,
        asked.coordinator_epoch,
        asked.transaction_version,
    )


def _partitions(asked: WritableTxnMarker) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, index)
        for topic in asked.topics
        for index in topic.partition_indexes
    ]


def _is_usable(broker: BrokerServer, key: TopicPartition) -> bool:
    try:
        local_partition(broker, *key)
    except KafkaError:
        return False
    return True


def _by_topic(
    codes: dict[TopicPartition, ErrorCode],
) -> tuple[WritableTxnMarkerTopicResult, ...]:
    topics: dict[TopicName, list[WritableTxnMarkerPartitionResult]] = {}
    for (topic, index), code in codes.items():
        topics.setdefault(topic, []).append(
            WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
        )
    return tuple(
        WritableTxnMarkerTopicResult(name=name, partitions=tuple(results))
        for name, results in topics.items()
    )


HANDLERS: tuple[tuple[ApiKey, Handler], ...] = (
    serves(ApiKey.WRITE_TXN_MARKERS, handle_write_txn_markers),
)
