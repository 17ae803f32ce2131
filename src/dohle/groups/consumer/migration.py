"""Migration from one protocol to the other while members are live (KIP-848).

A classic group of consumers becomes a consumer group when the first member heartbeats with the
consumer protocol: its members stay, with their assignments, and are served the classic protocol.
When the last member of the consumer protocol goes, the group becomes a classic one again.
``group.consumer.migration.policy`` says which of the two is allowed.
"""

from __future__ import annotations

from collections.abc import Collection

from dohle.coordination.effects import Effects
from dohle.core.errors import ErrorCode, KafkaError
from dohle.groups.assignors.assignment import Assignment
from dohle.groups.classic.commands import ClassicGroups
from dohle.groups.classic.group import ClassicGroup
from dohle.groups.classic.member import ClassicMember
from dohle.groups.classic.protocols import offer_at_once
from dohle.groups.consumer.group import ConsumerGroup
from dohle.groups.consumer.member import NO_PARTITIONS, ConsumerMember
from dohle.groups.consumer.metadata_hash import TopicHashes
from dohle.groups.consumer.records import (
    current_record,
    group_epoch_record,
    member_record,
    target_epoch_record,
    target_record,
)
from dohle.groups.context import GroupContext, Topics
from dohle.groups.settings import GroupSettings
from dohle.protocol.consumer_framing import (
    CONSUMER_PROTOCOL_TYPE,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from dohle.protocol.errors import MalformedMessage
from dohle.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
)
from dohle.protocol.messages.records.classic_group import GroupMetadataValue, MemberMetadata
from dohle.protocol.messages.records.consumer_group import ClassicMemberMetadata, ClassicProtocol
from dohle.protocol.record_framing import CoordinatorRecord

_UPGRADES = frozenset({"bidirectional", "upgrade"})
_DOWNGRADES = frozenset({"bidirectional", "downgrade"})


class Migration:
    """Turns groups of one kind into groups of the other."""

    __slots__ = ("_classic", "_context", "_hashes")

    def __init__(self, context: GroupContext, classic: ClassicGroups, hashes: TopicHashes) -> None:
        self._context = context
        self._classic = classic
        self._hashes = hashes

    def upgrade(self, classic: ClassicGroup, records: list[CoordinatorRecord]) -> ConsumerGroup:
        """Return the consumer group that a classic group becomes, and add its records."""
        self._check_upgrade(classic)
        group = ConsumerGroup(classic.group_id)
        group.group_epoch = group.target_epoch = classic.generation
        try:
            for classic_member in classic.members.values():
                member = _consumer_member(classic, classic_member, self._context.topics)
                if not group.is_free(member.assigned):
                    # A client-side assignor may do that; here a partition has one owner.
                    raise _not_upgraded(classic, "some members have the same partition")
                group.set_target(member.member_id, member.assigned)
                group.update_member(member)
        except MalformedMessage as error:
            raise _not_upgraded(
                classic, f"what its members tell each other is malformed: {error}"
            ) from None
        group.metadata_hash = self._hashes.of_group(group.subscribed_topics())
        records += classic.tombstones()
        records += _records(group)
        return group

    def _check_upgrade(self, classic: ClassicGroup) -> None:
        settings = self._context.settings()
        if settings.group_consumer_migration_policy.lower() not in _UPGRADES:
            raise _not_upgraded(classic, "online upgrades are disabled")
        if not classic.uses_consumer_protocol:
            raise _not_upgraded(classic, "its members are not consumers")
        if len(classic.members) > settings.group_consumer_max_size:
            raise _not_upgraded(classic, "it has more members than a consumer group may have")

    def can_downgrade(
        self,
        group: ConsumerGroup,
        leaving: Collection[ConsumerMember],
        *,
        is_replaced: bool = False,
    ) -> bool:
        """Tell whether the group becomes classic when members leave, or one is replaced."""
        remaining = len(group.members) - (0 if is_replaced else len(leaving))
        if is_replaced and any(member.uses_classic_protocol for member in leaving):
            return False
        settings = self._context.settings()
        return (
            group.is_classic_without(leaving)
            and remaining > 0
            and settings.group_consumer_migration_policy.lower() in _DOWNGRADES
            and remaining <= settings.group_max_size
        )

    def downgrade(
        self,
        group: ConsumerGroup,
        *,
        leaving: Collection[ConsumerMember] = (),
        joining: ConsumerMember | None = None,
        rebalance_reason: str | None,
    ) -> Effects:
        """Turn the group into a classic one.

        ``joining`` is a static member whose records are already written, in place of its
        predecessor's; it gets its predecessor's target.
        """
        gone = {member.member_id for member in leaving}
        written = list(group.members)
        if joining is not None:
            predecessor_id = group.static_members[joining.instance_id or ""]
            gone.add(predecessor_id)
            written[written.index(predecessor_id)] = joining.member_id
        members = [member for id_, member in group.members.items() if id_ not in gone]
        if joining is not None:
            members.append(joining)
        classic = self._classic_group(group, members)
        effects = Effects(group.tombstones_of(written))
        record = self._classic.adopt(classic, rebalance_reason=rebalance_reason)
        if rebalance_reason is not None:
            departed = [group.members[id_] for id_ in gone if id_ not in classic.members]
            record = _with_departed(record, departed, self._context.settings())
        effects.records.append(record)
        return effects

    def forget(self, group_id: str) -> None:
        """Drop a downgrade that the log has refused."""
        self._classic.forget_adopted(group_id)

    def _classic_group(
        self, group: ConsumerGroup, members: Collection[ConsumerMember]
    ) -> ClassicGroup:
        """Build it with the members' current assignments.

        Kafka gives them their targets, although others may still own some of those partitions: then
        a partition has two owners for a while if the rebalance that follows is cut short.
        """
        classic = self._classic.new_group(group.group_id)
        classic.generation = group.group_epoch
        for member in members:
            classic.add(_classic_member(member))
        classic.stabilize()
        try:
            for member in members:
                classic_member = classic.members[member.member_id]
                classic_member.assignment = assignment_bytes(
                    _possession(member),
                    classic_member.metadata(classic.protocol_name),
                    self._context.topics,
                )
        except MalformedMessage as error:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"The group {group.group_id} cannot be downgraded: {error}",
            ) from None
        return classic


