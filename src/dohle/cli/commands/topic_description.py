"""What ``dohle topic describe`` shows: partitions, offsets, and the topic's own configs.

Who else may lead (KIP-966) is asked of brokers that know, and shown where there is somebody.
Of a compacted topic also how far its leaders have cleaned it, if they are dohle's: no API of
Kafka's tells that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
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
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, TopicPartition
from dohle.core.uuid import uuid_to_text

if TYPE_CHECKING:
    from dohle.client import Admin, PartitionInfo, PartitionReassignment, TopicInfo
    from dohle.client.admin.values import ConfigEntry, EligibleLeaders, ReplicaCleaning

#: Columns that are shown only if there is something in them.
_SELDOM = ("elr", "lastKnownElr", "offlineReplicas")


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
    compacted = [
        topic
        for topic, resource in zip(topics, resources, strict=True)
        if _is_compacted(configs[resource])
    ]
    cleaning = await _cleaning(admin, compacted)
    ongoing = await _reassignments(admin)
    eligible = await _eligible(admin, topics)
    found = []
    for topic, resource in zip(topics, resources, strict=True):
        own = {
            entry.name: entry.value
            for entry in configs[resource]
            if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
        }
        found.append(_description(topic, own, starts, ends, eligible, cleaning, ongoing))
    return found


async def _eligible(
    admin: Admin, topics: Sequence[TopicInfo]
) -> Mapping[TopicPartition, EligibleLeaders]:
    try:
        return await admin.describe_eligible_leaders(topic.name for topic in topics)
    except KafkaError as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            return {}
        raise


async def _reassignments(admin: Admin) -> Mapping[TopicPartition, PartitionReassignment]:
    """Return what is going on; one who may see topics may not see that."""
    try:
        return await admin.list_partition_reassignments()
    except KafkaError:
        return {}


def _is_compacted(entries: Iterable[ConfigEntry]) -> bool:
    return any(
        entry.name == "cleanup.policy" and "compact" in (entry.value or "") for entry in entries
    )


async def _cleaning(
    admin: Admin, topics: Sequence[TopicInfo]
) -> dict[TopicPartition, ReplicaCleaning]:
    """Ask leaders how far they have cleaned; one that does not answer that has nothing to show."""
    led: defaultdict[BrokerId, defaultdict[str, list[int]]]
    led = defaultdict(lambda: defaultdict(list))
    for topic in topics:
        for one in topic.partitions.values():
            if one.leader_id != NO_LEADER:
                led[one.leader_id][topic.name].append(one.partition)
    found = {}
    for leader, partitions in led.items():
        try:
            described = await admin.describe_log_dirs(
                [leader], topics=partitions, with_cleaning=True
            )
        except KafkaError:
            continue  # It is not allowed, for example.
        for directories in described.done.values():
            for directory in directories:
                for replica in directory.replicas:
                    if replica.cleaning is not None:
                        found[replica.partition] = replica.cleaning
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
    eligible: Mapping[TopicPartition, EligibleLeaders],
    cleaning: Mapping[TopicPartition, ReplicaCleaning],
    ongoing: Mapping[TopicPartition, PartitionReassignment],
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
                **_eligible_fields(eligible.get(key)),
                "offlineReplicas": one.offline_replicas,
                **_reassignment_fields(ongoing.get(key)),
                "state": partition_state(one, ongoing.get(key)),
                "startOffset": starts.get(key),
                "endOffset": ends.get(key),
                **_cleaning_fields(cleaning.get(key)),
            }
        )
    return {
        "name": topic.name,
        "topicId": uuid_to_text(topic.topic_id),
        "isInternal": topic.is_internal,
        "configs": dict(sorted(configs.items())),
        "partitions": partitions,
    }


def _eligible_fields(found: EligibleLeaders | None) -> dict[str, object]:
    return {} if found is None else {"elr": found.eligible, "lastKnownElr": found.last_known}


def _reassignment_fields(ongoing: PartitionReassignment | None) -> dict[str, object]:
    if ongoing is None:
        return {}
    return {"addingReplicas": ongoing.adding, "removingReplicas": ongoing.removing}


def partition_state(partition: PartitionInfo, ongoing: PartitionReassignment | None) -> str:
    """Tell whether it can be used, and has the replicas that it is to have.

    As in Kafka, those that a reassignment adds are not missed.
    """
    if partition.leader_id == NO_LEADER:
        return "offline"
    added = () if ongoing is None else ongoing.adding
    wanted = [broker for broker in partition.replicas if broker not in added]
    return "under-replicated" if len(partition.isr) < len(wanted) else "ok"


def _cleaning_fields(cleaning: ReplicaCleaning | None) -> dict[str, object]:
    if cleaning is None:
        return {}
    last_ms = cleaning.last_cleaned_ms
    last = None
    if last_ms is not None:
        last = datetime.fromtimestamp(last_ms / 1000, UTC).isoformat(timespec="seconds")
    return {
        "dirtyRatio": round(cleaning.dirty_ratio, 3),
        "lastCleaned": last,
        "uncleanable": cleaning.uncleanable,
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
    # Some partitions may lack fields, and replicas are seldom offline.
    shown = dict.fromkeys(name for one in partitions for name in one)
    for name in _SELDOM:
        if not any(one.get(name) for one in partitions):
            shown.pop(name, None)
    if all(one["state"] == "ok" for one in partitions):
        shown.pop("state", None)
    print_table([_row(one, shown) for one in partitions], if_empty="")


def _row(partition: Mapping[str, object], names: Iterable[str]) -> dict[str, object]:
    """Return a partition with its lists as text."""
    row: dict[str, object] = {}
    for name in names:
        value = partition.get(name)
        row[name] = ",".join(map(str, value)) if isinstance(value, tuple) else value
    return row
