"""The ``range`` assignor: each subscriber of a topic gets a contiguous range of its partitions.

Every topic is divided among its subscribers in the same order of members. So if all members
subscribe to the same topics and these have the same number of partitions, a member gets the same
partition numbers of each (co-partitioning, which joins rely on). Static members come first, by
instance id: a restarted one has a new member id, but keeps its position and thus its partitions.
"""

from __future__ import annotations

from dohle.core.ids import Uuid
from dohle.groups.assignors.assignment import Assignment, Members, PartitionCounts, partition_count


def assign_ranges(members: Members, partition_counts: PartitionCounts) -> dict[str, Assignment]:
    """Divide each topic into ranges whose lengths differ by at most one, the longer ones first."""
    subscribers: dict[Uuid, list[str]] = {}
    for member_id in sorted(members, key=lambda member_id: _place(members, member_id)):
        for topic_id in members[member_id].subscribed_topic_ids:
            subscribers.setdefault(topic_id, []).append(member_id)
    assignments: dict[str, dict[Uuid, frozenset[int]]] = {member_id: {} for member_id in members}
    for topic_id, member_ids in subscribers.items():
        quota, extra = divmod(partition_count(partition_counts, topic_id), len(member_ids))
        start = 0
        for place, member_id in enumerate(member_ids):
            end = start + quota + (place < extra)
            if start == end:
                break
            assignments[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return dict(assignments)


def _place(members: Members, member_id: str) -> tuple[bool, str]:
    instance_id = members[member_id].instance_id
    return (True, member_id) if instance_id is None else (False, instance_id)
