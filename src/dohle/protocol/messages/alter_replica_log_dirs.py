"""AlterReplicaLogDirs, api key 34: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import TopicName
from dohle.protocol.fields import array, int16, int32, string
from dohle.protocol.schema import Request, Response, Struct


class AlterReplicaLogDirTopic(Struct):
    name: TopicName = string("0+")
    partitions: tuple[int, ...] = array(int32, "0+")


class AlterReplicaLogDir(Struct):
    path: str = string("0+")
    topics: tuple[AlterReplicaLogDirTopic, ...] = array(AlterReplicaLogDirTopic, "0+")


class AlterReplicaLogDirsRequest(Request, api_key=34, versions="0-2", flexible="2+"):
    dirs: tuple[AlterReplicaLogDir, ...] = array(AlterReplicaLogDir, "0+")


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: TopicName = string("0+")
    partitions: tuple[AlterReplicaLogDirPartitionResult, ...] = array(
        AlterReplicaLogDirPartitionResult, "0+"
    )


class AlterReplicaLogDirsResponse(Response, api_key=34, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    results: tuple[AlterReplicaLogDirTopicResult, ...] = array(AlterReplicaLogDirTopicResult, "0+")
