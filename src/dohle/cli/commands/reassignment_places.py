"""In which directories of their brokers replicas are to be, where a plan names them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from posixpath import normpath
from typing import TYPE_CHECKING

from dohle.core.errors import ErrorCode

if TYPE_CHECKING:
    from dohle.client import Admin, PartitionReplica

_PERIOD_S = 0.5


async def place_replicas(admin: Admin, places: Mapping[PartitionReplica, str]) -> None:
    """Begin to move replicas to their directories; those that are not there yet begin in them."""
    results = await admin.alter_replica_log_dirs(places)
    for error in results.errors.values():
        if error.code is not ErrorCode.REPLICA_NOT_AVAILABLE:
            raise error


async def misplaced(admin: Admin, places: Mapping[PartitionReplica, str]) -> set[PartitionReplica]:
    """Return the replicas that are not, or not yet, in their directories."""
    from dohle.client import PartitionReplica

    if not places:
        return set()
    topics: defaultdict[str, set[int]] = defaultdict(set)
    for key, _ in places:
        topics[key.topic].add(key.partition)
    found: dict[PartitionReplica, str] = {}
    described = await admin.describe_log_dirs({broker for _, broker in places}, topics=topics)
    for broker, directories in described.ok().items():
        for directory in directories:
            for replica in directory.replicas:
                if not replica.is_future:
                    found[PartitionReplica(replica.partition, broker)] = normpath(directory.path)
    return {replica for replica, path in places.items() if found.get(replica) != normpath(path)}


async def await_places(admin: Admin, places: Mapping[PartitionReplica, str]) -> None:
    """Return when all replicas are in their directories, but for those of deleted topics.

    A move that is wanted of one that was just made is asked for again.
    """
    while left := await misplaced(admin, places):
        there = (await admin.describe_topics({key.topic for key, _ in left})).done
        left = {replica for replica in left if replica.partition.topic in there}
        if not left:
            return
        await place_replicas(admin, {replica: places[replica] for replica in left})
        await asyncio.sleep(_PERIOD_S)
