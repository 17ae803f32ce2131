"""What the controller knows of brokers from their heartbeats only. It is not in the log.

A broker whose heartbeats stay away for ``broker.session.timeout.ms`` is fenced. One that shuts down
may stop once every active broker has read the metadata log up to the records that took away its
leaderships. A new controller starts without this knowledge and gets it from the next heartbeats;
until then it takes all brokers that are not fenced for alive (A2).

Silence counts only while the controller listens: a process that was paused takes nobody for dead
before it has heard what came in meanwhile. (Kafka's fences its brokers then.)
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

    ``own_id`` is that of the controller's own node, which may be a broker as well.
    """

    def __init__(self, session_ms: int, own_id: int) -> None:
        self._session_ms = session_ms
        self._own_id = own_id
        self._looked_ms: int | None = None
        #: The broker of this node if nothing was heard of it yet.
        self._unheard: _Life | None = None
        #: The longest silent first.
        self._contact_ms: dict[_Life, int] = {}
        self._read: dict[_Life, int] = {}
        self._leaving: dict[_Life, int] = {}

    def take_over(self, image: ClusterImage, now_ms: int) -> None:
        """Take all brokers that are not fenced for alive.

        That of this very node has no session before it is heard of: if the process was just
        started, the registration is that of the former one, which is gone. (In Kafka a node that
        was killed waits for the session to end before it can register again.)
        """
        for broker in image.brokers.values():
            if not broker.fenced:
                self._contact_ms[_life(broker)] = now_ms
                if broker.id == self._own_id:
                    self._unheard = _life(broker)

    def note(self, image: ClusterImage, request: BrokerHeartbeatRequest, now_ms: int) -> None:
        """Record a heartbeat as it arrives, if it is of a broker's current registration."""
        broker = image.broker(request.broker_id)
        if broker is None or broker.epoch != request.broker_epoch:
            return
        life = _life(broker)
        if life == self._unheard:
            self._unheard = None
        self._contact_ms.pop(life, None)
        self._contact_ms[life] = now_ms
        self._read[life] = request.current_metadata_offset

    def has_session(self, broker: BrokerRegistration, now_ms: int) -> bool:
        """Tell whether a registered broker has been heard of within the session timeout."""
        life = _life(broker)
        contact_ms = None if life == self._unheard else self._contact_ms.get(life)
        return contact_ms is not None and now_ms - contact_ms <= self._session_ms

    def ended(self, broker: BrokerRegistration) -> None:
        """Forget a broker that may stop now, and is fenced: its next process need not wait.

        (In Kafka it waits for the session to end, however it was stopped.)
        """
        for table in (self._contact_ms, self._read, self._leaving):
            table.pop(_life(broker), None)

    def find_stale(self, image: ClusterImage, now_ms: int) -> BrokerRegistration | None:
        """Return the first broker that is to be fenced, and forget others that are no more.

        It is called several times in each session timeout.
        """
        looked_ms, self._looked_ms = self._looked_ms, now_ms
        if looked_ms is not None and now_ms - looked_ms > self._session_ms // 2:
            self._contact_ms = dict.fromkeys(self._contact_ms, now_ms)
        for life, contact_ms in list(self._contact_ms.items()):
            broker = image.broker(life[0])
            is_current = broker is not None and broker.epoch == life[1]
            is_alive = now_ms - contact_ms <= self._session_ms
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
