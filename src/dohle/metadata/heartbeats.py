"""What the controller knows of brokers from their heartbeats only. It is not in the log.

A broker that shuts down may stop once every active broker has read the metadata log up to the
records that took away its leaderships. A new controller starts without this knowledge and gets it
from the next heartbeats.
"""

from __future__ import annotations

from dohle.core.ids import BrokerId
from dohle.metadata.image import ClusterImage
from dohle.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest

_OFFSET_MAX = 2**63 - 1
_NOTHING_READ = -1


class BrokerHeartbeats:
    """How far each broker has read the log, and where its controlled shutdown began, if it did."""

    def __init__(self) -> None:
        # By broker and epoch: a restarted broker has not reported anything yet.
        self._read: dict[tuple[BrokerId, int], int] = {}
        self._leaving: dict[tuple[BrokerId, int], int] = {}

    def note(self, image: ClusterImage, request: BrokerHeartbeatRequest) -> None:
        """Record a heartbeat, if it is of a broker's current registration."""
        registered = {(broker.id, broker.epoch) for broker in image.brokers.values()}
        self._read = {life: read for life, read in self._read.items() if life in registered}
        self._leaving = {life: at for life, at in self._leaving.items() if life in registered}
        life = request.broker_id, request.broker_epoch
        if life not in registered:
            return
        self._read[life] = request.current_metadata_offset
        broker = image.broker(request.broker_id)
        assert broker is not None
        if broker.in_controlled_shutdown and not broker.fenced:
            # The records that began it are at or before this offset. It is set once: later records
            # do not delay the broker.
            self._leaving.setdefault(life, image.offset)

    def controlled_shutdown_offset(self, image: ClusterImage, broker_id: int) -> int | None:
        """Return how far the others must have read before a broker may stop; None if it stays."""
        broker = image.broker(broker_id)
        return None if broker is None else self._leaving.get((broker.id, broker.epoch))

    def lowest_active_offset(self, image: ClusterImage) -> int:
        """Return how far all active brokers have read; no limit if there are none."""
        read = (
            self._read.get((broker.id, broker.epoch), _NOTHING_READ)
            for broker in image.brokers.values()
            if broker.is_active
        )
        return min(read, default=_OFFSET_MAX)
