"""WriteTxnMarkers, api key 27: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import ProducerId, TopicName
from dohle.protocol.fields import array, boolean, int8, int16, int32, int64, string
from dohle.protocol.schema import Request, Response, Struct


class WritableTxnMarkerTopic(Struct):
    name: TopicName = string("0+")
    partition_indexes: tuple[int, ...] = array(int32, "0+")


class WritableTxnMarker(Struct):
    producer_id: ProducerId = int64("0+")
    producer_epoch: int = int16("0+")
    transaction_result: bool = boolean("0+")
    topics: tuple[WritableTxnMarkerTopic, ...] = array(WritableTxnMarkerTopic, "0+")
    coordinator_epoch: int = int32("0+")
    transaction_version: int = int8("2+", ignorable=True)


class WriteTxnMarkersRequest(Request, api_key=27, versions="0-2", flexible="1+"):
    markers: tuple[WritableTxnMarker, ...] = array(WritableTxnMarker, "0+")


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class WritableTxnMarkerTopicResult(Struct):
    name: TopicName = string("0+")
    partitions: tuple[WritableTxnMarkerPartitionResult, ...] = array(
        WritableTxnMarkerPartitionResult, "0+"
    )


class WritableTxnMarkerResult(Struct):
    producer_id: ProducerId = int64("0+")
    topics: tuple[WritableTxnMarkerTopicResult, ...] = array(WritableTxnMarkerTopicResult, "0+")


class WriteTxnMarkersResponse(Response, api_key=27, versions="0-2", flexible="1+"):
    markers: tuple[WritableTxnMarkerResult, ...] = array(WritableTxnMarkerResult, "0+")
