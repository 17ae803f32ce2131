"""What the controller knows of brokers from their heartbeats only. It is not in the log.

A broker whose heartbeats stay away for ``broker.session.timeout.ms`` is fenced. One that shuts down
may stop once every active broker has read the metadata log up to the records that took away its
leaderships. A new controller starts without this knowledge and gets it from the next heartbeats;
until then it takes all brokers that are not fenced for alive.
"""

from __future__ import annotations

from dohle.core.ids import BrokerId
from dohle.metadata.image import BrokerRegistration, ClusterImage
from dohle.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest

_OFFSET_MAX = 2**63 - 1
_NOTHING_READ = -1

#: A broker from one registration to the next: a restarted one has not reported anything yet.
_Life = tuple[BrokerId, int]


class BrokerHeartbeats:
    """When each broker was last heard of, how far it has read, and where its shutdown began.

    ``own_id`` is that of a broker in the controller's own process: as long as the one runs, so does
    the other.
    """

    def __init__(self, session_ms: int, own_id: int) -> None:
        self._session_ms = session_ms
        self._own_id = own_id
        #: The longest silent first.
        self._contact_ms: dict[_Life, int] = {}
        self._read: dict[_Life, int] = {}
        self._leaving: dict[_Life, int] = {}

    def take_over(self, image: ClusterImage, now_ms: int) -> None:
        """Take all brokers that are not fenced for alive, except that of this process.

        If the process was just started, the registration is that of the former one, which is gone.
        """
        for broker in image.brokers.values():
            if not broker.fenced and broker.id != self._own_id:
                self._contact_ms[_life(broker)] = now_ms

    def note(self, image: ClusterImage, request: BrokerHeartbeatRequest, now_ms: int) -> None:
        """Record a heartbeat as it arrives, if it is of a broker's current registration."""
        broker = image.broker(request.broker_id)
        if broker is None or broker.epoch != request.broker_epoch:
            return
        life = _life(broker)
        self._contact_ms.pop(life, None)
        self._contact_ms[life] = now_ms
        self._read[life] = request.current_metadata_offset

    def has_session(self, broker: BrokerRegistration, now_ms: int) -> bool:
        """Tell whether a registered broker has been heard of within the session timeout."""
        contact_ms = self._contact_ms.get(_life(broker))
        return contact_ms is not None and now_ms - contact_ms <= self._session_ms

    def find_stale(self, image: ClusterImage, now_ms: int) -> BrokerRegistration | None:
        """Return the first broker that is to be fenced, and forget others that are no more."""
        for life, contact_ms in list(self._contact_ms.items()):
            broker = image.broker(life[0])
            is_current = broker is not None and broker.epoch == life[1]
            is_alive = now_ms - contact_ms <= self._session_ms or life[0] == self._own_id
            if is_current and is_alive:
                continue
            if broker is not None and is_current and not broker.fenced:
                return broker
            for table in (self._contact_ms, self._read, self._leaving):
                table.pop(life, None)
        return None

    def began_shutdown(self, broker: BrokerRegistration, offset: int) -> None:
        """Note where the records of a controlled shutdown end: later ones do not delay it."""
        self._leaving.setdefault(_life(broker), offset)

    def controlled_shutdown_offset(self, image: ClusterImage, broker_id: int) -> int | None:
        """Return how far the others must have read before a broker may stop; None if it stays."""
        broker = image.broker(broker_id)
        return None if broker is None else self._leaving.get(_life(broker))

    def lowest_active_offset(self, image: ClusterImage) -> int:
        """Return how far all active brokers have read; no limit if there are none."""
        read = (
            self._read.get(_life(broker), _NOTHING_READ)
            for broker in image.brokers.values()
            if broker.is_active
        )
        return min(read, default=_OFFSET_MAX)


def _life(broker: BrokerRegistration) -> _Life:
    return broker.id, broker.epoch
