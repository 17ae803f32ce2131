"""What is asked of every group, whatever its protocol. The errors are Kafka's."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, Protocol

from dohle.protocol.record_framing import CoordinatorRecord


class GroupType(StrEnum):
    """The protocol of a group, as ListGroups calls it."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class Caller(NamedTuple):
    """Who sends a request; a member's description shows it."""

    client_id: str
    #: As Kafka writes an address: "/127.0.0.1".
    client_host: str
    #: Of the request.
    version: int


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
        """What its members are: "consumer", mostly; "" if nobody has said."""

    @property
    def state_name(self) -> str:
        """Its state as ListGroups shows it."""

    @property
    def is_empty(self) -> bool:
        """Tell whether it has no members."""

    @property
    def empty_since_ms(self) -> int | None:
        """When it lost its last member, by the wall clock, if it is a group with members at all.

        None while it has members, and for a group that only commits offsets (a simple group).
        """

    @property
    def uses_group_management(self) -> bool:
        """Tell whether it has, or had, members: offsets of others expire by their commit time."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Tell whether a member wants the topic; True where that is not known."""

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id_or_member_epoch: int,
        *,
        is_transactional: bool,
        version: int,
    ) -> None:
        """Refuse a commit of somebody who is not, or no longer, a member."""

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Refuse a fetch (v9+) of somebody who is not, or no longer, a member."""

    def validate_offset_delete(self) -> None:
        """Refuse the deletion of offsets in a group that still lives."""

    def validate_delete_group(self) -> None:
        """Refuse the deletion of a group that has members."""

    def tombstones(self) -> list[CoordinatorRecord]:
        """Return what deletes the group (not its offsets) from the log."""
