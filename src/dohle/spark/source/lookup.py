"""Asks brokers what there is to read: the partitions of a subscription, and offsets in them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from dohle.client import At, Beginning, Cluster, End, IsolationLevel, TimedOut, TopicInfo
from dohle.client.consumer.offsets import list_offsets
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName, TopicPartition
from dohle.core.uuid import ZERO_UUID, uuid_to_text
from dohle.spark.options import OptionError
from dohle.spark.source.options import (
    Assign,
    Place,
    Places,
    SourceOptions,
    Subscribe,
    SubscribePattern,
    Subscription,
)

_Result = TypeVar("_Result")

_NOT_FOUND = -1
#: A broker that has just started may not know a topic yet.
_UNKNOWN_TOPIC_TRIES = 4


@dataclass(frozen=True, slots=True)
class Found:
    """The partitions of a subscription that exist."""

    partitions: tuple[TopicPartition, ...]
    topic_ids: Mapping[TopicName, str]
    #: Named topics that do not exist.
    missing: tuple[TopicName, ...]
    #: Named partitions that do not exist, of topics that do.
    missing_partitions: tuple[TopicPartition, ...]

    def check_complete(self) -> None:
        """Raise if a named topic or partition does not exist."""
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if self.missing:
            raise KafkaError(unknown, f"no such topic: {', '.join(self.missing)}")
        if self.missing_partitions:
            names = ", ".join(map(str, self.missing_partitions))
            raise KafkaError(unknown, f"no such partition: {names}")


async def find_partitions(
    cluster: Cluster, subscription: Subscription, *, wait_for_missing: bool = True
) -> Found:
    """Ask for the current partitions of a subscription."""
    tries = _UNKNOWN_TOPIC_TRIES if wait_for_missing else 1
    match subscription:
        case SubscribePattern(pattern):
            matches = re.compile(pattern).fullmatch
            await cluster.retry("the list of topics", lambda: cluster.refresh(None))
            topics = [
                topic
                for name, topic in cluster.metadata.topics.items()
                if matches(name) and not topic.is_internal
            ]
            return _found(topics, None, ())
        case Subscribe(names):
            topics, missing = await _topics(cluster, names, tries)
            return _found(topics, None, missing)
        case Assign(partitions):
            names = tuple(dict.fromkeys(each.topic for each in partitions))
            topics, missing = await _topics(cluster, names, tries)
            return _found(topics, partitions, missing)


async def _topics(
    cluster: Cluster, names: tuple[TopicName, ...], tries_max: int
) -> tuple[list[TopicInfo], tuple[TopicName, ...]]:
    missing: tuple[TopicName, ...] = ()
    for tries in range(tries_max):
        if tries:
            await asyncio.sleep(cluster.backoff.delay_s(tries))
        await cluster.retry("topics", lambda: cluster.refresh(names))
        known = cluster.metadata.topics
        missing = tuple(name for name in names if name not in known)
        if not missing:
            break
    for name in missing:
        error = cluster.metadata.errors.get(name)
        if error is not None and error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise error
    return [cluster.metadata.topics[name] for name in names if name not in missing], missing


def _found(
    topics: Iterable[TopicInfo],
    only: tuple[TopicPartition, ...] | None,
    missing: tuple[TopicName, ...],
) -> Found:
    existing = {
        TopicPartition(topic.name, number): topic for topic in topics for number in topic.partitions
    }
    wanted = tuple(sorted(existing)) if only is None else only
    return Found(
        tuple(partition for partition in wanted if partition in existing),
        {
            topic.name: uuid_to_text(topic.topic_id)
            for topic in existing.values()
            if topic.topic_id != ZERO_UUID
        },
        missing,
        tuple(each for each in wanted if each not in existing and each.topic not in missing),
    )


async def latest_offsets(
    cluster: Cluster, partitions: Iterable[TopicPartition], isolation_level: IsolationLevel
) -> dict[TopicPartition, int]:
    """Return the end of partitions for this isolation level."""
    return await _offsets(cluster, dict.fromkeys(partitions, End()), isolation_level)


async def earliest_offsets(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return where partitions begin."""
    return await _offsets(cluster, dict.fromkeys(partitions, Beginning()))


async def resolve_places(
    cluster: Cluster,
    places: Places,
    partitions: tuple[TopicPartition, ...],
    options: SourceOptions,
    *,
    latest_if_none_so_late: bool,
) -> dict[TopicPartition, int]:
    """Turn an option's positions into offsets of these partitions."""
    wanted = _places_of(places, partitions)
    offsets = {partition: at.offset for partition, at in wanted.items() if isinstance(at, At)}
    to_list = {partition: at for partition, at in wanted.items() if not isinstance(at, At)}
    level = options.isolation_level
    offsets.update(await _offsets(cluster, to_list, level))
    late = [partition for partition, offset in offsets.items() if offset == _NOT_FOUND]
    if late and not latest_if_none_so_late:
        raise OptionError(
            f"option {places.option}: no record of {', '.join(map(str, late))} has that time or a "
            "later one; with startingOffsetsByTimestampStrategy=latest reading begins at the end"
        )
    offsets.update(await latest_offsets(cluster, late, level))
    return {partition: offsets[partition] for partition in partitions}


def _places_of(
    places: Places, partitions: tuple[TopicPartition, ...]
) -> dict[TopicPartition, Place]:
    """Return a position for each partition; all of them must be named, and no others."""
    if places.each is None:
        assert places.everywhere is not None
        return dict.fromkeys(partitions, places.everywhere)
    without = [str(partition) for partition in partitions if partition not in places.each]
    if without:
        raise OptionError(
            f"option {places.option} must name all partitions that are read, and lacks "
            f"{', '.join(without)}; -2 means earliest and -1 latest"
        )
    others = [str(partition) for partition in places.each if partition not in partitions]
    if others:
        raise OptionError(
            f"option {places.option} names partitions that are not read: {', '.join(others)}"
        )
    return {partition: places.each[partition] for partition in partitions}


async def _offsets(
    cluster: Cluster,
    places: Mapping[TopicPartition, Place],
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[TopicPartition, int]:
    asked = {partition: at for partition, at in places.items() if not isinstance(at, At)}
    if not asked:
        return {}
    listed = (await list_offsets(cluster, asked, isolation_level)).ok()
    return {partition: found.offset for partition, found in listed.items()}


async def try_again(options: SourceOptions, operation: Callable[[], Awaitable[_Result]]) -> _Result:
    """Look something up, with as many retries as ``fetchOffset.numRetries`` says.

    Below it the client retries as long as it may: after that it is not started again.
    """
    for _ in range(options.offset_lookup_retries):
        try:
            return await operation()
        except KafkaError as error:
            is_final = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if is_final or isinstance(error, TimedOut) or not error.code.retriable:
                raise
        await asyncio.sleep(options.offset_lookup_retry_interval_ms / 1000)
    return await operation()
