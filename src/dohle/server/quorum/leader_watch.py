"""How long a node finds no leader for its quorum, and what the operator is told of that.

This is the one place that tells of a quorum that is not there: whom the node has tried, why they
were not reached, and when one leads again. Others whose requests fail for want of it are quiet.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from dohle.raft.leader import Leader
from dohle.raft.machine import Raft
from dohle.raft.states import Follower, Resigned
from dohle.raft.voters import node_at

logger = logging.getLogger("dohle.server")

#: How long elections may take before they are told of.
TOLD_AFTER_MS = 5_000
#: What lasts is told again after twice the time, and so on, but at least so often.
_TOLD_EACH_MS_MAX = 60_000


class LeaderWatch:
    """Looks at a raft machine, whenever something has happened to it."""

    def __init__(self, raft: Raft, reasons: Callable[[], str] = str) -> None:
        """``reasons`` tells why other nodes were not reached, if they were not."""
        self._raft = raft
        self._reasons = reasons
        self._lost_ms: float | None = None
        self._told_ms: float | None = None

    def leaderless_ms(self, now_ms: float) -> float:
        """Return for how long nobody has led, as far as this node knows; 0 if somebody does."""
        if self._lost_ms is not None:
            return now_ms - self._lost_ms
        state = self._raft.replica.state
        return max(0.0, now_ms - state.fetch_deadline_ms) if isinstance(state, Follower) else 0.0

    def look(self, now_ms: float) -> None:
        """Tell if nobody leads for some time, and when somebody does again."""
        if self._is_led(now_ms):
            if self._told_ms is not None and self._lost_ms is not None:
                logger.info(
                    "the quorum has a leader again, node %s, after %.0f s",
                    self._raft.leader.leader_id,
                    (now_ms - self._lost_ms) / 1000,
                )
            self._lost_ms = self._told_ms = None
            return
        if self._lost_ms is None or isinstance(self._raft.replica.state, Resigned):
            # A node that has just led, and may be about to stop, looks for nobody.
            self._lost_ms = now_ms
        if now_ms >= self._next_ms(self._lost_ms):
            self._told_ms = now_ms
            reasons = self._reasons()
            logger.warning(
                "the quorum has no leader that this node can reach: tried %s for %.0f s%s. Start "
                "the controllers that are down: until most of them run, metadata cannot be changed",
                self._others or "nobody",
                (now_ms - self._lost_ms) / 1000,
                f" ({reasons})" if reasons else "",
            )

    def _next_ms(self, lost_ms: float) -> float:
        """Return when to tell of it."""
        if self._told_ms is None:
            return lost_ms + TOLD_AFTER_MS
        return self._told_ms + min(self._told_ms - lost_ms, _TOLD_EACH_MS_MAX)

    def _is_led(self, now_ms: float) -> bool:
        state = self._raft.replica.state
        if isinstance(state, Follower):
            # A node without a vote stays a follower when its leader is silent, and asks others.
            return state.has_fetched and now_ms < state.fetch_deadline_ms
        return isinstance(state, Leader)

    @property
    def _others(self) -> str:
        replica = self._raft.replica
        listener = replica.config.default_listener
        found = [
            node_at(each.id, each.endpoints, listener)
            for each in self._raft.voters.voters
            if each.id != replica.key.id
        ]
        named = [f"{node.id}@{node.host}:{node.port}" for node in found if node is not None]
        servers = [f"{host}:{port}" for host, port in replica.config.bootstrap_servers]
        return ", ".join(named or servers)
