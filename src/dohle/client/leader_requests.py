"""Requests about many partitions: each leader is asked about its own.

An unknown topic or partition is retried only a few times: right after its creation a broker may not
know it yet, but more often the name is wrong.

No leader is waited for longer than half of the time for the whole call: by then its partitions may
have others, and these have to be asked in what is left. With Kafka's defaults (30 s of 60 s) that
is the request timeout, after which Kafka's admin client looks up leaders anew, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from dohle.client.admin.results import Results
from dohle.client.cluster import Cluster
from dohle.client.metadata import PartitionInfo
from dohle.client.net.connection import Connection
from dohle.client.node_requests import ask_nodes
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, TopicPartition

_Value = TypeVar("_Value")
#: Asks one leader about some partitions and returns the result of each.
Ask = Callable[
    [Connection, Mapping[TopicPartition, PartitionInfo]],
    Awaitable[Mapping[TopicPartition, _Value | KafkaError]],
]

_UNKNOWN_PARTITION_TRIES = 4
_UNKNOWN_PARTITION = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


async def ask_leaders(
    cluster: Cluster,
    what: str,
    partitions: Iterable[TopicPartition],
    ask: Ask[_Value],
    *,
    timeout_ms: int | None = None,
) -> Results[TopicPartition, _Value]:
    """Ask the leaders of the partitions until each has a value or a final error."""
    wanted = list(partitions)
    infos: dict[TopicPartition, PartitionInfo] = {}

    async def locate(some: Iterable[TopicPartition]) -> dict[TopicPartition, BrokerId | KafkaError]:
        found: dict[TopicPartition, BrokerId | KafkaError] = {}
        for partition in some:
            try:
                leader, infos[partition] = await cluster.leader_of(partition)
                found[partition] = leader.node_id
            except KafkaError as error:
                found[partition] = error
        return found

    async def ask_leader(
        connection: Connection, some: list[TopicPartition]
    ) -> Mapping[TopicPartition, _Value | KafkaError]:
        return await ask(connection, {partition: infos[partition] for partition in some})

    def is_settled(error: KafkaError, tries: int) -> bool:
        return error.code in _UNKNOWN_PARTITION and tries >= _UNKNOWN_PARTITION_TRIES

    timeout_ms = timeout_ms or cluster.config.api_timeout_ms
    topics = {partition.topic for partition in wanted}
    return await ask_nodes(
        cluster,
        what,
        wanted,
        locate,
        ask_leader,
        topics=topics,
        is_settled=is_settled,
        timeout_ms=timeout_ms,
        patience_ms=min(cluster.config.request_timeout_ms, timeout_ms // 2),
    )
