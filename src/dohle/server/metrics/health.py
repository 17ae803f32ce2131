"""Whether a node serves."""

from __future__ import annotations

from collections.abc import Iterator

from dohle.metadata.broker_life import BrokerState
from dohle.server.broker import BrokerServer
from dohle.server.metrics.sources import Sources

#: Elections may take this long before clients are sent elsewhere.
LEADERLESS_MS = 5_000

_STATES = {
    BrokerState.NOT_RUNNING: "the node has stopped",
    BrokerState.STARTING: "the node is starting",
    BrokerState.RECOVERY: "the node is opening and recovering its logs",
    BrokerState.PENDING_CONTROLLED_SHUTDOWN: "the node is stopping",
    BrokerState.SHUTTING_DOWN: "the node is stopping",
}


def problems(sources: Sources) -> list[str]:
    """Return why clients should not be sent here; nothing if they can be.

    Names of topics are not told: whoever can reach the port may ask.
    """
    if sources.state is not BrokerState.RUNNING:
        return [_STATES.get(sources.state, "the node is starting")]
    found = []
    if sources.controller is not None and sources.controller.is_closed:
        found.append("the metadata log cannot be written")
    leaderless_ms = 0.0 if sources.quorum is None else sources.quorum.leaderless_ms
    if leaderless_ms >= LEADERLESS_MS:
        found.append(f"no active controller for {leaderless_ms / 1000:.0f} s")
    return found if sources.broker is None else [*found, *_problems_of(sources.broker)]


def _problems_of(broker: BrokerServer) -> Iterator[str]:
    registration = broker.image.broker(broker.node_id)
    if registration is None or registration.fenced:
        yield "the broker is fenced"
    offline = broker.logs.offline_directories
    if offline:
        yield f"log directories that are offline: {len(offline)}"
