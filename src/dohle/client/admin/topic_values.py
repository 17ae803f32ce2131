"""Topics as an admin client's arguments and results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dohle.core.ids import BrokerId, TopicName, Uuid

if TYPE_CHECKING:
    from dohle.client.admin.config_values import ConfigEntry

#: Lets the broker choose, by ``num.partitions`` or ``default.replication.factor``.
BROKER_DEFAULT = -1


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; with assignments (brokers by partition) the counts are left out."""

    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic that was, or could be, created; counts are -1 if the broker does not return them."""

    name: TopicName
    topic_id: Uuid
    partitions: int
    replication_factor: int
    configs: tuple[ConfigEntry, ...]


@dataclass(frozen=True, slots=True)
class EligibleLeaders:
    """Who may lead a partition besides its in-sync replicas (KIP-966)."""

    #: Those that have all acknowledged records, though they are not in sync.
    eligible: tuple[BrokerId, ...]
    #: Who led last, if nobody is left that is known to have them.
    last_known: tuple[BrokerId, ...]
