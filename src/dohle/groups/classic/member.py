"""A member of a classic group: what it told when it joined, and what it waits for."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from dohle.coordination.effects import Ticket
from dohle.protocol.messages.join_group import JoinGroupRequestProtocol


class Protocol(NamedTuple):
    """A way of assigning that a member can do, and what it tells the leader for it."""

    name: str
    metadata: bytes


def protocols_of(offered: Collection[JoinGroupRequestProtocol]) -> tuple[Protocol, ...]:
    """Return what a JoinGroup request offers, in the member's order of preference."""
    return tuple(Protocol(protocol.name, protocol.metadata) for protocol in offered)


@dataclass(slots=True)
class ClassicMember:
    """The group counts votes and who waits: it changes a member's protocols and tickets itself."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    #: The most wanted first.
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    #: The JoinGroup or the SyncGroup request that waits for the group.
    join_ticket: Ticket | None = None
    sync_ticket: Ticket | None = None
    #: Has never been answered a join: its session may end while it waits for one.
    is_new: bool = False

    @property
    def is_static(self) -> bool:
        """Tell whether it keeps its place through a restart (KIP-345)."""
        return self.group_instance_id is not None

    @property
    def is_awaiting_join(self) -> bool:
        """Tell whether it has rejoined and waits for the rest."""
        return self.join_ticket is not None

    @property
    def is_awaiting_sync(self) -> bool:
        """Tell whether it waits for what the leader assigns."""
        return self.sync_ticket is not None

    @property
    def needs_no_heartbeat(self) -> bool:
        """Tell whether it may be silent: while it waits it cannot send anything else."""
        return not self.is_new and (self.is_awaiting_join or self.is_awaiting_sync)

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return what it tells the leader for a protocol, which it must know."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        raise ValueError(f"member {self.member_id} does not know the protocol {protocol_name}")

    def vote(self, candidates: Collection[str]) -> str:
        """Return the candidate that it likes best; it must know one of them."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        raise ValueError(f"member {self.member_id} knows none of {sorted(candidates)}")
