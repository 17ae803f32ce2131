"""How a classic group rebalances, and the deadlines of its members.

- A rebalance waits until all members have rejoined and no member with a fresh id is missing, at
  most for the longest rebalance timeout of the members. Then dynamic members that did not rejoin
  are removed; static ones stay. If no member at all has rejoined, it waits once more.
- The first rebalance of an Empty group waits for ``group.initial.rebalance.delay.ms``, so that a
  group whose members start together is assigned once. A member that joins meanwhile prolongs the
  wait, in total up to the rebalance timeout.
- Then every member has the rebalance timeout to send SyncGroup, or is removed.
- A session expires after the member's session timeout without a heartbeat. A member with a waiting
  request needs none, except for its very first join: its client may be long gone.

A group that becomes Empty writes its new generation. If the log refuses that, the group is empty
all the same: if the broker dies, the previous generation is loaded again, and times out.
"""

from __future__ import annotations

from dohle.coordination.effects import Effects, Reply
from dohle.core.errors import ErrorCode
from dohle.groups.classic.group import ClassicGroup, ClassicState
from dohle.groups.classic.member import ClassicMember
from dohle.groups.classic.records import group_record
from dohle.groups.context import GroupContext, GroupTimerKey
from dohle.protocol.messages.sync_group import SyncGroupResponse

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
#: The least time that a rebalance without any rejoined member waits again: a member's timeout may
#: be 0.
_WAIT_AGAIN_MS_MIN = 1_000
#: Clients' reasons may be long; this much is kept.
_REASON_LENGTH_MAX = 1_000

SESSION = "session"
JOIN = "join"
SYNC = "sync"


