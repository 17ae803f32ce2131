"""Tells the operator which brokers come and go: at the active controller, so that it is told once.

That a session has ended is told where it is ended (``periodic.py``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from dohle.core.ids import BrokerId
from dohle.metadata.delta import BrokerChange, Delta
from dohle.metadata.image import BrokerRegistration, ClusterImage

logger = logging.getLogger("dohle.server")


class BrokerWatch:
    """Looks at each new image."""

    def __init__(self, node_id: BrokerId, is_active: Callable[[], bool]) -> None:
        """Prepare to tell of all brokers but that of this node, which tells of itself."""
        self._node_id = node_id
        self._is_active = is_active

    async def on_image(self, _: ClusterImage, delta: Delta) -> None:
        """Tell what has become of brokers."""
        if not self._is_active():
            return
        for change in delta.changed_brokers:
            if change.id != self._node_id and (told := _told(change)) is not None:
                logger.info("broker %d %s", change.id, told)


def _told(change: BrokerChange) -> str | None:
    before, after = change.before, change.after
    if after is None:
        return "is unregistered: nobody waits for it any more"
    if not after.fenced and (before is None or before.fenced):
        return f"is there, at {_addresses(after)}: it is unfenced, and serves clients"
    was_leaving = before is not None and before.in_controlled_shutdown
    if after.in_controlled_shutdown and not was_leaving:
        return "is being shut down: other replicas lead its partitions"
    return None


def _addresses(broker: BrokerRegistration) -> str:
    return ", ".join(f"{each.host}:{each.port}" for each in broker.endpoints.values())
