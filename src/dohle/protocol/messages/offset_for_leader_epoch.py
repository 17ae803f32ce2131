"""OffsetForLeaderEpoch, api key 23: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import BrokerId, TopicName
from dohle.protocol.fields import array, int16, int32, int64, string
from dohle.protocol.schema import Request, Response, Struct


class OffsetForLeaderPartition(Struct):
    partition: int = int32("0+")
    current_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    leader_epoch: int = int32("0+")


class OffsetForLeaderTopic(Struct):
    topic: TopicName = string("0+")
    partitions: tuple[OffsetForLeaderPartition, ...] = array(OffsetForLeaderPartition, "0+")


class OffsetForLeaderEpochRequest(Request, api_key=23, versions="0-4", flexible="4+"):
    replica_id: BrokerId = int32("3+", default=-2, ignorable=True)
    topics: tuple[OffsetForLeaderTopic, ...] = array(OffsetForLeaderTopic, "0+")


class EpochEndOffset(Struct):
    error_code: int = int16("0+")
    partition: int = int32("0+")
    leader_epoch: int = int32("1+", default=-1, ignorable=True)
    end_offset: int = int64("0+", default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic: TopicName = string("0+")
    partitions: tuple[EpochEndOffset, ...] = array(EpochEndOffset, "0+")


class OffsetForLeaderEpochResponse(Response, api_key=23, versions="0-4", flexible="4+"):
    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: tuple[OffsetForLeaderTopicResult, ...] = array(OffsetForLeaderTopicResult, "0+")
