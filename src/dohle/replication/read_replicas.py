"""Which replica a consumer is told to read from (KIP-392, G30).

A leader with ``replica.selector.class`` set sends a consumer that names its rack to a replica in
that rack. Kafka's rules:

- The leader itself, if it is in the rack; else the replica of the rack that has most: the one with
  the highest log end, among equals the one that was caught up last, then the one with the highest
  id. If the rack has none, the leader.
- Only members of the ISR come into question that have the offset asked for, as far as the leader
  knows, and that the client can reach. One that is not in sync might fall behind for ever, and the
  leader would send the consumer there again and again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dohle.core.ids import BrokerId


class ReadableReplica(NamedTuple):
    """A follower that has what a consumer asks for."""

    broker: BrokerId
    #: Of its broker, if that says so and is reached by the client's listener.
    rack: str | None
    log_end_offset: int
    caught_up_ms: int


def preferred_replica(
    client_rack: str, leader_rack: str | None, followers: Iterable[ReadableReplica]
) -> BrokerId | None:
    """Return the follower that a consumer in this rack should read from; None: the leader."""
    if not client_rack or leader_rack == client_rack:
        return None
    found = [
        (each.log_end_offset, each.caught_up_ms, each.broker)
        for each in followers
        if each.rack == client_rack
    ]
    return max(found)[2] if found else None
