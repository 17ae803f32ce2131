"""The ``uniform`` assignor: as even as possible, with as few moves as possible.

Balance takes precedence over stickiness. Members with the same subscription end up with numbers of
partitions that differ by at most one, and a member loses only what exceeds its share. Members with
different subscriptions cannot always be that even; there, each topic is balanced among its
subscribers until no single move makes the numbers more even.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from itertools import islice

from dohle.core.ids import Uuid
from dohle.groups.assignors.assignment import (
    Assignment,
    Members,
    PartitionCounts,
    is_homogeneous,
    partition_count,
)

#: Balancing one topic can unbalance another if subscriptions overlap. Each round about halves the
#: imbalance, so this is far more than is needed to come close; it bounds the time.
_LEVELLING_ROUNDS_MAX = 16

_UNOWNED = -1


def assign_uniformly(members: Members, partition_counts: PartitionCounts) -> dict[str, Assignment]:
    """Give members equal numbers of partitions, as many as possible of those they had."""
    if is_homogeneous(members):
        return _assign_homogeneous(members, partition_counts)
    return _HeterogeneousAssignment(members, partition_counts).assign()


def _assign_homogeneous(
    members: Members, partition_counts: PartitionCounts
) -> dict[str, Assignment]:
    """Each member keeps up to its share; then free partitions go to members below their share."""
    if not members:
        return {}
    member_ids = sorted(members)
    topic_ids = sorted(members[member_ids[0]].subscribed_topic_ids)
    free = {
        topic_id: set(range(partition_count(partition_counts, topic_id))) for topic_id in topic_ids
    }
    partitions = sum(map(len, free.values()))
    kept: dict[str, Assignment] = {}
    for member_id in member_ids:
        kept[member_id] = owned = _still_valid(members[member_id].assigned, free)
        for topic_id, parts in owned.items():
            free[topic_id] -= parts
    sizes = {member_id: sum(map(len, owned.values())) for member_id, owned in kept.items()}
    return {**kept, **share_out(member_ids, kept, sizes, free, partitions)}


def share_out(
    member_ids: Sequence[str],
    kept: Mapping[str, Assignment],
    sizes: Mapping[str, int],
    free: Mapping[Uuid, Iterable[int]],
    partitions: int,
) -> dict[str, Assignment]:
    """Balance members with the same subscription; return those who gain or lose partitions.

    They are given in the order of their ids. What they keep is valid and owned by nobody else;
    ``free`` is the rest of all ``partitions``, with the topics in order. For members that need no
    change only the size is examined: there may be thousands, and just one has joined.
    """
    quota, extra = divmod(partitions, len(member_ids))
    changed: dict[str, Assignment] = {}
    left = {topic_id: set(parts) for topic_id, parts in free.items()}
    for place, member_id in enumerate([id_ for id_ in member_ids if sizes[id_] > quota]):
        share = quota + (place < extra)
        if sizes[member_id] > share:
            changed[member_id] = keeps = _first(kept[member_id], share)
            for topic_id, parts in kept[member_id].items():
                left[topic_id] |= parts - keeps.get(topic_id, frozenset())
    below = [id_ for id_ in member_ids if sizes[id_] <= quota]
    # For members above the quota, the extra partition is already counted.
    extra = max(0, extra - (len(member_ids) - len(below)))
    unassigned = iter([(topic_id, index) for topic_id in left for index in sorted(left[topic_id])])
    takers = [(id_, quota + 1) for id_ in below[:extra]]
    takers += [(id_, quota) for id_ in below[extra:] if sizes[id_] < quota]
    for member_id, share in takers:
        taken = list(islice(unassigned, share - sizes[member_id]))
        changed[member_id] = _with(kept.get(member_id, {}), taken)
    return changed


def _still_valid(assigned: Assignment, free: Mapping[Uuid, set[int]]) -> Assignment:
    """Leave out partitions that are not subscribed to, do not exist, or have another owner."""
    if all(topic_id in free and parts <= free[topic_id] for topic_id, parts in assigned.items()):
        return assigned
    both = {
        topic_id: parts & free[topic_id] for topic_id, parts in assigned.items() if topic_id in free
    }
    return {topic_id: parts for topic_id, parts in both.items() if parts}


def _first(assigned: Assignment, count: int) -> Assignment:
    """Keep this many partitions, of whole topics if possible."""
    first: dict[Uuid, frozenset[int]] = {}
    for topic_id in sorted(assigned):
        if count == 0:
            break
        partitions = assigned[topic_id]
        if len(partitions) > count:
            partitions = frozenset(sorted(partitions)[:count])
        first[topic_id] = partitions
        count -= len(partitions)
    return first


def _with(assigned: Assignment, added: Sequence[tuple[Uuid, int]]) -> Assignment:
    by_topic: dict[Uuid, list[int]] = {}
    for topic_id, partition in added:
        by_topic.setdefault(topic_id, []).append(partition)
    result = dict(assigned)
    for topic_id, partitions in by_topic.items():
        result[topic_id] = assigned.get(topic_id, frozenset()).union(partitions)
    return result


class _HeterogeneousAssignment:
    """The assignment of a group whose members subscribe to different topics.

    Members are numbered in the order of their ids. A heap entry is one integer, ``size *
    len(members) + number``: among equally loaded members the first one wins.
    """

    def __init__(self, members: Members, partition_counts: PartitionCounts) -> None:
        self._member_ids = sorted(members)
        self._members = members
        self._sizes = [0] * len(members)
        self._subscribers: dict[Uuid, list[int]] = {}
        for number, member_id in enumerate(self._member_ids):
            for topic_id in members[member_id].subscribed_topic_ids:
                self._subscribers.setdefault(topic_id, []).append(number)
        #: The number of each partition's owner.
        self._owners = {
            topic_id: [_UNOWNED] * partition_count(partition_counts, topic_id)
            for topic_id in self._subscribers
        }

    def assign(self) -> dict[str, Assignment]:
        """Keep what can be kept, hand out what is free, then balance."""
        self._keep()
        # Topics with few subscribers for many partitions leave the least choice: they go first.
        topic_ids = sorted(self._owners, key=self._urgency)
        for topic_id in topic_ids:
            self._give_away(topic_id)
        shared = [topic_id for topic_id in topic_ids if len(self._subscribers[topic_id]) > 1]
        for _ in range(_LEVELLING_ROUNDS_MAX):
            if sum([self._level(topic_id) for topic_id in shared]) == 0:
                break
        return self._result()

    def _urgency(self, topic_id: Uuid) -> tuple[float, int, Uuid]:
        subscriber_count = len(self._subscribers[topic_id])
        return -len(self._owners[topic_id]) / subscriber_count, subscriber_count, topic_id

    def _keep(self) -> None:
        for number, member_id in enumerate(self._member_ids):
            member = self._members[member_id]
            for topic_id, partitions in member.assigned.items():
                if topic_id not in member.subscribed_topic_ids:
                    continue
                owners = self._owners[topic_id]
                for partition in partitions:
                    if partition < len(owners) and owners[partition] == _UNOWNED:
                        owners[partition] = number
                        self._sizes[number] += 1

    def _give_away(self, topic_id: Uuid) -> None:
        """Give each partition without an owner to the subscriber with the fewest partitions."""
        owners = self._owners[topic_id]
        if _UNOWNED not in owners:
            return
        sizes, width = self._sizes, len(self._sizes)
        takers = [sizes[number] * width + number for number in self._subscribers[topic_id]]
        heapify(takers)
        for partition, owner in enumerate(owners):
            if owner == _UNOWNED:
                taker = takers[0] % width
                owners[partition] = taker
                sizes[taker] += 1
                heapreplace(takers, takers[0] + width)

    def _level(self, topic_id: Uuid) -> int:
        """Move partitions from subscribers with the most to those with the fewest.

        The heaps need not be told of each other's changes: a member that gave one away still has at
        least as many as the one that took it, so their roles could only swap once they differ by at
        most one.
        """
        subscribers, sizes, width = self._subscribers[topic_id], self._sizes, len(self._sizes)
        subscriber_sizes = [sizes[number] for number in subscribers]
        if max(subscriber_sizes) - min(subscriber_sizes) <= 1:
            return 0
        owners = self._owners[topic_id]
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners):
            owned.setdefault(owner, []).append(partition)
        takers = [sizes[number] * width + number for number in subscribers]
        heapify(takers)
        givers = [-(sizes[number] * width + number) for number in owned]
        heapify(givers)
        moved = 0
        while givers:
            giver, taker = -givers[0] % width, takers[0] % width
            if sizes[giver] - sizes[taker] <= 1:
                break
            owners[owned[giver].pop()] = taker
            sizes[giver] -= 1
            sizes[taker] += 1
            moved += 1
            heapreplace(takers, takers[0] + width)
            if owned[giver]:
                heapreplace(givers, givers[0] + width)
            else:
                heappop(givers)
        return moved

    def _result(self) -> dict[str, Assignment]:
        assigned: list[dict[Uuid, list[int]]] = [{} for _ in self._member_ids]
        for topic_id, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                assigned[owner].setdefault(topic_id, []).append(partition)
        return {
            member_id: {topic_id: frozenset(partitions) for topic_id, partitions in mine.items()}
            for member_id, mine in zip(self._member_ids, assigned, strict=True)
        }
