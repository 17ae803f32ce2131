"""AssignReplicasToDirs, api key 73: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import BrokerId, Uuid
from dohle.protocol.fields import array, int16, int32, int64, uuid
from dohle.protocol.schema import Request, Response, Struct


class AssignReplicasToDirsRequestPartitionData(Struct):
    partition_index: int = int32("0+")


class AssignReplicasToDirsRequestTopicData(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: tuple[AssignReplicasToDirsRequestPartitionData, ...] = array(
        AssignReplicasToDirsRequestPartitionData, "0+"
    )


class AssignReplicasToDirsRequestDirectoryData(Struct):
    id: Uuid = uuid("0+")
    topics: tuple[AssignReplicasToDirsRequestTopicData, ...] = array(
        AssignReplicasToDirsRequestTopicData, "0+"
    )


class AssignReplicasToDirsRequest(Request, api_key=73, versions="0", flexible="0+"):
    broker_id: BrokerId = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    directories: tuple[AssignReplicasToDirsRequestDirectoryData, ...] = array(
        AssignReplicasToDirsRequestDirectoryData, "0+"
    )


class AssignReplicasToDirsResponsePartitionData(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class AssignReplicasToDirsResponseTopicData(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: tuple[AssignReplicasToDirsResponsePartitionData, ...] = array(
        AssignReplicasToDirsResponsePartitionData, "0+"
    )


class AssignReplicasToDirsResponseDirectoryData(Struct):
    id: Uuid = uuid("0+")
    topics: tuple[AssignReplicasToDirsResponseTopicData, ...] = array(
        AssignReplicasToDirsResponseTopicData, "0+"
    )


class AssignReplicasToDirsResponse(Response, api_key=73, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    directories: tuple[AssignReplicasToDirsResponseDirectoryData, ...] = array(
        AssignReplicasToDirsResponseDirectoryData, "0+"
    )
