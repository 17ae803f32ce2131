"""Looks up offsets: the beginning and end of partitions, and the position of a timestamp."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dohle.client.admin.results import Results
from dohle.client.cluster import Cluster
from dohle.client.config import IsolationLevel
from dohle.client.consumer.starts import (
    At,
    Beginning,
    End,
    EndStart,
    LocalBeginning,
    MaxTimestamp,
    Since,
    Start,
    Tail,
)
from dohle.client.errors import answered_error
from dohle.client.leader_requests import ask_leaders
from dohle.client.metadata import PartitionInfo
from dohle.client.net.connection import Connection
from dohle.core.errors import KafkaError
from dohle.core.ids import BrokerId, TopicName, TopicPartition
from dohle.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL = -1, -2, -3, -4
_NO_OFFSET = -1
_CONSUMER = BrokerId(-1)


@dataclass(frozen=True, slots=True)
class OffsetInfo:
    """An offset that was looked up; offset and timestamp are -1 if no record was found."""

    offset: int
    timestamp: int
    leader_epoch: int


def _timestamp(start: EndStart) -> int:
    match start:
        case Beginning():
            return _EARLIEST
        case LocalBeginning():
            return _EARLIEST_LOCAL
        case End():
            return _LATEST
        case MaxTimestamp():
            return _MAX_TIMESTAMP
        case Since(timestamp_ms):
            return timestamp_ms


async def list_offsets(
    cluster: Cluster,
    starts: Mapping[TopicPartition, EndStart],
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    *,
    timeout_ms: int | None = None,
) -> Results[TopicPartition, OffsetInfo]:
    """Ask the leaders for offsets, and return them even if nothing was found."""

    async def ask(
        connection: Connection, group: Mapping[TopicPartition, PartitionInfo]
    ) -> dict[TopicPartition, OffsetInfo | KafkaError]:
        topics: dict[TopicName, list[ListOffsetsPartition]] = {}
        for partition, info in group.items():
            entry = ListOffsetsPartition(
                partition_index=partition.partition,
                current_leader_epoch=info.leader_epoch,
                timestamp=_timestamp(starts[partition]),
            )
            topics.setdefault(partition.topic, []).append(entry)
        answer = await connection.request(
            ListOffsetsRequest(
                replica_id=_CONSUMER,
                isolation_level=isolation_level,
                topics=tuple(
                    ListOffsetsTopic(name=name, partitions=tuple(entries))
                    for name, entries in topics.items()
                ),
                timeout_ms=cluster.config.request_timeout_ms,
            ),
            ListOffsetsResponse,
        )
        found: dict[TopicPartition, OffsetInfo | KafkaError] = {}
        for topic in answer.topics:
            for each in topic.partitions:
                partition = TopicPartition(topic.name, each.partition_index)
                if each.error_code:
                    found[partition] = answered_error(each.error_code, f"offsets of {partition}")
                else:
                    found[partition] = OffsetInfo(each.offset, each.timestamp, each.leader_epoch)
        return found

    return await ask_leaders(cluster, "list offsets", starts, ask, timeout_ms=timeout_ms)


async def resolve_starts(
    cluster: Cluster,
    starts: Mapping[TopicPartition, Start],
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[TopicPartition, int]:
    """Turn positions into offsets; the first error is raised."""
    offsets: dict[TopicPartition, int] = {}
    to_list: dict[TopicPartition, EndStart] = {}
    need_end: list[TopicPartition] = []
    tails: dict[TopicPartition, int] = {}
    for partition, start in starts.items():
        match start:
            case At(offset):
                offsets[partition] = offset
            case Tail(count):
                tails[partition] = count
                need_end.append(partition)
                to_list[partition] = Beginning()
            case _:
                to_list[partition] = start
    listed = (await list_offsets(cluster, to_list, isolation_level)).ok() if to_list else {}
    need_end += [partition for partition, found in listed.items() if found.offset == _NO_OFFSET]
    ends: Mapping[TopicPartition, OffsetInfo] = {}
    if need_end:
        wanted = dict.fromkeys(need_end, End())
        ends = (await list_offsets(cluster, wanted, isolation_level)).ok()
    for partition, found in listed.items():
        if partition in tails:
            offsets[partition] = max(found.offset, ends[partition].offset - tails[partition])
        elif partition in ends:
            offsets[partition] = ends[partition].offset
        else:
            offsets[partition] = found.offset
    return offsets
