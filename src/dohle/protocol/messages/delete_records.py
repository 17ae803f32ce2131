"""DeleteRecords, api key 21: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import TopicName
from dohle.protocol.fields import array, int16, int32, int64, string
from dohle.protocol.schema import Request, Response, Struct


class DeleteRecordsPartition(Struct):
    partition_index: int = int32("0+")
    offset: int = int64("0+")


class DeleteRecordsTopic(Struct):
    name: TopicName = string("0+")
    partitions: tuple[DeleteRecordsPartition, ...] = array(DeleteRecordsPartition, "0+")


class DeleteRecordsRequest(Request, api_key=21, versions="0-2", flexible="2+"):
    topics: tuple[DeleteRecordsTopic, ...] = array(DeleteRecordsTopic, "0+")
    timeout_ms: int = int32("0+")


class DeleteRecordsPartitionResult(Struct):
    partition_index: int = int32("0+")
    low_watermark: int = int64("0+")
    error_code: int = int16("0+")


class DeleteRecordsTopicResult(Struct):
    name: TopicName = string("0+")
    partitions: tuple[DeleteRecordsPartitionResult, ...] = array(DeleteRecordsPartitionResult, "0+")


class DeleteRecordsResponse(Response, api_key=21, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    topics: tuple[DeleteRecordsTopicResult, ...] = array(DeleteRecordsTopicResult, "0+")
