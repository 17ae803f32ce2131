"""Administration of where partitions are: reassigning their replicas to other brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dohle.client.admin.requests import AdminRequests, sort_out
from dohle.client.admin.results import Results
from dohle.client.admin.values import PartitionReassignment
from dohle.client.errors import answered_error
from dohle.client.net.connection import Connection
from dohle.core.ids import BrokerId, TopicName, TopicPartition
from dohle.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from dohle.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)


class ReassignmentAdmin(AdminRequests):
    """Moves replicas from broker to broker."""

    async def alter_partition_reassignments(
        self,
        targets: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> Results[TopicPartition, None]:
        """Begin to move partitions to these brokers, the preferred leader first.

        None in place of the brokers cancels the reassignment of a partition. Brokers before 4.1 do
        not know ``allow_replication_factor_change``.
        """
        topics: dict[TopicName, list[ReassignablePartition]] = {}
        for key, brokers in targets.items():
            replicas = None if brokers is None else tuple(map(BrokerId, brokers))
            entry = ReassignablePartition(partition_index=key.partition, replicas=replicas)
            topics.setdefault(key.topic, []).append(entry)
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=self._cluster.config.request_timeout_ms,
            allow_replication_factor_change=allow_replication_factor_change,
            topics=tuple(
                ReassignableTopic(name=name, partitions=tuple(entries))
                for name, entries in topics.items()
            ),
        )

        async def ask(connection: Connection) -> Results[TopicPartition, None]:
            answer = await connection.request(request, AlterPartitionReassignmentsResponse)
            if answer.error_code:
                what = "partitions cannot be reassigned"
                raise answered_error(answer.error_code, what, answer.error_message)
            return sort_out(
                (
                    key := TopicPartition(topic.name, each.partition_index),
                    each.error_code,
                    str(key),
                    each.error_message,
                    None,
                )
                for topic in answer.responses
                for each in topic.partitions
            )

        return await self._ask_controller("alter partition reassignments", ask)

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """Return the reassignments that are going on: of these partitions, by default of all."""
        wanted: dict[TopicName, list[int]] = {}
        for topic, number in partitions or ():
            wanted.setdefault(topic, []).append(number)
        request = ListPartitionReassignmentsRequest(
            timeout_ms=self._cluster.config.request_timeout_ms,
            topics=None
            if partitions is None
            else tuple(
                ListPartitionReassignmentsTopics(name=topic, partition_indexes=tuple(numbers))
                for topic, numbers in wanted.items()
            ),
        )

        async def ask(connection: Connection) -> dict[TopicPartition, PartitionReassignment]:
            answer = await connection.request(request, ListPartitionReassignmentsResponse)
            if answer.error_code:
                what = "reassignments cannot be listed"
                raise answered_error(answer.error_code, what, answer.error_message)
            return {
                TopicPartition(topic.name, each.partition_index): PartitionReassignment(
                    each.replicas, each.adding_replicas, each.removing_replicas
                )
                for topic in answer.topics
                for each in topic.partitions
            }

        return await self._ask_controller("list partition reassignments", ask)
