"""What the parts of the group coordinator share: the groups, the timers, and what they may ask.

One for each partition of ``__consumer_offsets``. The parts are the classic groups, the consumer
groups (KIP-848) and the offsets; each has its commands, replays its own records and gets its own
timers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from dohle.coordination.timers import Timers
from dohle.core.ids import TopicName, Uuid
from dohle.core.seams import Clock, Rng
from dohle.groups.group import Group
from dohle.groups.settings import GroupSettings


class TimerKey(NamedTuple):
    """What a deadline is for. ``part`` is whose it is: classic, consumer or offsets."""

    part: str
    kind: str
    group_id: str = ""
    member_id: str = ""


@dataclass(slots=True)
class Turns:
    """Lets the shards of a broker take turns with what takes long; they share one."""

    #: Until then nobody has one.
    rest_until_ms: int = 0


class Topics(Protocol):
    """What the group coordinator sees of the cluster: as of the newest image."""

    def id_of(self, name: str) -> Uuid | None:
        """Return a topic's id; None if there is no such topic."""

    def name_of(self, topic_id: Uuid) -> TopicName | None:
        """Return a topic's name; None if there is no such topic."""

    def partition_count(self, name: str) -> int:
        """Return how many partitions a topic has; 0 if there is no such topic."""

    def racks(self, name: str, partition: int) -> Sequence[str]:
        """Return the rack of each broker that has a replica of a partition, with repeats."""

    def names(self) -> Iterable[TopicName]:
        """Return all topics."""

    def version(self) -> int:
        """Return the offset of the newest image."""


def _no_configs(group_id: str) -> Mapping[str, str]:
    return {}


@dataclass(slots=True)
class GroupContext:
    """One for each shard."""

    clock: Clock
    rng: Rng
    #: In force now; a part asks every time.
    settings: Callable[[], GroupSettings]
    topics: Topics
    #: The configs that a group has of its own.
    group_configs: Callable[[str], Mapping[str, str]] = _no_configs
    groups: dict[str, Group] = field(default_factory=dict)
    timers: Timers[TimerKey] = field(default_factory=Timers)
    turns: Turns = field(default_factory=Turns)