def _with_departed(
    record: CoordinatorRecord, departed: Collection[ConsumerMember], settings: GroupSettings
) -> CoordinatorRecord:
    """Write the members that have gone into the group's record, for the coordinator that loads it.

    The group starts a rebalance at once. If the coordinator is lost before that completes, the next
    one finds a Stable group. In a classic group it would still find the members that left, and
    rebalance when their sessions expire; so it does here. Kafka does not write this.
    """
    value = record.value
    assert isinstance(value, GroupMetadataValue)
    ghosts = tuple(
        MemberMetadata(
            member_id=member.member_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=settings.group_min_session_timeout_ms,
            subscription=write_subscription(sorted(member.subscribed_topic_names)),
        )
        for member in departed
    )
    return record._replace(value=value.replace(members=(*value.members, *ghosts)))


def _possession(member: ConsumerMember) -> Assignment:
    """Return all partitions that a member may be working on."""
    return {
        topic_id: member.assigned.get(topic_id, frozenset())
        | member.pending_revocation.get(topic_id, frozenset())
        for topic_id in {**member.assigned, **member.pending_revocation}
    }


def assignment_bytes(assignment: Assignment, metadata: bytes, topics: Topics) -> bytes:
    """Encode an assignment as SyncGroup returns it to a consumer with this metadata."""
    parts = tuple(
        ConsumerProtocolAssignmentTopicPartition(topic=name, partitions=tuple(sorted(partitions)))
        for topic_id, partitions in assignment.items()
        if (name := topics.name_of(topic_id)) is not None
    )
    return write_assignment(ConsumerProtocolAssignment(assigned_partitions=parts), metadata)


def _consumer_member(group: ClassicGroup, member: ClassicMember, topics: Topics) -> ConsumerMember:
    subscription = read_subscription(_metadata(group, member))
    return ConsumerMember(
        member_id=member.member_id,
        member_epoch=group.generation,
        previous_member_epoch=group.generation,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=frozenset(subscription.topics),
        assigned=_assigned(group, member, topics),
        classic=ClassicMemberMetadata(
            session_timeout_ms=member.session_timeout_ms,
            supported_protocols=tuple(
                ClassicProtocol(name=name, metadata=metadata)
                for name, metadata in member.offer.protocols
            ),
        ),
    )


def _metadata(group: ClassicGroup, member: ClassicMember) -> bytes:
    """Return a member's metadata for the current protocol, or for its preferred one.

    It may have joined a rebalance that has not chosen a protocol yet.
    """
    offer = member.offer
    metadata = offer.metadata(group.protocol_name or "")
    if metadata is None:
        return offer.data[0] if offer.data else b""
    return metadata


def _assigned(group: ClassicGroup, member: ClassicMember, topics: Topics) -> Assignment:
    # A member that has just joined has no assignment yet.
    if not member.assignment:
        return NO_PARTITIONS
    assignment = read_assignment(member.assignment)
    if assignment.user_data:
        raise _not_upgraded(group, "a custom assignor's user data would be lost")
    return {
        topic_id: frozenset(part.partitions)
        for part in assignment.assigned_partitions
        if (topic_id := topics.id_of(part.topic)) is not None
    }


def _records(group: ConsumerGroup) -> list[CoordinatorRecord]:
    """Return the records of a group whose members have all of their target."""
    group_id, members = group.group_id, group.members.values()
    return [
        *(member_record(group_id, member) for member in members),
        group_epoch_record(group_id, group.group_epoch, group.metadata_hash),
        *(target_record(group_id, member.member_id, member.assigned) for member in members),
        target_epoch_record(group_id, group.target_epoch),
        *(current_record(group_id, member) for member in members),
    ]


def _classic_member(member: ConsumerMember) -> ClassicMember:
    if member.classic is None:
        raise ValueError(f"{member.member_id} does not speak the classic protocol")
    return ClassicMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        offer=offer_at_once((each.name, each.metadata) for each in member.classic_protocols),
    )


def _not_upgraded(group: ClassicGroup, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"The classic group {group.group_id} cannot become a consumer group: {reason}.",
    )
