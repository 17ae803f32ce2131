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

from typing import TYPE_CHECKING

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import ProducerId, TopicName, TopicPartition
from dohle.core.steps import PlainSteps, mapped
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from dohle.server.net.handler import Handler, serves
from dohle.server.net.slices import Slices
from dohle.server.partitions.lookup import local_partition
from dohle.server.partitions.partitions import Partition
from dohle.server.transactions.marker import Marker

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer
    from dohle.server.net.handler import RequestContext

_Codes = dict[ProducerId, dict[TopicPartition, ErrorCode]]
#: A marker's producer, its partition, and the end of the log after the append.
_Appended = tuple[ProducerId, Partition, int]


async def handle_write_txn_markers(
    broker: BrokerServer, context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    """Write markers; answer when they are committed."""
    codes: _Codes = {}
    appended: list[_Appended] = []
    slices = Slices(broker.turns)
    for asked in request.markers:
        found = codes.setdefault(asked.producer_id, {})
        marker = _marker(asked)
        for topic in asked.topics:
            for index in topic.partition_indexes:
                key = TopicPartition(topic.name, index)
                found[key] = _append(broker, key, marker, appended)
                if slices.is_over:
                    # Nobody is to wait for what is appended and not written.
                    broker.write_appends()
                    await slices.wait()
            await slices.give_way()
        await slices.give_way()
    broker.write_appends()
    waiting = []
    for one in appended:
        producer_id, partition, end_offset = one
        try:
            partition.log.disk.ensure_online()
        except KafkaError as error:
            codes[producer_id][partition.key] = error.code
        if not codes[producer_id][partition.key] and not _is_committed(partition, end_offset):
            waiting.append(one)
        await slices.give_way()
    if waiting:
        await _wait_until_committed(broker, codes, waiting)
    return await slices.run(_response(codes))


def _append(
    broker: BrokerServer, key: TopicPartition, marker: Marker, appended: list[_Appended]
) -> ErrorCode:
    if min(marker.producer_id, marker.producer_epoch, marker.transaction_version) < 0:
        return ErrorCode.INVALID_REQUEST
    if not _is_usable(broker, key):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        partition = broker.txn_markers.writer.append(key, marker)
    except KafkaError as error:
        return error.code
    appended.append((ProducerId(marker.producer_id), partition, partition.log.log_end_offset))
    return ErrorCode.NONE


def _is_committed(partition: Partition, end_offset: int) -> bool:
    return partition.log.high_watermark >= end_offset


async def _wait_until_committed(
    broker: BrokerServer, codes: _Codes, waiting: list[_Appended]
) -> None:
    found = await broker.commits.wait_for_all(
        [(partition, end_offset) for _, partition, end_offset in waiting],
        broker.config.get_int("request.timeout.ms"),
    )
    for (producer_id, partition, _), code in zip(waiting, found, strict=True):
        codes[producer_id][partition.key] = code


def _response(codes: _Codes) -> PlainSteps[WriteTxnMarkersResponse]:
    markers = []
    for producer_id, found in codes.items():
        if found:
            topics = yield from _by_topic(found)
            markers.append(WritableTxnMarkerResult(producer_id=producer_id, topics=topics))
        yield
    return WriteTxnMarkersResponse(markers=tuple(markers))


def _marker(asked: WritableTxnMarker) -> Marker:
    return Marker(
        asked.producer_id,
        asked.producer_epoch,
        asked.transaction_result,
        asked.coordinator_epoch,
        asked.transaction_version,
    )


def _is_usable(broker: BrokerServer, key: TopicPartition) -> bool:
    try:
        local_partition(broker, *key)
    except KafkaError:
        return False
    return True


def _by_topic(
    codes: dict[TopicPartition, ErrorCode],
) -> PlainSteps[tuple[WritableTxnMarkerTopicResult, ...]]:
    topics: dict[TopicName, list[WritableTxnMarkerPartitionResult]] = {}
    for (topic, index), code in codes.items():
        topics.setdefault(topic, []).append(
            WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
        )
        yield
    return (
        yield from mapped(
            lambda item: WritableTxnMarkerTopicResult(name=item[0], partitions=tuple(item[1])),
            topics.items(),
        )
    )


HANDLERS: tuple[tuple[ApiKey, Handler], ...] = (
    serves(ApiKey.WRITE_TXN_MARKERS, handle_write_txn_markers),
)
