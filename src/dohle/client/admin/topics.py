"""Administration of topics: create, delete, list, describe, partitions, offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from dohle.client.admin.requests import AdminRequests, several, sort_out
from dohle.client.admin.results import Results
from dohle.client.admin.topic_values import CreatedTopic, EligibleLeaders, NewTopic
from dohle.client.config import IsolationLevel
from dohle.client.metadata import TopicInfo
from dohle.client.net.connection import Connection
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, TopicName, TopicPartition
from dohle.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from dohle.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from dohle.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from dohle.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)

if TYPE_CHECKING:
    from dohle.client.consumer.offsets import OffsetInfo
    from dohle.client.consumer.starts import EndStart

_DELETE_TOPICS_BY_STATE = 6


class TopicAdmin(AdminRequests):
    """Changes and describes topics."""

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> Results[TopicName, CreatedTopic]:
        """Create topics, or only check whether they could be created."""
        request = CreateTopicsRequest(
            topics=tuple(map(_creatable, several(topics, "topics"))),
            timeout_ms=self._cluster.config.request_timeout_ms,
            validate_only=validate_only,
        )

        async def ask(connection: Connection) -> Results[TopicName, CreatedTopic]:
            answer = await connection.request(request, CreateTopicsResponse)
            return sort_out(
                (
                    each.name,
                    each.error_code,
                    f"topic {each.name}",
                    each.error_message,
                    _created(each),
                )
                for each in answer.topics
            )

        return await self._ask_controller("create topics", ask)

    async def delete_topics(self, names: Iterable[str]) -> Results[TopicName, None]:
        """Delete topics with all their records."""
        topics = tuple(map(TopicName, several(names, "names")))
        timeout_ms = self._cluster.config.request_timeout_ms

        async def ask(connection: Connection) -> Results[TopicName, None]:
            if connection.version_of(DeleteTopicsRequest) >= _DELETE_TOPICS_BY_STATE:
                states = tuple(DeleteTopicState(name=name) for name in topics)
                request = DeleteTopicsRequest(topics=states, timeout_ms=timeout_ms)
            else:
                request = DeleteTopicsRequest(topic_names=topics, timeout_ms=timeout_ms)
            answer = await connection.request(request, DeleteTopicsResponse)
            return sort_out(
                (each.name, each.error_code, f"topic {each.name}", each.error_message, None)
                for each in answer.responses
                if each.name is not None
            )

        return await self._ask_controller("delete topics", ask)

    async def list_topics(self) -> Mapping[TopicName, TopicInfo]:
        """Return all topics, including internal ones."""
        metadata = await self._cluster.retry("list topics", lambda: self._cluster.refresh(None))
        return metadata.topics

    async def describe_topics(self, names: Iterable[str]) -> Results[TopicName, TopicInfo]:
        """Return the current state of some topics; asking does not create them."""
        topics = tuple(map(TopicName, several(names, "names")))
        metadata = await self._cluster.retry(
            "describe topics", lambda: self._cluster.refresh(topics)
        )
        unknown = KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ("the broker's response does not contain it")
        )
        return Results(
            {name: metadata.topics[name] for name in topics if name in metadata.topics},
            {
                name: metadata.errors.get(name, unknown)
                for name in topics
                if name not in metadata.topics
            },
        )

    async def describe_eligible_leaders(
        self, names: Iterable[str]
    ) -> Mapping[TopicPartition, EligibleLeaders]:
        """Return who may lead the partitions of some topics besides their in-sync replicas.

        A topic that is not there has none. UNSUPPORTED_VERSION if no broker can tell.
        """
        topics = tuple(TopicRequest(name=TopicName(name)) for name in sorted(set(names)))
        found: dict[TopicPartition, EligibleLeaders] = {}
        cursor: Cursor | None = None

        async def ask(connection: Connection) -> DescribeTopicPartitionsResponse:
            request = DescribeTopicPartitionsRequest(topics=topics, cursor=cursor)
            return await connection.request(request, DescribeTopicPartitionsResponse)

        while topics:
            page = await self._ask_any("describe topic partitions", ask)
            for topic in page.topics:
                for each in topic.partitions:
                    key = TopicPartition(TopicName(topic.name or ""), each.partition_index)
                    found[key] = EligibleLeaders(
                        each.eligible_leader_replicas or (), each.last_known_elr or ()
                    )
            cursor = page.next_cursor
            if cursor is None:
                break
        return found

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
    ) -> Results[TopicName, None]:
        """Raise the numbers of partitions to these counts.

        ``assignments`` gives the brokers of each new partition of a topic.
        """
        request = CreatePartitionsRequest(
            topics=tuple(
                CreatePartitionsTopic(
                    name=TopicName(name),
                    count=count,
                    assignments=_new_assignments((assignments or {}).get(name)),
                )
                for name, count in counts.items()
            ),
            timeout_ms=self._cluster.config.request_timeout_ms,
            validate_only=validate_only,
        )

        async def ask(connection: Connection) -> Results[TopicName, None]:
            answer = await connection.request(request, CreatePartitionsResponse)
            return sort_out(
                (each.name, each.error_code, f"topic {each.name}", each.error_message, None)
                for each in answer.results
            )

        return await self._ask_controller("create partitions", ask)

    async def list_offsets(
        self,
        starts: Mapping[TopicPartition, EndStart],
        *,
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        timeout_ms: int | None = None,
    ) -> Results[TopicPartition, OffsetInfo]:
        """Look up offsets; -1 if no record matches, such as none after a time.

        ``timeout_ms`` is the time for all of it, by default that of the client's settings.
        """
        from dohle.client.consumer.offsets import list_offsets

        return await list_offsets(self._cluster, starts, isolation_level, timeout_ms=timeout_ms)


def _creatable(topic: NewTopic) -> CreatableTopic:
    if not isinstance(topic, NewTopic):
        raise TypeError(f"topics has {topic!r}: pass NewTopic(name, partitions=...)")
    return CreatableTopic(
        name=TopicName(topic.name),
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        assignments=tuple(
            CreatableReplicaAssignment(
                partition_index=partition, broker_ids=tuple(map(BrokerId, brokers))
            )
            for partition, brokers in topic.assignments.items()
        ),
        configs=tuple(
            CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()
        ),
    )


def _created(result: CreatableTopicResult) -> CreatedTopic:
    # Only who creates topics needs them: listing topics is quicker without.
    from dohle.client.admin.config_values import ConfigEntry
    from dohle.client.admin.configs import entry_source

    configs = tuple(
        ConfigEntry(
            each.name,
            each.value,
            entry_source(each.config_source),
            is_read_only=each.read_only,
            is_sensitive=each.is_sensitive,
        )
        for each in result.configs or ()
    )
    return CreatedTopic(
        result.name, result.topic_id, result.num_partitions, result.replication_factor, configs
    )


def _new_assignments(
    assignments: Sequence[Sequence[int]] | None,
) -> tuple[CreatePartitionsAssignment, ...] | None:
    if assignments is None:
        return None
    return tuple(
        CreatePartitionsAssignment(broker_ids=tuple(map(BrokerId, brokers)))
        for brokers in assignments
    )
