"""For tests, ours and yours: a broker in the process, a cluster of processes, a disk that fails.

``Broker`` and ``Cluster`` are loaded when they are asked for, so that the simulated disk comes
without the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dohle.testing.broker import Broker
    from dohle.testing.cluster import Cluster
    from dohle.testing.node_process import NodeFailed

__all__ = ["Broker", "Cluster", "NodeFailed"]


def __getattr__(name: str) -> Any:
    if name == "Broker":
        from dohle.testing.broker import Broker

        return Broker
    if name == "Cluster":
        from dohle.testing.cluster import Cluster

        return Cluster
    if name == "NodeFailed":
        from dohle.testing.node_process import NodeFailed

        return NodeFailed
    raise AttributeError(f"module {__name__} has no attribute {name}")
