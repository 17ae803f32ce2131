"""The group coordinator of one partition of ``__consumer_offsets``: its parts put together.

The commands are the parts' own: ``classic`` (JoinGroup and what follows), ``consumer`` (KIP-848)
and ``offsets``. This file has what concerns all of them: dispatching records to be replayed,
timers, changes of topics, and listing and deleting groups of any protocol.
"""

from __future__ import annotations

from collections.abc import Set

from dohle.coordination.effects import Effects, Ticket, TransactionalProducer
from dohle.core.errors import MESSAGE_CHARACTERS_MAX, ErrorCode, KafkaError
from dohle.core.ids import GroupId
from dohle.core.steps import PlainSteps
from dohle.core.texts import shorten
from dohle.groups.classic.commands import ClassicGroups
from dohle.groups.classic.group import ClassicGroup, ClassicState
from dohle.groups.consumer.commands import ConsumerGroups
from dohle.groups.context import GroupContext
from dohle.groups.group import Group
from dohle.groups.offsets.commands import Offsets
from dohle.groups.offsets.prepared import PreparedRemoval
from dohle.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from dohle.protocol.messages.list_groups import ListedGroup
from dohle.protocol.record_framing import CoordinatorRecord

_GROUP_ID_NOT_FOUND_VERSION = 6


class GroupCoordinator:
    """One for each partition that this broker leads."""

    def __init__(self, context: GroupContext) -> None:
        self.context = context
        self.offsets = Offsets(context)
        self.classic = ClassicGroups(context)
        self.consumer = ConsumerGroups(context, self.classic)
        self.classic.consumer = self.consumer
        self.offsets.classic = self.classic

    def replay(self, record: CoordinatorRecord, producer: TransactionalProducer | None) -> None:
        """Apply a record of the log."""
        for part in (self.offsets, self.classic, self.consumer):
            if record.key.RECORD_TYPE in part.RECORD_TYPES:
                part.replay(record, producer)
                return

    def replay_end_transaction(self, producer: TransactionalProducer, *, is_commit: bool) -> None:
        """Apply the end of a transaction that has committed offsets."""
        self.offsets.replay_end_transaction(producer, is_commit=is_commit)

    def on_loaded(self) -> PlainSteps[Effects]:
        """Give every member in the log one session's time to come back."""
        effects = yield from self.classic.on_loaded()
        yield from self.consumer.on_loaded()
        self.offsets.cleaner.start()
        return effects

    def on_topics_changed(self, changed: Set[str], deleted: Set[str], created: Set[str]) -> Effects:
        """Apply the creation, change or deletion of topics."""
        effects = self.offsets.cleaner.on_topics_deleted(deleted)
        return effects.and_then(self.consumer.on_topics_changed(changed, deleted, created))

    def next_deadline_ms(self) -> int | None:
        """Return when the next timer is due."""
        return self.context.timers.next_deadline_ms()

    def expire(self) -> Effects | None:
        """Handle all timers that are due."""
        key = self.context.timers.pop_due(self.context.clock.monotonic_ms())
        if key is None:
            return None
        match key.part:
            case "classic":
                return self.classic.on_timer(key)
            case "consumer":
                return self.consumer.on_timer(key)
            case _:
                return self.offsets.cleaner.on_timer(key)

    # Groups of any protocol.

    def list_groups(self, states: Set[str], types: Set[str]) -> PlainSteps[list[ListedGroup]]:
        """List the groups in one of these states and of one of these types; all if none is named.

        Both are given as ``listed_state`` and ``listed_type`` return them. It changes nothing,
        and lists a group as it is in its step.
        """
        found = []
        for group in tuple(self.context.groups.values()):
            yield
            if states and listed_state(group.state_name) not in states:
                continue
            if types and listed_type(group.type) not in types:
                continue
            found.append(
                ListedGroup(
                    group_id=GroupId(group.group_id),
                    protocol_type=group.protocol_type,
                    group_state=group.state_name,
                    group_type=group.type.value,
                )
            )
        return found

    def describe_group(self, group_id: str, ticket: Ticket, version: int) -> Effects:
        """Describe a classic group; any other group counts as absent: Dead, and 69 from v6 on."""
        group = self.context.groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return Effects().reply(ticket, _described(group))
        missing = DescribedGroup(group_id=GroupId(group_id), group_state=ClassicState.DEAD.value)
        if version >= _GROUP_ID_NOT_FOUND_VERSION:
            what = "not found" if group is None else "is not a classic group"
            missing = missing.replace(
                error_code=ErrorCode.GROUP_ID_NOT_FOUND,
                error_message=shorten(f"Group {group_id} {what}.", MESSAGE_CHARACTERS_MAX),
            )
        return Effects().reply(ticket, missing)

    def prepare_deletion(self, group_id: str) -> PlainSteps[PreparedRemoval]:
        """Prepare to delete a group, which may have any number of offsets."""
        self._group_to_delete(group_id)
        return (yield from self.offsets.prepare_removal(group_id))

    def delete_group(self, offsets: PreparedRemoval, ticket: Ticket) -> Effects:
        """Delete a group without members, and its offsets."""
        group = self._group_to_delete(offsets.group_id)
        effects = self.offsets.remove(offsets)
        effects.records += group.tombstones()
        return effects.reply(ticket, None)

    def _group_to_delete(self, group_id: str) -> Group:
        group: Group | None = self.context.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")
        group.validate_delete_group()
        return group


def listed_state(name: str) -> str:
    """Return a state's name as ``list_groups`` compares it: case does not matter."""
    return name.strip().lower()


def listed_type(name: str) -> str:
    """Return a type's name as ``list_groups`` compares it."""
    return name.lower()


def _described(group: ClassicGroup) -> DescribedGroup:
    is_stable = group.state is ClassicState.STABLE
    return DescribedGroup(
        group_id=GroupId(group.group_id),
        group_state=group.state_name,
        protocol_type=group.protocol_type,
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=tuple(
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol_name) if is_stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ),
    )
