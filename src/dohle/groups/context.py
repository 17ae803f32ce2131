"""What the parts of the group coordinator share: the groups, the timers, and access to topics.

There is one for each partition of ``__consumer_offsets``. The parts are the classic groups, the
consumer groups (KIP-848) and the offsets; each has its commands, replays its own records and gets
its own timers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from dohle.coordination.timers import Timers
from dohle.core.ids import TopicName, Uuid
from dohle.core.seams import Clock, Rng
from dohle.groups.group import Group
from dohle.groups.settings import GroupSettings


class GroupTimerKey(NamedTuple):
    """The purpose of a deadline. ``part`` is its owner: classic, consumer or offsets."""

    part: str
    kind: str
    group_id: str = ""
    member_id: str = ""


@dataclass(slots=True)
class ShardTurns:
    """Lets the shards of a broker take turns with long work; they share one."""

    #: No shard has a turn before this time.
    rest_until_ms: int = 0


class Topics(Protocol):
    """The group coordinator's view of the cluster's topics: as of the newest image."""

    def id_of(self, name: str) -> Uuid | None:
        """Return a topic's id; None if there is no such topic."""

    def name_of(self, topic_id: Uuid) -> TopicName | None:
        """Return a topic's name; None if there is no such topic."""

    def partition_count(self, name: str) -> int:
        """Return how many partitions a topic has; 0 if there is no such topic."""

    def racks(self, name: str, partition: int) -> Sequence[str]:
        """Return the rack of each broker that has a replica of a partition, with duplicates."""

    def names(self) -> Collection[TopicName]:
        """Return all topic names."""

    def version(self) -> int:
        """Return the offset of the newest image."""


def without_unknown(names: Collection[str], topics: Topics) -> Collection[str]:
    """Return names without most of those that are no topic's, if they are more than the topics.

    A member may subscribe to very many topics that do not exist.
    """
    known = topics.names()
    return names if len(names) <= len(known) else [name for name in known if name in names]


def _no_configs(group_id: str) -> Mapping[str, str]:
    return {}


@dataclass(slots=True)
class GroupContext:
    """The shared state of one shard."""

    clock: Clock
    rng: Rng
    #: The current settings; a part asks for them every time.
    settings: Callable[[], GroupSettings]
    topics: Topics
    #: The configs that are set for a group.
    group_configs: Callable[[str], Mapping[str, str]] = _no_configs
    groups: dict[str, Group] = field(default_factory=dict)
    timers: Timers[GroupTimerKey] = field(default_factory=Timers)
    turns: ShardTurns = field(default_factory=ShardTurns)