class Rebalances:
    """Runs the rebalances of all classic groups of a shard."""

    def __init__(self, context: GroupContext) -> None:
        self._context = context

    # Sessions.

    def keep_session(
        self, group: ClassicGroup, member: ClassicMember, timeout_ms: int | None = None
    ) -> None:
        """Restart a member's session with its session timeout, or with the given one."""
        if timeout_ms is None:
            timeout_ms = member.session_timeout_ms
        self._set(group, SESSION, timeout_ms, member.member_id)

    def expect_join(self, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
        """Expect a member that was given an id to join."""
        group.pending_joins.add(member_id)
        self._set(group, SESSION, timeout_ms, member_id)

    def end_session(self, group: ClassicGroup, member_id: str) -> None:
        """Cancel a member's deadline."""
        self._context.timers.cancel(_key(group, SESSION, member_id))

    def let_go(self, group: ClassicGroup, member_id: str) -> list[Reply]:
        """Remove a member, or a pending one, from the group."""
        self.end_session(group, member_id)
        return group.remove(member_id)

    def cancel_timers(self, group: ClassicGroup) -> None:
        """Cancel all deadlines of a group."""
        for kind in (JOIN, SYNC):
            self._context.timers.cancel(_key(group, kind))
        for member_id in (*group.members, *group.pending_joins):
            self.end_session(group, member_id)

    # Preparing.

    def rebalance(self, group: ClassicGroup, reason: str) -> Effects:
        """Start a rebalance, or complete the current one if nobody is missing."""
        if group.can_rebalance:
            return self.prepare(group, reason)
        return self.complete_if_all_joined(group)

    def prepare(self, group: ClassicGroup, reason: str) -> Effects:
        """Start a rebalance; members that wait for an assignment have to rejoin."""
        effects = Effects()
        if group.state is ClassicState.COMPLETING_REBALANCE:
            effects.replies += self.withhold_assignment(group, ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_syncs.clear()
        self._context.timers.cancel(_key(group, SYNC))
        group.rebalance_reason = reason[:_REASON_LENGTH_MAX]
        is_initial = group.is_empty
        group.move_to(ClassicState.PREPARING_REBALANCE, self._context.clock.now_ms())
        if is_initial:
            delay_ms = self._initial_delay_ms()
            group.has_new_member = False
            self._put_off(group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
            return effects
        if group.has_all_members_joined:
            return effects.and_then(self.complete(group))
        self._set(group, JOIN, group.rebalance_timeout_ms)
        return effects

    def withhold_assignment(self, group: ClassicGroup, code: ErrorCode) -> list[Reply]:
        """Answer all waiting SyncGroup requests with an error; there is no assignment."""
        replies: list[Reply] = []
        for member in group.members.values():
            member.assignment = b""
            answers = group.answer_sync(member, SyncGroupResponse(error_code=code))
            if answers:
                self.keep_session(group, member)
            replies += answers
        return replies

    def complete_if_all_joined(self, group: ClassicGroup) -> Effects:
        """Complete a rebalance if nobody is missing; the first one waits out its delay."""
        if (
            group.state is ClassicState.PREPARING_REBALANCE
            and group.previous_state is not ClassicState.EMPTY
            and group.has_all_members_joined
        ):
            return self.complete(group)
        return Effects()

    def complete(self, group: ClassicGroup) -> Effects:
        """Continue with the members that have rejoined."""
        effects = Effects()
        self._context.timers.cancel(_key(group, JOIN))
        group.initial_delay_ms = None
        for member in list(group.members.values()):
            if not member.is_awaiting_join and not member.is_static:
                effects.replies += self.let_go(group, member.member_id)
        if group.members and not group.elect_joined_leader():
            self._set(group, JOIN, max(group.rebalance_timeout_ms, _WAIT_AGAIN_MS_MIN))
            return effects
        group.begin_generation(self._context.clock.now_ms())
        if not group.members:
            effects.records.append(group_record(group, {}))
            return effects
        for member in group.members.values():
            effects.replies += group.answer_join(member, group.join_response(member.member_id))
            self.keep_session(group, member)
            member.is_new = False
            group.pending_syncs.add(member.member_id)
        self._set(group, SYNC, group.rebalance_timeout_ms)
        return effects

    def has_synced(self, group: ClassicGroup, member_id: str) -> None:
        """Record that a member has asked for its assignment."""
        group.pending_syncs.discard(member_id)
        if not group.pending_syncs:
            self._context.timers.cancel(_key(group, SYNC))

    # Deadlines.

    def on_timer(self, group: ClassicGroup, kind: str, member_id: str) -> Effects:
        """Handle an expired timer."""
        match kind:
            case "session":
                return self._expire_session(group, member_id)
            case "sync":
                return self._expire_sync(group)
            case _:
                return self._expire_join(group)

    def _expire_join(self, group: ClassicGroup) -> Effects:
        delay_ms, left_ms = group.initial_delay_ms, group.initial_delay_left_ms
        if delay_ms is None or not group.has_new_member or not left_ms:
            return self.complete(group)
        group.has_new_member = False
        self._put_off(group, min(self._initial_delay_ms(), left_ms), max(left_ms - delay_ms, 0))
        return Effects()

    def _expire_session(self, group: ClassicGroup, member_id: str) -> Effects:
        member = group.members.get(member_id)
        if member is None and member_id not in group.pending_joins:
            return Effects()
        if member is not None and member.needs_no_heartbeat:
            return Effects()
        effects = Effects(replies=group.remove(member_id))
        if member is not None and group.can_rebalance:
            return effects.and_then(self.prepare(group, f"the session of {member_id} has ended"))
        if group.state is ClassicState.PREPARING_REBALANCE and group.has_all_members_joined:
            effects.and_then(self.complete(group))
        return effects

    def _expire_sync(self, group: ClassicGroup) -> Effects:
        if not group.pending_syncs or not group.can_rebalance:
            return Effects()
        missing = sorted(group.pending_syncs)
        effects = Effects()
        for member_id in missing:
            effects.replies += self.let_go(group, member_id)
        reason = f"no SyncGroup came from {', '.join(missing)}"
        return effects.and_then(self.prepare(group, reason))

    def _put_off(self, group: ClassicGroup, delay_ms: int, left_ms: int) -> None:
        group.initial_delay_ms, group.initial_delay_left_ms = delay_ms, left_ms
        self._set(group, JOIN, delay_ms)

    def _initial_delay_ms(self) -> int:
        return self._context.settings().group_initial_rebalance_delay_ms

    def _set(self, group: ClassicGroup, kind: str, after_ms: int, member_id: str = "") -> None:
        deadline_ms = self._context.clock.monotonic_ms() + after_ms
        self._context.timers.set(_key(group, kind, member_id), deadline_ms)


def _key(group: ClassicGroup, kind: str, member_id: str = "") -> GroupTimerKey:
    return GroupTimerKey("classic", kind, group.group_id, member_id)
