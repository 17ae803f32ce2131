"""Administration of where partitions are: on which brokers, and in which of their directories."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from dohle.client.admin.cluster_values import PartitionReassignment, PartitionReplica
from dohle.client.admin.requests import AdminRequests, sort_out
from dohle.client.admin.results import Results
from dohle.client.errors import answered_error
from dohle.client.net.connection import Connection
from dohle.core.errors import KafkaError
from dohle.core.ids import BrokerId, TopicName, TopicPartition
from dohle.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from dohle.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
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

    async def alter_replica_log_dirs(
        self, places: Mapping[PartitionReplica, str]
    ) -> Results[PartitionReplica, None]:
        """Begin to move replicas to other directories of their brokers, by path.

        A broker that does not have a replica yet answers REPLICA_NOT_AVAILABLE, and remembers where
        to make it.
        """
        by_broker: dict[BrokerId, dict[PartitionReplica, str]] = {}
        for replica, path in places.items():
            by_broker.setdefault(replica.broker_id, {})[replica] = path

        async def of_one(broker: BrokerId) -> Results[PartitionReplica, None]:
            try:
                return await self._alter_dirs_of(broker, by_broker[broker])
            except KafkaError as error:
                return Results({}, dict.fromkeys(by_broker[broker], error))

        done: dict[PartitionReplica, None] = {}
        errors: dict[PartitionReplica, KafkaError] = {}
        for results in await asyncio.gather(*map(of_one, by_broker)):
            done |= results.done
            errors |= results.errors
        return Results(done, errors)

    async def _alter_dirs_of(
        self, broker: BrokerId, places: Mapping[PartitionReplica, str]
    ) -> Results[PartitionReplica, None]:
        paths: dict[str, dict[TopicName, list[int]]] = {}
        for (key, _), path in places.items():
            paths.setdefault(path, {}).setdefault(key.topic, []).append(key.partition)
        request = AlterReplicaLogDirsRequest(
            dirs=tuple(
                AlterReplicaLogDir(
                    path=path,
                    topics=tuple(
                        AlterReplicaLogDirTopic(name=name, partitions=tuple(numbers))
                        for name, numbers in topics.items()
                    ),
                )
                for path, topics in paths.items()
            )
        )

        async def ask(connection: Connection) -> Results[PartitionReplica, None]:
            answer = await connection.request(request, AlterReplicaLogDirsResponse)
            return sort_out(
                (
                    PartitionReplica(
                        key := TopicPartition(topic.topic_name, each.partition_index), broker
                    ),
                    each.error_code,
                    f"{key} on broker {broker}",
                    None,
                    None,
                )
                for topic in answer.results
                for each in topic.partitions
            )

        return await self._ask_broker(broker, "alter replica log dirs", ask)
