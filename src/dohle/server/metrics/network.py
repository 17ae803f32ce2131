"""Connections and bytes by listener: Kafka's ``kafka.server:type=socket-server-metrics``."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dohle.metrics.exposition import Kind, family, labels, single
from dohle.server.metrics.sources import Sources
from dohle.server.net.listener import ListeningSocket

_NAME = "kafka_server_socket_server_metrics"


def collect_network(sources: Sources) -> Iterator[str]:
    """Tell of all listeners."""
    told: list[tuple[str, ListeningSocket, int, int]] = []
    waiting = 0
    for listener in sources.listeners:
        bytes_in, bytes_out = listener.closed_bytes_in, listener.closed_bytes_out
        for connection in list(listener.connections):
            if not connection.is_closed:
                bytes_in += connection.bytes_in
                bytes_out += connection.bytes_out
                waiting += connection.replies.waiting_count
            yield ""
        label = labels({"listener": listener.listener.name, "networkProcessor": 0})
        told.append((label, listener, bytes_in, bytes_out))
    kind: Kind
    by_listener: tuple[tuple[str, Kind, str, Callable[[ListeningSocket], int]], ...] = (
        ("connection_count", "gauge", "Open connections.", lambda one: len(one.connections)),
        ("connection_creation_total", "counter", "Connections made.", lambda one: one.made_count),
        ("connection_close_total", "counter", "Connections closed.", lambda one: one.closed_count),
        (
            "expired_connections_killed_count",
            "counter",
            "Connections that were closed because nothing happened on them.",
            lambda one: one.expired_count,
        ),
        (
            "connections_refused_total",
            "counter",
            "Connections that were refused because there were too many.",
            lambda one: one.refused_count,
        ),
        (
            "failed_authentication_total",
            "counter",
            "Connections that were not let in: they could not show who they are.",
            lambda one: one.failed_count,
        ),
        (
            "expired_sessions_total",
            "counter",
            "Connections that were closed because their login had expired.",
            lambda one: 0 if one.gate is None else one.gate.expired_count,
        ),
    )
    for name, kind, doc, value in by_listener:
        samples = [(label, value(listener)) for label, listener, _, _ in told]
        yield from family(f"{_NAME}_{name}", kind, doc, samples)
    yield from family(
        f"{_NAME}_incoming_byte_total",
        "counter",
        "Bytes received.",
        [(label, count) for label, _, count, _ in told],
    )
    yield from family(
        f"{_NAME}_outgoing_byte_total",
        "counter",
        "Bytes sent.",
        [(label, count) for label, _, _, count in told],
    )
    yield from single(
        "kafka_network_requestchannel_responsequeuesize",
        "gauge",
        "Answers that wait for something, or stand behind one that does.",
        waiting,
    )
