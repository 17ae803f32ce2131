"""How the leader of a classic group assigns partitions, under Kafka's names.

Pure functions of the members' subscriptions and the topics' partition counts; a topic that does not
exist has none. Every subscribed partition gets exactly one owner, except that
``cooperative-sticky`` leaves a partition that moves without one until its old owner has revoked it
(KIP-429).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from dohle.client.group.consumer_protocol import Subscription
from dohle.client.group.sticky_user_data import read_user_data
from dohle.core.ids import TopicName, TopicPartition

Members = Mapping[str, Subscription]
PartitionCounts = Mapping[TopicName, int]
Assignment = dict[str, list[TopicPartition]]


@dataclass(frozen=True, slots=True)
class Assignor:
    """An assignment strategy; with a cooperative one members keep their partitions meanwhile."""

    name: str
    assign: Callable[[Members, PartitionCounts], Assignment]
    is_cooperative: bool = False
    #: Whether members say in the subscription's user data what they had.
    has_user_data: bool = False


def assign_ranges(members: Members, counts: PartitionCounts) -> Assignment:
    """Give each member a range of every topic, so that topics alike are divided alike."""
    assignment: Assignment = {member_id: [] for member_id in members}
    for topic in _topics(members, counts):
        subscribers = [each for each in _ordered(members) if topic in members[each].topics]
        share, larger_shares = divmod(counts[topic], len(subscribers))
        start = 0
        for place, member_id in enumerate(subscribers):
            end = start + share + (place < larger_shares)
            assignment[member_id] += [TopicPartition(topic, each) for each in range(start, end)]
            start = end
    return assignment


def assign_round_robin(members: Members, counts: PartitionCounts) -> Assignment:
    """Distribute all partitions of all topics one by one."""
    assignment: Assignment = {member_id: [] for member_id in members}
    circle = _ordered(members)
    turn = 0
    for partition in _partitions(members, counts):
        while partition.topic not in members[circle[turn % len(circle)]].topics:
            turn += 1
        assignment[circle[turn % len(circle)]].append(partition)
        turn += 1
    return assignment


def assign_sticky(members: Members, counts: PartitionCounts) -> Assignment:
    """Balance with as few moves as possible; members have revoked everything."""
    had = {member_id: _with_user_data(each) for member_id, each in members.items()}
    return _assign_sticky(had, counts, _owners(had, counts))


def _with_user_data(subscription: Subscription) -> Subscription:
    owned, generation = read_user_data(subscription.user_data)
    return replace(subscription, owned=owned, generation=generation)


def assign_cooperative_sticky(members: Members, counts: PartitionCounts) -> Assignment:
    """Balance with as few moves as possible; a partition that moves gets its owner next time."""
    owners = _owners(members, counts)
    assignment = _assign_sticky(members, counts, owners)
    return {
        member_id: [each for each in partitions if owners.get(each, member_id) == member_id]
        for member_id, partitions in assignment.items()
    }


def _assign_sticky(
    members: Members, counts: PartitionCounts, owners: Mapping[TopicPartition, str]
) -> Assignment:
    assignment: Assignment = {member_id: [] for member_id in _ordered(members)}
    ownerless: list[TopicPartition] = []
    for partition in _partitions(members, counts):
        owner = owners.get(partition)
        if owner is None:
            ownerless.append(partition)
        else:
            assignment[owner].append(partition)

    def poorest(partition: TopicPartition) -> str:
        subscribers = [each for each in assignment if partition.topic in members[each].topics]
        return min(subscribers, key=lambda member_id: len(assignment[member_id]))

    for partition in ownerless:
        assignment[poorest(partition)].append(partition)

    def move_one() -> bool:
        for rich in sorted(assignment, key=lambda member_id: -len(assignment[member_id])):
            for partition in reversed(assignment[rich]):
                poor = poorest(partition)
                if len(assignment[rich]) - len(assignment[poor]) > 1:
                    assignment[rich].remove(partition)
                    assignment[poor].append(partition)
                    return True
        return False

    # Each move takes from the member with the most that can give, and brings two members closer to
    # each other: so it terminates, and no partition moves in vain.
    while move_one():
        pass
    return assignment


def _owners(members: Members, counts: PartitionCounts) -> dict[TopicPartition, str]:
    """Return the owner of each partition; of several claims, the one of the latest generation."""
    owners: dict[TopicPartition, str] = {}
    disputed: dict[TopicPartition, int] = {}
    for member_id in _ordered(members):
        subscription = members[member_id]
        for partition in subscription.owned:
            exists = partition.partition < counts.get(partition.topic, 0)
            if not exists or partition.topic not in subscription.topics:
                continue
            other = owners.get(partition)
            rival = disputed.get(partition) if other is None else members[other].generation
            if rival is None or subscription.generation > rival:
                owners[partition] = member_id
            elif subscription.generation == rival:
                owners.pop(partition, None)
                disputed[partition] = rival
    return owners


def _ordered(members: Members) -> list[str]:
    """Return the members in a stable order: static ones first, by instance id."""

    def place(member_id: str) -> tuple[bool, str]:
        instance_id = members[member_id].instance_id
        return (instance_id is None, member_id if instance_id is None else instance_id)

    return sorted(members, key=place)


def _topics(members: Members, counts: PartitionCounts) -> list[TopicName]:
    wanted = {topic for subscription in members.values() for topic in subscription.topics}
    return sorted(topic for topic in wanted if counts.get(topic))


def _partitions(members: Members, counts: PartitionCounts) -> Iterator[TopicPartition]:
    for topic in _topics(members, counts):
        for partition in range(counts[topic]):
            yield TopicPartition(topic, partition)


ASSIGNORS = {
    assignor.name: assignor
    for assignor in (
        Assignor("range", assign_ranges),
        Assignor("roundrobin", assign_round_robin),
        Assignor("sticky", assign_sticky, has_user_data=True),
        Assignor("cooperative-sticky", assign_cooperative_sticky, is_cooperative=True),
    )
}

#: Their names in Java's ``partition.assignment.strategy``.
JAVA_CLASSES = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "sticky",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}
