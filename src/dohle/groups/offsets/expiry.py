"""When an offset expires: KIP-211, and the retention time that old clients send themselves."""

from __future__ import annotations

from typing import NamedTuple

from dohle.groups.group import Group, GroupType
from dohle.groups.offsets.store import NO_EXPIRE_TIMESTAMP, CommittedOffset

_CONSUMERS = "consumer"
_STABLE = "Stable"


class ExpiryRule(NamedTuple):
    """How old a group's offsets may become, for topics without a subscriber in it."""

    now_ms: int
    #: Offsets committed at this time or before have expired.
    committed_ms_max: int
    #: Set if the time counts from when the group became empty, not from the commit.
    are_all_expired: bool | None = None

    @classmethod
    def of(cls, group: Group, now_ms: int, retention_ms: int) -> ExpiryRule | None:
        """Return the rule of a group; None if nothing in it may expire now.

        In a classic group that is the case until all members' subscriptions are known.
        """
        committed_ms_max = now_ms - retention_ms
        by_commit = cls(now_ms, committed_ms_max)
        if group.type is not GroupType.CLASSIC or not group.uses_group_management:
            return by_commit
        if group.is_empty:
            since_ms = group.empty_since_ms
            if since_ms is None:
                return by_commit
            return cls(now_ms, committed_ms_max, since_ms <= committed_ms_max)
        if group.protocol_type == _CONSUMERS and group.state_name == _STABLE:
            return by_commit
        return None

    def has_expired(self, offset: CommittedOffset) -> bool:
        """Tell whether an offset has expired."""
        if offset.expire_timestamp_ms != NO_EXPIRE_TIMESTAMP:
            return self.now_ms >= offset.expire_timestamp_ms
        if self.are_all_expired is not None:
            return self.are_all_expired
        return offset.commit_timestamp_ms <= self.committed_ms_max
