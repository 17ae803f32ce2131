"""Where a consumer begins to read partitions that it was given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dohle.client.cluster import Cluster
from dohle.client.config import ConsumerConfig, OffsetReset
from dohle.client.consumer.fetched import PartitionReader
from dohle.client.consumer.offsets import resolve_starts
from dohle.client.consumer.starts import Beginning, End, Start
from dohle.client.group.commits import OffsetCommits
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicPartition


async def offsets_of_starts(
    cluster: Cluster,
    config: ConsumerConfig,
    commits: OffsetCommits | None,
    starts: Mapping[TopicPartition, Start | None],
) -> dict[TopicPartition, int]:
    """Return the offsets of starts: where the group has committed, of those that are not said."""
    said = {each: start for each, start in starts.items() if start is not None}
    offsets = await resolve_starts(cluster, said, config.isolation_level)
    unsaid = [each for each in starts if each not in said]
    if unsaid and commits is not None:
        found = await commits.committed(unsaid)
        offsets |= {each: place.offset for each, place in found.items()}
    if missing := [each for each in unsaid if each not in offsets]:
        offsets |= await _reset_offsets(cluster, config, missing)
    return offsets


async def readers_where_committed(
    cluster: Cluster,
    config: ConsumerConfig,
    commits: OffsetCommits,
    partitions: Iterable[TopicPartition],
    *,
    stop_at_end: bool,
) -> list[PartitionReader]:
    """Return readers of partitions that the group has assigned."""
    found = await commits.committed(partitions)
    offsets = {each: place.offset for each, place in found.items()}
    if missing := [each for each in partitions if each not in offsets]:
        offsets |= await _reset_offsets(cluster, config, missing)
    readers = await readers_at(cluster, config, offsets, stop_at_end=stop_at_end)
    for reader in readers:
        if reader.partition in found:
            reader.position_epoch = found[reader.partition].leader_epoch
    return readers


async def _reset_offsets(
    cluster: Cluster, config: ConsumerConfig, partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the offsets by ``auto_offset_reset``, of partitions without a committed one."""
    policy = config.auto_offset_reset
    if policy is OffsetReset.NONE:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"group {config.group_id} has no committed offset for "
            f"{', '.join(map(str, partitions))}, and auto_offset_reset is none",
        )
    start = Beginning() if policy is OffsetReset.EARLIEST else End()
    return await resolve_starts(cluster, dict.fromkeys(partitions, start), config.isolation_level)


async def readers_at(
    cluster: Cluster,
    config: ConsumerConfig,
    offsets: Mapping[TopicPartition, int],
    *,
    stop_at_end: bool,
) -> list[PartitionReader]:
    """Return readers of partitions from these offsets on, to the ends that there are now or on."""
    for topic in sorted({partition.topic for partition in offsets}):
        await cluster.topic(topic)
    ends: Mapping[TopicPartition, int] = {}
    if stop_at_end:
        ends = await resolve_starts(cluster, dict.fromkeys(offsets, End()), config.isolation_level)
    return [
        PartitionReader(partition, offset, ends.get(partition))
        for partition, offset in offsets.items()
    ]
