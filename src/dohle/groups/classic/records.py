"""The record of a classic group: one generation with its members and their assignments."""

from __future__ import annotations

from collections.abc import Mapping

from dohle.groups.classic.group import ClassicGroup, ClassicState
from dohle.groups.classic.member import ClassicMember
from dohle.groups.classic.protocols import offer_at_once
from dohle.protocol.messages.records.classic_group import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from dohle.protocol.record_framing import CoordinatorRecord

GROUP_METADATA_VERSION = 3

_NO_TIME = -1
_NO_TIMEOUT = -1


def group_record(group: ClassicGroup, assignments: Mapping[str, bytes]) -> CoordinatorRecord:
    """Return the record of a group's generation, with an assignment for every member."""
    return _record(
        group,
        GroupMetadataValue(
            protocol_type=group.protocol_type,
            generation=group.generation,
            protocol=group.protocol_name,
            leader=group.leader_id,
            current_state_timestamp=_time(group),
            members=tuple(
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(group.protocol_name),
                    assignment=assignments[member.member_id],
                )
                for member in group.members.values()
            ),
        ),
    )


def new_group_record(group: ClassicGroup) -> CoordinatorRecord:
    """Return the record that registers a group before its first generation."""
    return _record(
        group,
        GroupMetadataValue(protocol=None, leader=None, current_state_timestamp=_time(group)),
    )


def group_of(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """Return the group of a record: Stable if it has members, else Empty."""
    group = ClassicGroup(group_id, _NO_TIME)
    for member in value.members:
        group.add(
            ClassicMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.session_timeout
                if member.rebalance_timeout == _NO_TIMEOUT
                else member.rebalance_timeout,
                member.session_timeout,
                value.protocol_type,
                offer_at_once([(value.protocol or "", member.subscription)]),
                member.assignment,
            )
        )
    group.state = ClassicState.STABLE if value.members else ClassicState.EMPTY
    since_ms = value.current_state_timestamp
    group.state_since_ms = None if since_ms == _NO_TIME else since_ms
    group.generation = value.generation
    group.protocol_type = value.protocol_type
    group.protocol_name = value.protocol
    if value.leader in group.members:
        group.leader_id = value.leader
    group.compute_subscribed_topics()
    return group


def _time(group: ClassicGroup) -> int:
    return _NO_TIME if group.state_since_ms is None else group.state_since_ms


def _record(group: ClassicGroup, value: GroupMetadataValue) -> CoordinatorRecord:
    return CoordinatorRecord(GroupMetadataKey(group=group.group_id), value, GROUP_METADATA_VERSION)
