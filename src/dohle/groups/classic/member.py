"""A member of a classic group: what it sent when it joined, and its waiting request."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from dohle.coordination.effects import Ticket
from dohle.groups.classic.protocols import Offer


@dataclass(slots=True)
class ClassicMember:
    """One member. Only its group, which counts votes, changes its protocols and tickets."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    offer: Offer
    assignment: bytes = b""
    #: The JoinGroup or SyncGroup request that is waiting for the group.
    join_ticket: Ticket | None = None
    sync_ticket: Ticket | None = None
    #: Its first join was never answered: its session may expire while it waits for that.
    is_new: bool = False

    @property
    def is_static(self) -> bool:
        """Tell whether it keeps its place across a restart (KIP-345)."""
        return self.group_instance_id is not None

    @property
    def is_awaiting_join(self) -> bool:
        """Tell whether it has rejoined and waits for the others."""
        return self.join_ticket is not None

    @property
    def is_awaiting_sync(self) -> bool:
        """Tell whether it waits for the leader's assignment."""
        return self.sync_ticket is not None

    @property
    def needs_no_heartbeat(self) -> bool:
        """Tell whether it need not send heartbeats: it cannot, while its request is waiting."""
        return not self.is_new and (self.is_awaiting_join or self.is_awaiting_sync)

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return its metadata for a protocol, which it must support."""
        metadata = None if protocol_name is None else self.offer.metadata(protocol_name)
        if metadata is None:
            raise ValueError(f"member {self.member_id} does not know the protocol {protocol_name}")
        return metadata

    def vote(self, candidates: Collection[str]) -> str:
        """Return the candidate that it prefers; it must support one of them."""
        for name in self.offer.order:
            if name in candidates:
                return name
        raise ValueError(f"member {self.member_id} knows none of {sorted(candidates)}")
