"""Whether a node serves."""

from __future__ import annotations

from dohle.server.metrics.sources import BrokerState, Sources

_STATES = {
    BrokerState.NOT_RUNNING: "the node has stopped",
    BrokerState.STARTING: "the node is starting",
    BrokerState.RECOVERY: "the node is opening and recovering its logs",
    BrokerState.SHUTTING_DOWN: "the node is stopping",
}


def problems(sources: Sources) -> list[str]:
    """Return why clients should not be sent here; nothing if they can be.

    Names of topics are not told: whoever can reach the port may ask.
    """
    if sources.state is not BrokerState.RUNNING or sources.broker is None:
        return [_STATES.get(sources.state, "the node is starting")]
    found = []
    if sources.controller is None or not sources.controller.is_active:
        found.append("the metadata log cannot be written")
    registration = sources.broker.image.broker(sources.node_id)
    if registration is None or registration.fenced:
        found.append("the broker is fenced")
    offline = sources.broker.logs.offline_directories
    if offline:
        found.append(f"log directories that are offline: {len(offline)}")
    return found
