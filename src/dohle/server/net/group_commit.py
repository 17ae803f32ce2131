"""Writing once for many connections that have sent something at the same time.

The loop hands over all sockets that have become readable, one after the other, before it does what
it was asked to do soon. So what the requests of all of them append is written then: with one system
call for each partition instead of one for each connection. That pays only where several connections
come together, and it costs those that come alone a turn of the loop: so whether they do is tried
now and then, and the rest of the time nobody waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

logger = logging.getLogger("dohle.server")

#: From this many connections on, their appends are written together.
_MEMBERS_MIN = 3
#: How often a connection writes alone after it has waited for others in vain.
_ALONE = 50


class Member(Protocol):
    """A connection that waits until others have come."""

    def settle(self) -> None:
        """Write what was appended for all, and go on."""


class GroupCommit:
    """The connections that wait for one write."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._members: list[Member] = []
        self._alone = 0

    def take(self, member: Member) -> bool:
        """Let a connection wait, or tell that it need not."""
        if self._members:
            self._members.append(member)
            return True
        if self._alone:
            self._alone -= 1
            return False
        self._members.append(member)
        self._call_soon(self._settle)
        return True

    def _settle(self) -> None:
        members, self._members = self._members, []
        if len(members) < _MEMBERS_MIN:
            self._alone = _ALONE
        for member in members:
            try:
                member.settle()
            except Exception:
                logger.exception("a connection failed to go on; the others do")
