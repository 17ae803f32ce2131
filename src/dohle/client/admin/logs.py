"""Administration of what is on disk: log directories, and records that are deleted from logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dohle.client.admin.log_dir_values import LogDirDescription, ReplicaCleaning, ReplicaDescription
from dohle.client.admin.requests import AdminRequests
from dohle.client.admin.results import Results
from dohle.client.errors import answered_error
from dohle.client.leader_requests import ask_leaders
from dohle.client.metadata import PartitionInfo
from dohle.client.net.connection import Connection
from dohle.core.errors import KafkaError
from dohle.core.ids import BrokerId, TopicName, TopicPartition
from dohle.protocol.extensions import CLEANING_TAG, CleaningDescription, extension
from dohle.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from dohle.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)


class LogAdmin(AdminRequests):
    """Describes log directories, and deletes the oldest records of partitions."""

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> Results[TopicPartition, int]:
        """Delete all records before these offsets (-1: all); return the new log start offsets."""
        timeout_ms = self._cluster.config.request_timeout_ms

        async def ask(
            connection: Connection, group: Mapping[TopicPartition, PartitionInfo]
        ) -> dict[TopicPartition, int | KafkaError]:
            topics: dict[TopicName, list[DeleteRecordsPartition]] = {}
            for partition in group:
                entry = DeleteRecordsPartition(
                    partition_index=partition.partition, offset=before[partition]
                )
                topics.setdefault(partition.topic, []).append(entry)
            request = DeleteRecordsRequest(
                topics=tuple(
                    DeleteRecordsTopic(name=name, partitions=tuple(entries))
                    for name, entries in topics.items()
                ),
                timeout_ms=timeout_ms,
            )
            answer = await connection.request(request, DeleteRecordsResponse)
            found: dict[TopicPartition, int | KafkaError] = {}
            for topic in answer.topics:
                for each in topic.partitions:
                    partition = TopicPartition(topic.name, each.partition_index)
                    error = answered_error(each.error_code, f"records of {partition}")
                    found[partition] = error if each.error_code else each.low_watermark
            return found

        return await ask_leaders(self._cluster, "delete records", before, ask)

    async def describe_log_dirs(
        self,
        broker_ids: Iterable[int] | None = None,
        *,
        topics: Mapping[str, Iterable[int]] | None = None,
        with_cleaning: bool = False,
    ) -> Results[BrokerId, tuple[LogDirDescription, ...]]:
        """Return the log directories of brokers, by default of all, and the replicas in them.

        ``with_cleaning`` asks how far compacted logs are cleaned, which only dohle's brokers tell.
        """
        if broker_ids is None:
            broker_ids = [broker.node_id for broker in await self._cluster.brokers()]
        nodes = [BrokerId(node_id) for node_id in broker_ids]
        request = DescribeLogDirsRequest(
            topics=None
            if topics is None
            else tuple(
                DescribableLogDirTopic(topic=TopicName(name), partitions=tuple(partitions))
                for name, partitions in topics.items()
            )
        )

        async def ask(connection: Connection) -> tuple[LogDirDescription, ...]:
            message = request
            version = connection.version_of(DescribeLogDirsRequest)
            if with_cleaning and DescribeLogDirsRequest.FLEXIBLE.covers(version):
                message = request.replace(unknown_tags=((CLEANING_TAG, b""),))
            answer = await connection.request(message, DescribeLogDirsResponse)
            if answer.error_code:
                raise answered_error(answer.error_code, f"log dirs of {connection.address}")
            return tuple(map(_log_dir, answer.results))

        return await self._ask_brokers(nodes, "describe log dirs", ask)


def _cleaning(partition: DescribeLogDirsPartition) -> ReplicaCleaning | None:
    content = extension(partition, CLEANING_TAG)
    if content is None:
        return None
    found, _ = CleaningDescription.decode(0, content)
    last_ms = found.last_cleaned_ms
    return ReplicaCleaning(
        found.dirty_ratio, last_ms if last_ms >= 0 else None, found.uncleanable_reason
    )


def _log_dir(result: DescribeLogDirsResult) -> LogDirDescription:
    replicas = tuple(
        ReplicaDescription(
            TopicPartition(topic.name, each.partition_index),
            each.partition_size,
            each.offset_lag,
            each.is_future_key,
            _cleaning(each),
        )
        for topic in result.topics
        for each in topic.partitions
    )
    error = answered_error(result.error_code, result.log_dir) if result.error_code else None
    return LogDirDescription(
        result.log_dir, error, replicas, result.total_bytes, result.usable_bytes
    )
