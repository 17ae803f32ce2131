"""The deadlines of members of consumer groups. A member that misses one is removed.

- session: it has to send a heartbeat;
- rebalance: it has to give back partitions that were revoked;
- join, sync: a member of the classic protocol has to send that request.
"""

from __future__ import annotations

from dohle.core.config.group import HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS
from dohle.groups.consumer.member import ConsumerMember
from dohle.groups.context import GroupContext, GroupTimerKey

PART = "consumer"
SESSION = "session"
REBALANCE = "rebalance"
JOIN = "join"
SYNC = "sync"
REGEX = "regex"

#: How long to wait before retrying what the log refused.
RETRY_MS = 500


class MemberTimers:
    """Sets and cancels them."""

    __slots__ = ("_context", "_rebalance_epochs")

    def __init__(self, context: GroupContext) -> None:
        self._context = context
        # The epoch that a member has to leave in time.
        self._rebalance_epochs: dict[GroupTimerKey, int] = {}

    def set_session(self, group_id: str, member_id: str, timeout_ms: int | None = None) -> None:
        """Restart a session; members of the classic protocol have their own session timeout."""
        if timeout_ms is None:
            timeout_ms = self.session_timeout_ms(group_id)
        self._set(SESSION, group_id, member_id, timeout_ms)

    def set_rebalance(self, group_id: str, member: ConsumerMember) -> None:
        """Set the deadline for a member to leave its epoch."""
        key = GroupTimerKey(PART, REBALANCE, group_id, member.member_id)
        self._rebalance_epochs[key] = member.member_epoch
        self._set(REBALANCE, group_id, member.member_id, member.rebalance_timeout_ms)

    def cancel_rebalance(self, group_id: str, member_id: str) -> None:
        """Cancel it: the member has left the epoch."""
        key = GroupTimerKey(PART, REBALANCE, group_id, member_id)
        self._rebalance_epochs.pop(key, None)
        self._context.timers.cancel(key)

    def epoch_to_leave(self, key: GroupTimerKey) -> int | None:
        """Return the epoch of a rebalance deadline that has just passed."""
        return self._rebalance_epochs.pop(key, None)

    def set_join(self, group_id: str, member: ConsumerMember) -> None:
        """Set the deadline for a classic member to join again, unless it is already running."""
        if GroupTimerKey(PART, JOIN, group_id, member.member_id) not in self._context.timers:
            self._set(JOIN, group_id, member.member_id, member.rebalance_timeout_ms)

    def set_sync(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """Set the deadline for a classic member to ask for its assignment."""
        self._set(SYNC, group_id, member_id, timeout_ms)

    def cancel(self, kind: str, group_id: str, member_id: str) -> None:
        """Cancel a deadline."""
        self._context.timers.cancel(GroupTimerKey(PART, kind, group_id, member_id))

    def cancel_all(self, group_id: str, member_id: str) -> None:
        """Cancel all deadlines of a member that is gone."""
        self.cancel_rebalance(group_id, member_id)
        for kind in (SESSION, JOIN, SYNC):
            self.cancel(kind, group_id, member_id)

    def try_again(self, key: GroupTimerKey, epoch: int | None = None) -> None:
        """Set a deadline again: what it led to could not be written."""
        if epoch is not None:
            self._rebalance_epochs[key] = epoch
        self._set(key.kind, key.group_id, key.member_id, RETRY_MS)

    def session_timeout_ms(self, group_id: str) -> int:
        """Return a group's session timeout."""
        own = self._context.group_configs(group_id).get(SESSION_TIMEOUT_MS)
        if own is not None:
            return int(own)
        return self._context.settings().group_consumer_session_timeout_ms

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Return how often a group's members have to send a heartbeat."""
        own = self._context.group_configs(group_id).get(HEARTBEAT_INTERVAL_MS)
        if own is not None:
            return int(own)
        return self._context.settings().group_consumer_heartbeat_interval_ms

    def _set(self, kind: str, group_id: str, member_id: str, timeout_ms: int) -> None:
        deadline_ms = self._context.clock.monotonic_ms() + timeout_ms
        self._context.timers.set(GroupTimerKey(PART, kind, group_id, member_id), deadline_ms)
