"""Members that go: they leave, or are removed because a deadline has passed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace

from dohle.coordination.effects import Effects, Ticket
from dohle.core.errors import KafkaError
from dohle.groups.consumer.deadlines import MemberTimers
from dohle.groups.consumer.group import ConsumerGroup
from dohle.groups.consumer.member import LEAVE_STATIC_EPOCH, NO_PARTITIONS, ConsumerMember
from dohle.groups.consumer.metadata_hash import TopicHashes
from dohle.groups.consumer.migration import Migration
from dohle.groups.consumer.records import (
    current_record,
    group_epoch_record,
    member_tombstones,
    regex_tombstone,
)
from dohle.groups.context import GroupTimerKey


class Departures:
    """Removes members; with the last one of the consumer protocol, the group is downgraded."""

    __slots__ = ("_hashes", "_migration", "_timers")

    def __init__(self, timers: MemberTimers, migration: Migration, hashes: TopicHashes) -> None:
        self._timers = timers
        self._migration = migration
        self._hashes = hashes

    def leave(
        self,
        group: ConsumerGroup,
        members: Collection[ConsumerMember],
        ticket: Ticket,
        answer: object,
    ) -> Effects:
        """Remove members that asked to leave."""
        effects = self._remove(group, members).reply(ticket, answer)

        def undo(error: KafkaError) -> Effects:
            self._keep(group, members, self._timers.session_timeout_ms(group.group_id))
            return Effects().reply(ticket, error)

        effects.undo = undo
        return effects

    def put_out(
        self, group: ConsumerGroup, member: ConsumerMember, key: GroupTimerKey, epoch: int | None
    ) -> Effects:
        """Remove a member that missed a deadline; ``epoch`` is the one it had to leave in time."""
        effects = self._remove(group, [member])

        def undo(_: KafkaError) -> Effects:
            # Its session continues as well, but a heartbeat does not spare it the other deadline.
            self._keep(group, [member], self._timers.session_timeout_ms(group.group_id))
            self._timers.try_again(key, epoch)
            return Effects()

        effects.undo = undo
        return effects

    def _keep(
        self, group: ConsumerGroup, members: Collection[ConsumerMember], timeout_ms: int
    ) -> None:
        """Keep members whose removal could not be written."""
        self._migration.forget(group.group_id)
        for member in members:
            self._timers.set_session(group.group_id, member.member_id, timeout_ms)

    def _remove(self, group: ConsumerGroup, members: Collection[ConsumerMember]) -> Effects:
        """Remove members; the others get a new target with their next heartbeat."""
        if not members:
            return Effects()
        if self._migration.can_downgrade(group, members):
            # A member that leaves is not told that the others cannot form a classic group.
            with suppress(KafkaError):
                reason = "the last member of the new protocol left"
                return self._migration.downgrade(group, leaving=members, rebalance_reason=reason)
        group_id = group.group_id
        effects = Effects()
        for member in members:
            effects.records += member_tombstones(group_id, member.member_id)
        leaving = Counter(member.regex for member in members if member.regex is not None)
        unused = [
            regex for regex, count in leaving.items() if group.subscribers_of_regex(regex) == count
        ]
        effects.records += [regex_tombstone(group_id, regex) for regex in unused]
        metadata_hash = self._hashes.of_group(
            group.subscribed_topics(without=members, without_regexes=unused)
        )
        epoch = group.group_epoch + 1
        effects.records.append(group_epoch_record(group_id, epoch, metadata_hash))
        for member in members:
            self._timers.cancel_all(group_id, member.member_id)
        return effects

    def leave_for_a_while(self, group: ConsumerGroup, member: ConsumerMember) -> Effects:
        """Keep a static member's place until its session expires: it may come back."""
        left = replace(member, member_epoch=LEAVE_STATIC_EPOCH, pending_revocation=NO_PARTITIONS)
        return Effects([current_record(group.group_id, left)])
