"""DescribeLogDirs, api key 35: request and response.

Written by tools/import_schemas.py; do not edit.
"""

from __future__ import annotations

from dohle.core.ids import TopicName
from dohle.protocol.fields import array, boolean, int16, int32, int64, string
from dohle.protocol.schema import Request, Response, Struct


class DescribableLogDirTopic(Struct):
    topic: TopicName = string("0+")
    partitions: tuple[int, ...] = array(int32, "0+")


class DescribeLogDirsRequest(Request, api_key=35, versions="0-4", flexible="2+"):
    topics: tuple[DescribableLogDirTopic, ...] | None = array(
        DescribableLogDirTopic, "0+", nullable=True
    )


class DescribeLogDirsPartition(Struct):
    partition_index: int = int32("0+")
    partition_size: int = int64("0+")
    offset_lag: int = int64("0+")
    is_future_key: bool = boolean("0+")


class DescribeLogDirsTopic(Struct):
    name: TopicName = string("0+")
    partitions: tuple[DescribeLogDirsPartition, ...] = array(DescribeLogDirsPartition, "0+")


class DescribeLogDirsResult(Struct):
    error_code: int = int16("0+")
    log_dir: str = string("0+")
    topics: tuple[DescribeLogDirsTopic, ...] = array(DescribeLogDirsTopic, "0+")
    total_bytes: int = int64("4+", default=-1, ignorable=True)
    usable_bytes: int = int64("4+", default=-1, ignorable=True)


class DescribeLogDirsResponse(Response, api_key=35, versions="0-4", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("3+", ignorable=True)
    results: tuple[DescribeLogDirsResult, ...] = array(DescribeLogDirsResult, "0+")
