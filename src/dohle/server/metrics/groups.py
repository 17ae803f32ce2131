"""Groups with their lag, by kafka_exporter's names, and both coordinators, by Kafka's.

Only what this broker coordinates is told, so that sums over brokers are right. Group ids come from
clients: of more than ``GROUPS_MAX`` groups the others are counted, but have no series of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice

from dohle.groups.coordinator import GroupCoordinator
from dohle.groups.group import Group, GroupType
from dohle.metrics.exposition import family, labels, single
from dohle.server.broker import BrokerServer
from dohle.server.metrics.sources import Sources

GROUPS_MAX = 10_000

_MANAGER = "kafka_coordinator_group_groupmetadatamanager"
_COORDINATOR = "kafka_server_group_coordinator_metrics"
#: Kafka's names of the states of classic groups, by those that clients see.
_CLASSIC_STATES = {
    "Empty": "numgroupsempty",
    "PreparingRebalance": "numgroupspreparingrebalance",
    "CompletingRebalance": "numgroupscompletingrebalance",
    "Stable": "numgroupsstable",
    "Dead": "numgroupsdead",
}
_CONSUMER_STATES = ("Empty", "Assigning", "Reconciling", "Stable", "Dead")


def collect_groups(sources: Sources) -> Iterator[str]:
    """Tell of all groups that this broker coordinates."""
    broker = sources.broker
    if broker is None:
        return
    states: Counter[tuple[GroupType, str]] = Counter()
    offset_count = 0
    for machine, group in _groups(broker):
        states[group.type, group.state_name] += 1
        for offsets in (machine.offsets.store.of_group(group.group_id) or {}).values():
            offset_count += len(offsets)
        yield ""
    yield from _counts(states, offset_count)
    yield from single(
        f"{_COORDINATOR}_offset_commit_total",
        "counter",
        "Offsets that groups have committed here.",
        broker.offset_commits,
    )
    yield from family(
        "kafka_consumergroup_members",
        "gauge",
        "The members of a group.",
        (
            (labels({"consumergroup": group.group_id}), group.member_count)
            for _, group in islice(_groups(broker), GROUPS_MAX)
        ),
    )
    if sources.per_partition:
        for name, doc, of_partition in (
            ("current_offset", "The offset that a group has committed.", _committed),
            ("lag", "How many records of a partition a group has not read yet.", _lag),
        ):
            yield from family(
                f"kafka_consumergroup_{name}", "gauge", doc, _of_partitions(broker, of_partition)
            )
    for name, doc, of_partition in (
        ("current_offset_sum", "The sum of the offsets that a group has committed.", _committed),
        ("lag_sum", "How many records of a topic a group has not read yet.", _lag),
    ):
        yield from family(
            f"kafka_consumergroup_{name}", "gauge", doc, _of_topics(broker, of_partition)
        )


def _counts(states: Counter[tuple[GroupType, str]], offset_count: int) -> Iterator[str]:
    classic = {state: states[GroupType.CLASSIC, state] for state in _CLASSIC_STATES}
    consumer = {state: states[GroupType.CONSUMER, state] for state in _CONSUMER_STATES}
    total = sum(classic.values())
    yield from single(f"{_MANAGER}_numgroups", "gauge", "Groups of the classic protocol.", total)
    for state, count in classic.items():
        name = f"{_MANAGER}_{_CLASSIC_STATES[state]}"
        yield from single(name, "gauge", f"Those of them in the state {state}.", count)
    yield from single(f"{_MANAGER}_numoffsets", "gauge", "Offsets committed.", offset_count)
    yield from family(
        f"{_COORDINATOR}_group_count",
        "gauge",
        "Groups by protocol.",
        [
            (labels({"protocol": GroupType.CLASSIC.value}), total),
            (labels({"protocol": GroupType.CONSUMER.value}), sum(consumer.values())),
        ],
    )
    yield from family(
        f"{_COORDINATOR}_consumer_group_count",
        "gauge",
        "Groups of the newer protocol by state.",
        [(labels({"state": state.lower()}), count) for state, count in consumer.items()],
    )


def _groups(broker: BrokerServer) -> Iterator[tuple[GroupCoordinator, Group]]:
    for _, machine in broker.groups.active():
        for group in list(machine.context.groups.values()):
            yield machine, group


#: Returns what is told of a partition; None if there is nothing to tell.
_OfPartition = Callable[[BrokerServer, str, int, int], int | None]


def _committed(broker: BrokerServer, topic: str, partition: int, offset: int) -> int | None:
    return offset


def _lag(broker: BrokerServer, topic: str, partition: int, offset: int) -> int | None:
    found = broker.partitions.get(topic, partition)
    if found is None or not found.is_led:
        return None
    return max(0, found.log.high_watermark - offset)


def _offsets(broker: BrokerServer) -> Iterator[tuple[str, str, list[tuple[int, int]]]]:
    """Go through groups and topics, with the committed offset of each partition."""
    for machine, group in islice(_groups(broker), GROUPS_MAX):
        committed = machine.offsets.store.of_group(group.group_id) or {}
        for topic, offsets in list(committed.items()):
            told = [(index, found.offset) for index, found in sorted(offsets.items())]
            yield group.group_id, topic, told


def _of_partitions(broker: BrokerServer, tell: _OfPartition) -> Iterator[tuple[str, int]]:
    for group_id, topic, offsets in _offsets(broker):
        for index, offset in offsets:
            told = tell(broker, topic, index, offset)
            if told is not None:
                pairs = {"consumergroup": group_id, "topic": topic, "partition": index}
                yield labels(pairs), told


def _of_topics(broker: BrokerServer, tell: _OfPartition) -> Iterator[tuple[str, int]]:
    for group_id, topic, offsets in _offsets(broker):
        told = [tell(broker, topic, index, offset) for index, offset in offsets]
        known = [each for each in told if each is not None]
        if known:
            yield labels({"consumergroup": group_id, "topic": topic}), sum(known)
