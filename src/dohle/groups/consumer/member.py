"""A member of a consumer group: what it reported, and its progress towards its assignment."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Protocol

from dohle.core.ids import Uuid
from dohle.groups.assignors.assignment import Assignment
from dohle.protocol.messages.records.consumer_group import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
)

#: The member epoch of a request that joins.
JOIN_EPOCH = 0
#: The member epoch of a member that leaves for good.
LEAVE_EPOCH = -1
#: The member epoch of a static member that leaves temporarily: its place is kept for a session.
LEAVE_STATIC_EPOCH = -2

NO_PARTITIONS: Assignment = {}


class MemberState(IntEnum):
    """A member's progress, as its records hold it."""

    STABLE = 0
    #: It has to give partitions back before it gets the next epoch.
    UNREVOKED_PARTITIONS = 1
    #: It is in the target's epoch; partitions of its target still belong to others.
    UNRELEASED_PARTITIONS = 2
    #: A state of a newer release.
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


class PartitionsOfTopic(Protocol):
    """Partitions of a topic, the form that several messages use."""

    @property
    def topic_id(self) -> Uuid:
        """The topic."""

    @property
    def partitions(self) -> tuple[int, ...]:
        """Its partitions."""


def assignment_of(topics: Iterable[PartitionsOfTopic]) -> Assignment:
    """Convert a message's partitions to an assignment."""
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics}


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """A member according to its records; a change creates a new value."""

    member_id: str
    member_epoch: int = JOIN_EPOCH
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    subscribed_topic_regex: str | None = ""
    server_assignor: str | None = None
    assigned: Assignment = field(default_factory=dict)
    pending_revocation: Assignment = field(default_factory=dict)
    #: Set if it uses the classic protocol.
    classic: ClassicMemberMetadata | None = None

    @property
    def regex(self) -> str | None:
        """The regular expression that it subscribes to; None for an empty one."""
        return self.subscribed_topic_regex or None

    @property
    def uses_classic_protocol(self) -> bool:
        """Tell whether it joined by JoinGroup."""
        return self.classic is not None

    @property
    def classic_protocols(self) -> tuple[ClassicProtocol, ...]:
        """What it offered in JoinGroup, the preferred one first."""
        return () if self.classic is None else self.classic.supported_protocols

    def is_reconciled_to(self, target_epoch: int) -> bool:
        """Tell whether it has exactly its target."""
        return self.state is MemberState.STABLE and self.member_epoch == target_epoch

    def told_the_same_as(self, other: ConsumerMember) -> bool:
        """Tell whether the other, derived from this one, differs only in its assignment."""
        return (
            self.subscribed_topic_names is other.subscribed_topic_names
            and self.subscribed_topic_regex is other.subscribed_topic_regex
            and self.server_assignor is other.server_assignor
            and self.classic is other.classic
        )

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
        """Return the member with the metadata of such a record."""
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_topic_names=frozenset(value.subscribed_topic_names),
            subscribed_topic_regex=value.subscribed_topic_regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=value.classic_member_metadata,
        )

    def with_current_assignment(
        self, value: ConsumerGroupCurrentMemberAssignmentValue
    ) -> ConsumerMember:
        """Return the member with the assignment of such a record."""
        return replace(
            self,
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=MemberState(value.state),
            assigned=assignment_of(value.assigned_partitions),
            pending_revocation=assignment_of(value.partitions_pending_revocation),
        )
