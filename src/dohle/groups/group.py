"""What every group implements, whatever its protocol. The errors are Kafka's."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple, Protocol

from dohle.protocol.record_framing import CoordinatorRecord


class GroupType(StrEnum):
    """The protocol of a group, by its name in ListGroups."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class Caller(NamedTuple):
    """The sender of a request, as shown in a member's description."""

    client_id: str
    #: As Kafka writes an address: "/127.0.0.1".
    client_host: str
    #: The client id of the request.
    version: int
    #: Tells whether the sender may see a topic; None: it may see all.
    may_see: Callable[[str], bool] | None = None


class Group(Protocol):
    """A group of either protocol."""

    @property
    def group_id(self) -> str:
        """Its name."""

    @property
    def type(self) -> GroupType:
        """Its protocol."""

    @property
    def protocol_type(self) -> str:
        """The kind of its members: mostly "consumer"; "" if unknown."""

    @property
    def state_name(self) -> str:
        """Its state as ListGroups shows it."""

    @property
    def is_empty(self) -> bool:
        """Tell whether it has no members."""

    @property
    def member_count(self) -> int:
        """How many members it has."""

    @property
    def empty_since_ms(self) -> int | None:
        """The wall-clock time at which the last member left, if the group ever had members.

        None while it has members, and for a group that only commits offsets (a simple group).
        """

    @property
    def uses_group_management(self) -> bool:
        """Tell whether it has, or had, members: otherwise offsets expire by their commit time."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Tell whether a member subscribes to the topic; True if that is not known."""

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id_or_member_epoch: int,
        *,
        is_transactional: bool,
        version: int,
    ) -> None:
        """Refuse a commit from someone who is not, or no longer, a member."""

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Refuse a fetch (v9+) from someone who is not, or no longer, a member."""

    def validate_offset_delete(self) -> None:
        """Refuse the deletion of offsets in a group that is still active."""

    def validate_delete_group(self) -> None:
        """Refuse the deletion of a group that has members."""

    def tombstones(self) -> list[CoordinatorRecord]:
        """Return the records that delete the group (but not its offsets)."""
