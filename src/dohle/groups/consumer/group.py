"""A consumer group (KIP-848): its members, its epochs, and current and target assignments.

The group epoch moves when a subscription or a subscribed topic changes. A target assignment is
computed for that epoch, and then each member moves towards its part of it, at its own pace. A
partition has one owner at a time: the member that has it assigned, or has yet to give it back. All
of this changes only by replaying records.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import TypeVar

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import Uuid
from dohle.groups.assignors.assignment import Assignment
from dohle.groups.consumer.member import LEAVE_EPOCH, NO_PARTITIONS, ConsumerMember, MemberState
from dohle.groups.consumer.records import (
    current_tombstone,
    group_epoch_tombstone,
    member_tombstone,
    regex_tombstone,
    subscription_metadata_tombstone,
    target_epoch_tombstone,
    target_tombstone,
)
from dohle.groups.consumer.resolved_regex import ResolvedRegex
from dohle.groups.group import GroupType
from dohle.protocol.consumer_framing import CONSUMER_PROTOCOL_TYPE
from dohle.protocol.record_framing import CoordinatorRecord

T = TypeVar("T")

_NO_EPOCH = -1
_OFFSET_COMMIT_BY_MEMBER_EPOCH = 9


class ConsumerGroupState(StrEnum):
    """As ListGroups and ConsumerGroupDescribe show it."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerGroup:
    """One group; implements :class:`~dohle.groups.group.Group`."""

    __slots__ = (
        "_assignors",
        "_classic_protocols",
        "_names",
        "_owners",
        "_regexes",
        "_target_owners",
        "checked_epoch",
        "checked_version",
        "classic_member_count",
        "group_epoch",
        "group_id",
        "has_subscription_metadata_record",
        "member_ids",
        "members",
        "metadata_hash",
        "resolved_regexes",
        "static_members",
        "target",
        "target_epoch",
        "target_sizes",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group_epoch = 0
        self.metadata_hash = 0
        self.members: dict[str, ConsumerMember] = {}
        #: In their order.
        self.member_ids: list[str] = []
        #: Member ids by instance id.
        self.static_members: dict[str, str] = {}
        self.target_epoch = 0
        self.target: dict[str, Assignment] = {}
        #: The size of each member's target assignment.
        self.target_sizes: dict[str, int] = {}
        self.resolved_regexes: dict[str, ResolvedRegex] = {}
        self.classic_member_count = 0
        #: Written by releases before 4.1; deleted when the hash is written.
        self.has_subscription_metadata_record = False
        #: The change of the topics and the group epoch as of which the hash was last checked.
        self.checked_version = -1
        self.checked_epoch = 0
        # How many members have each of these.
        # Counted are the sets, not the names in them: most members have the same, and one may have
        # 100,000 names.
        self._names: Counter[frozenset[str]] = Counter()
        self._regexes: Counter[str] = Counter()
        self._assignors: Counter[str] = Counter()
        self._classic_protocols: Counter[str] = Counter()
        self._owners: dict[Uuid, dict[int, str]] = {}
        self._target_owners: dict[Uuid, dict[int, str]] = {}

    @property
    def type(self) -> GroupType:
        """Its protocol."""
        return GroupType.CONSUMER

    @property
    def protocol_type(self) -> str:
        """The kind of its members."""
        return CONSUMER_PROTOCOL_TYPE

    @property
    def state(self) -> ConsumerGroupState:
        """Its current state."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.group_epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.target_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def state_name(self) -> str:
        """Its state as ListGroups shows it."""
        return self.state.value

    @property
    def is_empty(self) -> bool:
        """Tell whether it has no members."""
        return not self.members

    @property
    def member_count(self) -> int:
        """How many members it has."""
        return len(self.members)

    @property
    def empty_since_ms(self) -> int | None:
        """Unknown: offsets of consumer groups expire by their commit time."""
        return None

    @property
    def uses_group_management(self) -> bool:
        """Always true: it exists through its members."""
        return True

    def member(self, member_id: str) -> ConsumerMember:
        """Return a member; raise UNKNOWN_MEMBER_ID if there is none."""
        try:
            return self.members[member_id]
        except KeyError:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id!r} is not a member of {self.group_id}."
            ) from None

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """Return the member with an instance id, if there is one."""
        member_id = self.static_members.get(instance_id) if instance_id is not None else None
        return None if member_id is None else self.members.get(member_id)

    def target_of(self, member: ConsumerMember) -> Assignment:
        """Return a member's target; a static one inherits its instance's."""
        member_id: str | None = member.member_id
        if member.instance_id is not None:
            member_id = self.static_members.get(member.instance_id)
        return self.target.get(member_id, NO_PARTITIONS) if member_id else NO_PARTITIONS

    def free_of_target(self, partition_counts: Mapping[Uuid, int]) -> dict[Uuid, list[int]] | None:
        """Return the partitions in no member's target, if the target is otherwise valid.

        That is, it has no other topics and no partition twice. Topics do not lose partitions, so it
        has none that do not exist.
        """
        targeted = sum(map(len, self._target_owners.values()))
        if targeted != sum(self.target_sizes.values()) or self.target.keys() != self.members.keys():
            return None
        if not self._target_owners.keys() <= partition_counts.keys():
            return None
        free = {}
        for topic_id in sorted(partition_counts):
            count, owners = partition_counts[topic_id], self._target_owners.get(topic_id, {})
            if len(owners) > count:
                return None
            free[topic_id] = (
                [index for index in range(count) if index not in owners]
                if len(owners) < count
                else []
            )
        return free

    def all_want(self, names: frozenset[str]) -> bool:
        """Tell whether every member subscribes to exactly these topics."""
        return not self._regexes and all(names == each for each in self._names)

    def owner(self, topic_id: Uuid, partition: int) -> str | None:
        """Return the member that has a partition, or has yet to give it back."""
        return self._owners.get(topic_id, {}).get(partition)

    def is_free(self, partitions_of: Assignment) -> bool:
        """Tell whether no member has any of these partitions."""
        return all(
            partitions.isdisjoint(self._owners.get(topic_id, {}))
            for topic_id, partitions in partitions_of.items()
        )

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Tell whether a partition of the member's target still belongs to another member."""
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        return any(
            partition not in member.assigned.get(topic_id, ()) and self.owner(topic_id, partition)
            for topic_id, partitions in self.target.get(member.member_id, NO_PARTITIONS).items()
            for partition in partitions
        )

    def is_subscribed_to(self, topic: str) -> bool:
        """Tell whether a member subscribes to the topic, by name or by a regular expression."""
        return any(topic in names for names in self._names) or any(
            topic in resolved.topics for resolved in self.resolved_regexes.values()
        )

    def subscribed_topics(
        self,
        *,
        without: Iterable[ConsumerMember] = (),
        added: ConsumerMember | None = None,
        without_regexes: Collection[str] = (),
    ) -> frozenset[str]:
        """Return the group's topics, or what they would be after the given changes."""
        counts = self._names.copy()
        counts.subtract(member.subscribed_topic_names for member in without)
        found = [names for names, count in counts.items() if count > 0]
        if added is not None:
            found.append(added.subscribed_topic_names)
        found += [
            resolved.topics
            for regex, resolved in self.resolved_regexes.items()
            if regex not in without_regexes
        ]
        return found[0] if len(found) == 1 else frozenset().union(*found)

    @property
    def regexes(self) -> Collection[str]:
        """All regular expressions that members are subscribed to."""
        return self._regexes.keys()

    def subscribers_of_regex(self, regex: str) -> int:
        """Return how many members subscribe to a regular expression."""
        return self._regexes.get(regex, 0)

    def preferred_assignor(
        self, old: ConsumerMember | None = None, new: ConsumerMember | None = None
    ) -> str | None:
        """Return the assignor that most members ask for, if one changed its preference."""
        counts = self._assignors.copy()
        _count(counts, old, new, _assignor_of)
        return max(sorted(counts), key=counts.__getitem__, default=None)

    def supports_classic_protocols(self, protocol_type: str, names: Collection[str]) -> bool:
        """Tell whether all classic members support one of these protocols."""
        return protocol_type == CONSUMER_PROTOCOL_TYPE and any(
            self._classic_protocols.get(name, 0) == self.classic_member_count for name in names
        )

    def is_classic_without(self, members: Collection[ConsumerMember]) -> bool:
        """Tell whether all members but these use the classic protocol."""
        classic = sum(member.uses_classic_protocol for member in members)
        return self.classic_member_count - classic == len(self.members) - len(members)

    # Changes by replay.

    def update_member(self, new: ConsumerMember) -> None:
        """Replace a member by its new version."""
        old = self.members.get(new.member_id)
        if old is None:
            insort(self.member_ids, new.member_id)
        self.members[new.member_id] = new
        self._update_counts(old, new)
        if old is not None:
            _disown(self._owners, old.member_id, old.assigned, old.pending_revocation)
        _own(self._owners, new.member_id, new.assigned, new.pending_revocation)
        if new.instance_id is not None:
            self.static_members[new.instance_id] = new.member_id

    def release_member(self, member_id: str) -> None:
        """Release the partitions of a member."""
        if member_id in self.members:
            self.update_member(
                replace(
                    self.members[member_id],
                    member_epoch=LEAVE_EPOCH,
                    previous_member_epoch=LEAVE_EPOCH,
                    assigned=NO_PARTITIONS,
                    pending_revocation=NO_PARTITIONS,
                )
            )

    def remove_member(self, member_id: str) -> None:
        """Remove a member."""
        old = self.members.pop(member_id, None)
        if old is None:
            return
        del self.member_ids[bisect_left(self.member_ids, member_id)]
        self._update_counts(old, None)
        _disown(self._owners, member_id, old.assigned, old.pending_revocation)
        if old.instance_id is not None and self.static_members.get(old.instance_id) == member_id:
            del self.static_members[old.instance_id]

    def set_target(self, member_id: str, target: Assignment) -> None:
        """Set a member's target assignment."""
        self.remove_target(member_id)
        self.target[member_id] = target
        self.target_sizes[member_id] = sum(map(len, target.values()))
        _own(self._target_owners, member_id, target)

    def remove_target(self, member_id: str) -> None:
        """Remove a member's target assignment."""
        old = self.target.pop(member_id, None)
        if old is not None:
            del self.target_sizes[member_id]
            _disown(self._target_owners, member_id, old)

    def _update_counts(self, old: ConsumerMember | None, new: ConsumerMember | None) -> None:
        if old is not None and new is not None and old.told_the_same_as(new):
            return
        _count(self._names, old, new, _names_of)
        _count(self._regexes, old, new, _regex_of)
        _count(self._assignors, old, new, _assignor_of)
        _count(self._classic_protocols, old, new, _classic_protocols_of)
        self.classic_member_count -= old is not None and old.uses_classic_protocol
        self.classic_member_count += new is not None and new.uses_classic_protocol

    # The protocol of ``Group``.

    def validate_offset_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_id_or_member_epoch: int,
        *,
        is_transactional: bool,
        version: int,
    ) -> None:
        """Refuse a commit from someone who is not a member, or is in another epoch."""
        epoch = generation_id_or_member_epoch
        # An admin client, or a consumer that assigns itself.
        if epoch < 0 and not self.members:
            return
        # A transactional producer that does not say for whom it commits.
        if is_transactional and epoch == _NO_EPOCH and not member_id and group_instance_id is None:
            return
        member = self.member(member_id)
        if (
            not is_transactional
            and not member.uses_classic_protocol
            and version < _OFFSET_COMMIT_BY_MEMBER_EPOCH
        ):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"A member of the consumer protocol needs OffsetCommit version "
                f"{_OFFSET_COMMIT_BY_MEMBER_EPOCH} or above.",
            )
        _check_epoch(member, epoch)

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Refuse a fetch from someone who is not a member, or is in another epoch."""
        if member_id is None and member_epoch < 0:
            return
        _check_epoch(self.member(member_id or ""), member_epoch)

    def validate_offset_delete(self) -> None:
        """Allow it: subscriptions are checked for each topic."""

    def validate_delete_group(self) -> None:
        """Refuse it while there are members."""
        if self.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")

    def tombstones(self) -> list[CoordinatorRecord]:
        """Return the records that delete the group."""
        return self.tombstones_of(self.members)

    def tombstones_of(self, member_ids: Collection[str]) -> list[CoordinatorRecord]:
        """Return the records that delete the group, assuming that it has these members."""
        group_id = self.group_id
        return [
            *(current_tombstone(group_id, member_id) for member_id in member_ids),
            *(target_tombstone(group_id, member_id) for member_id in member_ids),
            target_epoch_tombstone(group_id),
            *(member_tombstone(group_id, member_id) for member_id in member_ids),
            *(regex_tombstone(group_id, regex) for regex in self.resolved_regexes),
            subscription_metadata_tombstone(group_id),
            group_epoch_tombstone(group_id),
        ]


def _check_epoch(member: ConsumerMember, epoch: int) -> None:
    if epoch == member.member_epoch:
        return
    classic = member.uses_classic_protocol
    raise KafkaError(
        ErrorCode.ILLEGAL_GENERATION if classic else ErrorCode.STALE_MEMBER_EPOCH,
        f"The member is in epoch {member.member_epoch}, not {epoch}.",
    )


def _own(owners_of: dict[Uuid, dict[int, str]], member_id: str, *parts: Assignment) -> None:
    for partitions_of in parts:
        for topic_id, partitions in partitions_of.items():
            owners_of.setdefault(topic_id, {}).update(dict.fromkeys(partitions, member_id))


def _disown(owners_of: dict[Uuid, dict[int, str]], member_id: str, *parts: Assignment) -> None:
    for partitions_of in parts:
        for topic_id, partitions in partitions_of.items():
            owners = owners_of.get(topic_id)
            if owners is None:
                continue
            for partition in partitions:
                if owners.get(partition) == member_id:
                    del owners[partition]
            if not owners:
                del owners_of[topic_id]


def _names_of(member: ConsumerMember) -> Iterable[frozenset[str]]:
    return (member.subscribed_topic_names,)


def _regex_of(member: ConsumerMember) -> Iterable[str]:
    return (member.regex,) if member.regex is not None else ()


def _assignor_of(member: ConsumerMember) -> Iterable[str]:
    return (member.server_assignor,) if member.server_assignor is not None else ()


def _classic_protocols_of(member: ConsumerMember) -> Iterable[str]:
    return [protocol.name for protocol in member.classic_protocols]


def _count(
    counts: Counter[T],
    old: ConsumerMember | None,
    new: ConsumerMember | None,
    values: Callable[[ConsumerMember], Iterable[T]],
) -> None:
    for value in values(old) if old is not None else ():
        counts[value] -= 1
        if not counts[value]:
            del counts[value]
    if new is not None:
        counts.update(values(new))
