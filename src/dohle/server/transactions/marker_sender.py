"""WriteTxnMarkers to other brokers: many markers of many transactions in one request (H6).

It goes in v2, which says what the transaction version is, or in v1 to a broker that knows no more.
An answer has one result for each producer id, so that a request must not have two markers of the
same producer: the second of them waits for the next request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from dohle.client.errors import error_code_of
from dohle.client.net.connection import Connection
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import ProducerId, TopicName, TopicPartition
from dohle.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from dohle.server.transactions.marker import Marker, SentMarker

#: The most markers of one request: more would keep the loop of either side for too long.
MARKERS_PER_REQUEST = 1_000

_Codes = dict[tuple[ProducerId, TopicPartition], ErrorCode]


class MarkerSender:
    """Makes requests of markers."""

    def take(self, waiting: deque[SentMarker]) -> list[SentMarker]:
        """Take out what goes with the next request, and what nobody wants any more."""
        batch: list[SentMarker] = []
        held: list[SentMarker] = []
        markers: dict[ProducerId, Marker] = {}
        while waiting and len(batch) + len(held) < MARKERS_PER_REQUEST:
            item = waiting.popleft()
            if not item.is_wanted():
                continue
            if markers.setdefault(item.marker.producer_id, item.marker) == item.marker:
                batch.append(item)
            else:
                held.append(item)
        waiting.extendleft(reversed(held))
        return batch

    async def send(self, connection: Connection, batch: Sequence[SentMarker]) -> None:
        """Send markers, and tell the result of each."""
        response = await connection.request(_request(batch), WriteTxnMarkersResponse)
        codes = _codes(response)
        for item in batch:
            place = item.marker.producer_id, item.key
            item.ended(codes.get(place, ErrorCode.UNKNOWN_SERVER_ERROR))

    def failed(self, batch: Sequence[SentMarker], error: KafkaError) -> None:
        """Tell that there is no result; the markers may have been written."""
        for item in batch:
            item.ended(ErrorCode.NETWORK_EXCEPTION)


def _request(batch: Sequence[SentMarker]) -> WriteTxnMarkersRequest:
    found: dict[Marker, dict[TopicName, list[int]]] = {}
    for item in batch:
        topics = found.setdefault(item.marker, {})
        topics.setdefault(item.key.topic, []).append(item.key.partition)
    return WriteTxnMarkersRequest(
        markers=tuple(
            WritableTxnMarker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=marker.is_commit,
                topics=tuple(
                    WritableTxnMarkerTopic(name=name, partition_indexes=tuple(indexes))
                    for name, indexes in topics.items()
                ),
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.transaction_version,
            )
            for marker, topics in found.items()
        )
    )


def _codes(response: WriteTxnMarkersResponse) -> _Codes:
    return {
        (result.producer_id, TopicPartition(topic.name, found.partition_index)): error_code_of(
            found.error_code
        )
        for result in response.markers
        for topic in result.topics
        for found in topic.partitions
    }
