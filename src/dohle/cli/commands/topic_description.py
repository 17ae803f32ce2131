"""What ``dohle topic describe`` shows: partitions, offsets, and the topic's own configs.

Who else may lead (KIP-966) is asked of brokers that know, and shown where there is somebody.
Of a compacted topic also how far its leaders have cleaned it, if they are dohle's: no API of
Kafka's tells that.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from dohle.cli import soon
from dohle.cli.errors import report_note
from dohle.cli.output import print_json, print_table
from dohle.cli.session import describe_kafka_error
from dohle.client import (
    Beginning,
    ConfigResource,
    ConfigSource,
    End,
    ResourceType,
    Results,
)
from dohle.client.metadata import NO_LEADER
from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, TopicPartition
from dohle.core.uuid import uuid_to_text

if TYPE_CHECKING:
    from dohle.client import Admin, OffsetInfo, PartitionInfo, PartitionReassignment, TopicInfo
    from dohle.client.admin.config_values import ConfigEntry
    from dohle.client.admin.log_dir_values import LogDirDescription, ReplicaCleaning
    from dohle.client.admin.topic_values import EligibleLeaders

#: Columns that are shown only if there is something in them.
_SELDOM = ("elr", "lastKnownElr", "offlineReplicas")


async def describe(admin: Admin, topics: Sequence[TopicInfo]) -> list[dict[str, object]]:
    """Return the details of each topic; those of all topics are requested together.

    What does not come soon is left out, with a note: this is what one looks at when nodes hang.
    """
    if not topics:
        return []
    resources = [ConfigResource(ResourceType.TOPIC, topic.name) for topic in topics]
    # A leader that hangs is known by what it owes: the rest is asked of others.
    starts, ends = await _start_and_end_offsets(admin, topics)
    own = (await admin.describe_configs(resources)).ok()
    compacted = [
        topic
        for topic, resource in zip(topics, resources, strict=True)
        if _is_compacted(own[resource])
    ]
    eligible = await _eligible(admin, topics)
    cleaning = await _cleaning(admin, compacted)
    latest = await _as_of_now(admin, topics)
    # A broker answers in order, and passes this on: without a controller, nothing comes after it.
    ongoing = await _reassignments(admin)
    found = []
    for topic, resource in zip(latest, resources, strict=True):
        set_here = {
            entry.name: entry.value
            for entry in own[resource]
            if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
        }
        found.append(_description(topic, set_here, starts, ends, eligible, cleaning, ongoing))
    return found


async def under_replicated(admin: Admin, topics: Sequence[TopicInfo]) -> list[dict[str, object]]:
    """Return the partitions that have replicas out of sync.

    As in Kafka's tool, those that a reassignment adds do not count before it is complete.
    """
    ongoing = await _reassignments(admin)
    found: list[dict[str, object]] = []
    for topic in topics:
        for number, partition in sorted(topic.partitions.items()):
            moving = ongoing.get(TopicPartition(topic.name, number))
            wanted = set(partition.replicas) - set(moving.adding if moving else ())
            if not wanted <= set(partition.isr):
                found.append(
                    {
                        "topic": topic.name,
                        "partition": number,
                        "leader": partition.leader_id,
                        "replicas": partition.replicas,
                        "isr": partition.isr,
                    }
                )
    return found


async def _as_of_now(admin: Admin, topics: Sequence[TopicInfo]) -> list[TopicInfo]:
    """Return topics with the leaders that they have after all else was asked."""
    asked = admin.describe_topics(topic.name for topic in topics)
    found = await soon.wait("the leaders shown may have changed", asked, Results({}))
    return [found.done.get(topic.name, topic) for topic in topics]


async def _eligible(
    admin: Admin, topics: Sequence[TopicInfo]
) -> Mapping[TopicPartition, EligibleLeaders]:
    nobody: Mapping[TopicPartition, EligibleLeaders] = {}
    return await soon.wait(
        "eligible leaders are not shown",
        admin.describe_eligible_leaders(topic.name for topic in topics),
        nobody,
        expected=(ErrorCode.UNSUPPORTED_VERSION,),
    )


async def _reassignments(admin: Admin) -> Mapping[TopicPartition, PartitionReassignment]:
    """Return what is going on; one who may see topics may not see that."""
    nothing: Mapping[TopicPartition, PartitionReassignment] = {}
    return await soon.wait(
        "reassignments are not shown, since the controller tells of them",
        admin.list_partition_reassignments(),
        nothing,
        expected=(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION),
    )


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
    nothing: Results[BrokerId, tuple[LogDirDescription, ...]] = Results({})
    everything = await asyncio.gather(
        *(
            soon.wait(
                f"what broker {leader} has cleaned is not shown",
                admin.describe_log_dirs([leader], topics=partitions, with_cleaning=True),
                nothing,
                expected=(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION),
            )
            for leader, partitions in led.items()
        )
    )
    for described in everything:
        for directories in described.done.values():
            for directory in directories:
                for replica in directory.replicas:
                    if replica.cleaning is not None:
                        found[replica.partition] = replica.cleaning
    return found


async def _start_and_end_offsets(
    admin: Admin, topics: Sequence[TopicInfo]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Look up offsets; a partition whose leader does not answer soon has none to show."""
    led = [
        TopicPartition(topic.name, one.partition)
        for topic in topics
        for one in topic.partitions.values()
        if one.leader_id != NO_LEADER
    ]
    if not led:
        return {}, {}
    # Each leader is asked twice, if need be.
    timeout_ms = round(2_000 * soon.SOON_S)
    starts, ends = await asyncio.gather(
        *(
            admin.list_offsets(dict.fromkeys(led, place), timeout_ms=timeout_ms)
            for place in (Beginning(), End())
        )
    )
    missing = {**starts.errors, **ends.errors}
    if missing:
        first, error = next(iter(missing.items()))
        report_note(
            f"offsets of {len(missing)} partitions are not shown, {first} among them: "
            f"{describe_kafka_error(error)}"
        )
    return _offsets_of(starts), _offsets_of(ends)


def _offsets_of(results: Results[TopicPartition, OffsetInfo]) -> dict[TopicPartition, int]:
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
