"""What ``dohle topic describe`` shows: partitions, offsets, and the topic's own configs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dohle.cli.output import print_json, print_table
from dohle.client import (
    Beginning,
    ConfigResource,
    ConfigSource,
    End,
    ResourceType,
)
from dohle.client.metadata import NO_LEADER
from dohle.core.ids import TopicPartition
from dohle.core.uuid import uuid_to_text

if TYPE_CHECKING:
    from dohle.client import Admin, TopicInfo


async def describe(admin: Admin, topics: Sequence[TopicInfo]) -> list[dict[str, object]]:
    """Return the details of each topic; all are requested at once."""
    if not topics:
        return []
    led = [
        TopicPartition(topic.name, one.partition)
        for topic in topics
        for one in topic.partitions.values()
        if one.leader_id != NO_LEADER
    ]
    starts = await _offsets(admin, dict.fromkeys(led, Beginning()))
    ends = await _offsets(admin, dict.fromkeys(led, End()))
    resources = [ConfigResource(ResourceType.TOPIC, topic.name) for topic in topics]
    configs = (await admin.describe_configs(resources)).ok()
    found = []
    for topic, resource in zip(topics, resources, strict=True):
        own = {
            entry.name: entry.value
            for entry in configs[resource]
            if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
        }
        found.append(_description(topic, own, starts, ends))
    return found


async def _offsets(
    admin: Admin, places: Mapping[TopicPartition, Beginning | End]
) -> dict[TopicPartition, int]:
    """Look up offsets; a partition that cannot be reached has none to show."""
    if not places:
        return {}
    results = await admin.list_offsets(places)
    return {partition: found.offset for partition, found in results.done.items()}


def _description(
    topic: TopicInfo,
    configs: Mapping[str, str | None],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> dict[str, object]:
    partitions: list[dict[str, object]] = []
    for one in topic.partitions.values():
        key = TopicPartition(topic.name, one.partition)
        partitions.append(
            {
                "partition": one.partition,
                "leader": one.leader_id,
                "leaderEpoch": one.leader_epoch,
                "replicas": one.replicas,
                "isr": one.isr,
                "offlineReplicas": one.offline_replicas,
                "startOffset": starts.get(key),
                "endOffset": ends.get(key),
            }
        )
    return {
        "name": topic.name,
        "topicId": uuid_to_text(topic.topic_id),
        "isInternal": topic.is_internal,
        "configs": dict(sorted(configs.items())),
        "partitions": partitions,
    }


def print_description(description: Mapping[str, object], *, as_json: bool, is_first: bool) -> None:
    """Print one topic."""
    if as_json:
        print_json(description)
        return
    partitions, configs = description["partitions"], description["configs"]
    assert isinstance(partitions, list)
    assert isinstance(configs, dict)
    if not is_first:
        print()
    internal = ", internal" if description["isInternal"] else ""
    print(f"topic {description['name']} (id {description['topicId']}{internal})")
    for name, value in configs.items():
        print(f"config {name}={value}")
    with_offline = any(one["offlineReplicas"] for one in partitions)
    print_table([_row(one, with_offline=with_offline) for one in partitions], if_empty="")


def _row(partition: Mapping[str, object], *, with_offline: bool) -> dict[str, object]:
    """Return a partition with its lists as text."""
    row: dict[str, object] = {}
    for name, value in partition.items():
        if name != "offlineReplicas" or with_offline:
            row[name] = ",".join(map(str, value)) if isinstance(value, tuple) else value
    return row
