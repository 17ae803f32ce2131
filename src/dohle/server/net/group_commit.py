"""Group commit: one write for many connections that have sent something at the same time.

The loop handles all sockets that have become readable before it runs what ``call_soon`` scheduled
meanwhile. So the appends of all these connections can be written then: with one system call for
each partition instead of one for each connection. This pays only if several connections come
together, and it costs a connection that comes alone a turn of the loop. So it is tried now and
then, and while it does not pay, no connection waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

logger = logging.getLogger("dohle.server")

#: From this many connections on, their appends are written together.
_MEMBERS_MIN = 3
#: How many times connections write alone after one has waited for others in vain.
_ALONE = 50


class Member(Protocol):
    """A connection that waits for others."""

    def settle(self) -> None:
        """Write the appends of all connections, and go on."""


class GroupCommit:
    """The connections that wait for one write."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._members: list[Member] = []
        self._alone = 0

    def take(self, member: Member) -> bool:
        """Tell whether a connection must wait; if so, its ``settle`` is called later."""
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
                logger.exception(
                    "a connection failed after a write; the others go on. Please report this."
                )
