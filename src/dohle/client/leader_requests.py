"""Requests about many partitions: each leader is asked about its own, and each partition answers.

A retriable error concerns only the partitions that had it: these are asked for again, of whoever
leads them by then. That a topic or partition is not known is retried only a few times: right after
its creation a broker may not have heard of it, but more often the name is wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from dohle.client.cluster import Cluster
from dohle.client.connection import Connection
from dohle.client.errors import is_retriable
from dohle.client.metadata import PartitionInfo
from dohle.client.results import Results
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, TopicPartition

_Value = TypeVar("_Value")
#: Asks one leader about some partitions and returns what it says about each.
Ask = Callable[
    [Connection, Mapping[TopicPartition, PartitionInfo]],
    Awaitable[Mapping[TopicPartition, _Value | KafkaError]],
]

_UNKNOWN_PARTITION_TRIES = 4
_UNKNOWN_PARTITION = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


async def ask_leaders(
    cluster: Cluster, what: str, partitions: Iterable[TopicPartition], ask: Ask[_Value]
) -> Results[TopicPartition, _Value]:
    """Ask the leaders of the partitions until each has a value or an error that stays."""
    pending = dict.fromkeys(partitions)
    done: dict[TopicPartition, _Value] = {}
    errors: dict[TopicPartition, KafkaError] = {}
    tries = 0

    async def attempt() -> None:
        nonlocal tries
        tries += 1
        for partition, found in (await _ask_once(cluster, pending, ask)).items():
            if not isinstance(found, KafkaError):
                done[partition] = found
                errors.pop(partition, None)
                del pending[partition]
                continue
            errors[partition] = found
            unknown = found.code in _UNKNOWN_PARTITION and tries >= _UNKNOWN_PARTITION_TRIES
            if unknown or not is_retriable(found):
                del pending[partition]
        for partition in pending:
            raise errors[partition]

    try:
        await cluster.retry(what, attempt, topics={partition.topic for partition in pending})
    except KafkaError as error:
        for partition in pending:
            errors[partition] = error
    return Results(done, errors)


async def _ask_once(
    cluster: Cluster, partitions: Iterable[TopicPartition], ask: Ask[_Value]
) -> dict[TopicPartition, _Value | KafkaError]:
    found: dict[TopicPartition, _Value | KafkaError] = {}
    groups: dict[BrokerId, dict[TopicPartition, PartitionInfo]] = {}
    for partition in partitions:
        try:
            leader, info = await cluster.leader_of(partition)
            groups.setdefault(leader.node_id, {})[partition] = info
        except KafkaError as error:
            found[partition] = error

    async def ask_one(
        node_id: BrokerId, group: Mapping[TopicPartition, PartitionInfo]
    ) -> Mapping[TopicPartition, _Value | KafkaError]:
        try:
            answers = await ask(await cluster.connection(node_id), group)
        except KafkaError as error:
            return dict.fromkeys(group, error)
        missing = KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"broker {node_id} left partitions out of its answer"
        )
        return {partition: answers.get(partition, missing) for partition in group}

    for answers in await asyncio.gather(*(ask_one(*group) for group in groups.items())):
        found.update(answers)
    return found
