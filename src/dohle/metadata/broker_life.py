"""The life of a broker as it sees it itself: what to tell the controller, and when (A50-A52).

It registers, and tries again every heartbeat interval until it has succeeded, or for
``initial.broker.registration.timeout.ms``. From then on it sends heartbeats: every 10 ms until the
controller says that its image includes the registration, then every interval. While it recovers its
logs it wants to stay fenced; when it has, it says so at once, and serves when it is unfenced. To
stop, it wants to shut down, and does so when the controller agrees, or after five minutes. If no
controller answers at all it stops when ``broker.session.timeout.ms`` are over: any that comes later
takes a broker for gone that it does not hear of for that long. (Kafka waits five minutes then too.)

The directories that have failed are named in every heartbeat, and in one at once when the next one
fails. A broker that cannot tell the controller of it within ``log.dir.failure.timeout.ms`` ends: it
may be leading partitions that nobody can use (D3).

One message is on its way at a time. Except for the first registration, an error changes nothing but
that the next heartbeat waits for an interval (A51): a broker does not register again because of an
error, and the controller never forgets a registration.

Two errors are final where Kafka goes on trying, since waiting does not help: that the node is of
another cluster, and that the controller of this very node cannot write any more.
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import NamedTuple

from dohle.core.errors import ErrorCode
from dohle.core.ids import Uuid
from dohle.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from dohle.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)

UNREGISTERED = -1

#: How long a controlled shutdown may take.
SHUTDOWN_TIMEOUT_MS = 5 * 60 * 1_000
_CATCH_UP_INTERVAL_MS = 10
#: Before the second heartbeat of a shutdown: leaders have mostly moved by then.
_SHUTDOWN_PAUSE_MS = 50
_FINAL = frozenset({ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.KAFKA_STORAGE_ERROR})
#: The controller does not know this broker (any more): no heartbeat will be answered otherwise.
_FINAL_FOR_SHUTDOWN = _FINAL | {ErrorCode.STALE_BROKER_EPOCH}


class BrokerState(IntEnum):
    """How far a broker is, in Kafka's numbers."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


_CAUGHT_UP = frozenset(
    {BrokerState.RECOVERY, BrokerState.RUNNING, BrokerState.PENDING_CONTROLLED_SHUTDOWN}
)


class LifeTimes(NamedTuple):
    """How long things may take, in ms."""

    heartbeat_interval: int
    registration_timeout: int
    #: For how long a controller takes a broker for alive that is silent.
    session_timeout: int
    directory_failure_timeout: int


class BrokerLife:
    """A machine: it is asked what to send, and told the answers and what happens to the broker."""

    def __init__(
        self, registration: BrokerRegistrationRequest, times: LifeTimes, *, is_alone: bool = False
    ) -> None:
        """``is_alone``: its node has the only controller, and nobody could take over from it."""
        self._registration = registration
        self._times = times
        self._is_alone = is_alone
        self.state = BrokerState.NOT_RUNNING
        #: The offset of this registration in the metadata log.
        self.broker_epoch = UNREGISTERED
        #: Why it ended without having been told to, or could not tell the controller.
        self.failure: ErrorCode | None = None
        #: Whether it ended because the controller could not be told of a failed directory.
        self.is_cut_off = False
        self._is_registered = False
        self._is_recovered = False
        self._has_asked_to_stop = False
        self._is_waiting = False
        self._next_ms: float = 0
        self._at_once = False
        self._deadline_ms: float | None = None
        #: When it stops, whatever the controller says.
        self._stop_by_ms: float = 0
        #: The directories that have failed, and by when the controller must know of each; None
        #: once it does.
        self._failed: dict[Uuid, float | None] = {}
        #: Those of them that the request on its way names.
        self._named: tuple[Uuid, ...] = ()

    # What is to be done

    @property
    def is_caught_up(self) -> bool:
        """Whether its image was that of its registration, or a later one.

        One that has given up may never have got there: logs must not be opened by its image, which
        may know of none of them.
        """
        return self.state in _CAUGHT_UP

    @property
    def is_over(self) -> bool:
        """Whether there is nothing more to say."""
        return self.state is BrokerState.SHUTTING_DOWN

    def is_due(self, now_ms: float) -> bool:
        """Tell whether ``next_request`` is to be sent now."""
        return not self._is_waiting and not self.is_over and now_ms >= self._next_ms

    @property
    def deadline_ms(self) -> float | None:
        """When to look again; None: not before something happens."""
        times = [] if self._is_waiting or self.is_over else [self._next_ms]
        if self._deadline_ms is not None and not self.is_over:
            times.append(self._deadline_ms)
        times += self._tell_by_ms()
        return min(times, default=None)

    def _tell_by_ms(self) -> list[float]:
        """Return by when the controller must know of failed directories; a stop needs no such."""
        if self.is_over or self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            return []
        return [by_ms for by_ms in self._failed.values() if by_ms is not None]

    def next_request(
        self, metadata_offset: int
    ) -> BrokerRegistrationRequest | BrokerHeartbeatRequest:
        """Return what to send now; ``metadata_offset`` is that of the image (A45)."""
        self._is_waiting, self._at_once = True, False
        self._named = tuple(sorted(self._failed))
        if not self._is_registered and not self._failed:
            return self._registration
        if not self._is_registered:
            online = (each for each in self._registration.log_dirs if each not in self._failed)
            return self._registration.replace(log_dirs=tuple(online))
        return BrokerHeartbeatRequest(
            broker_id=self._registration.broker_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=metadata_offset,
            want_fence=not self._is_recovered,
            want_shut_down=self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN,
            offline_log_dirs=self._named,
        )

    # What happens to the broker

    def start(self, now_ms: float) -> None:
        """Begin."""
        self.state = BrokerState.STARTING
        self._next_ms = now_ms
        self._deadline_ms = now_ms + self._times.registration_timeout

    def recovered(self, now_ms: float) -> None:
        """All logs are open: it may be unfenced."""
        self._is_recovered = True
        self._send_at_once(now_ms)

    def directory_failed(self, directory_id: Uuid, now_ms: float) -> None:
        """Tell the controller that the replicas in a directory cannot be used any more."""
        if directory_id not in self._failed:
            self._failed[directory_id] = now_ms + self._times.directory_failure_timeout
            self._send_at_once(now_ms)

    def register_again(self, now_ms: float) -> None:
        """Send the registration anew, of the same incarnation (A33)."""
        self._is_registered = False
        self._send_at_once(now_ms)

    def stop(self, now_ms: float) -> None:
        """Ask to be shut down; a broker that nobody relies on just ends."""
        if self.state is BrokerState.RUNNING:
            self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
            self._stop_by_ms = now_ms + SHUTDOWN_TIMEOUT_MS
            self._wait_for_controller(now_ms)
            self._send_at_once(now_ms)
        elif self.state is not BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            self._end(None)

    def _wait_for_controller(self, now_ms: float) -> None:
        """Go on waiting until it may stop: one was heard of, or is asked for the first time."""
        self._deadline_ms = min(self._stop_by_ms, now_ms + self._times.session_timeout)

    def tick(self, now_ms: float) -> None:
        """Give up what has taken too long."""
        if self._deadline_ms is not None and now_ms >= self._deadline_ms:
            self._end(ErrorCode.REQUEST_TIMED_OUT)
        if now_ms >= min(self._tell_by_ms(), default=math.inf):
            self.is_cut_off = True
            self._end(ErrorCode.REQUEST_TIMED_OUT)

    # Answers

    def answered(
        self, reply: BrokerRegistrationResponse | BrokerHeartbeatResponse, now_ms: float
    ) -> None:
        """Take in the answer to the last request; REQUEST_TIMED_OUT stands for none."""
        self._is_waiting = False
        if self.is_over:
            return
        if (
            self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
            and reply.error_code != ErrorCode.REQUEST_TIMED_OUT
        ):
            self._wait_for_controller(now_ms)
        if reply.error_code:
            self._refused(ErrorCode(reply.error_code), now_ms)
            return
        # Whatever was on its way has told of these: in the registration they are not there.
        self._failed.update(dict.fromkeys(self._named))
        if isinstance(reply, BrokerRegistrationResponse):
            self._registered(reply, now_ms)
        else:
            self._heard(reply, now_ms)

    def _registered(self, reply: BrokerRegistrationResponse, now_ms: float) -> None:
        self.broker_epoch = reply.broker_epoch
        self._is_registered = True
        if self.state is BrokerState.STARTING:
            self._deadline_ms = None
        self._next_ms = now_ms

    def _heard(self, reply: BrokerHeartbeatResponse, now_ms: float) -> None:
        pause_ms = self._times.heartbeat_interval
        match self.state:
            case BrokerState.STARTING:
                if reply.is_caught_up:
                    self.state = BrokerState.RECOVERY
                pause_ms = _CATCH_UP_INTERVAL_MS
            case BrokerState.RECOVERY if not reply.is_fenced:
                self.state = BrokerState.RUNNING
            case BrokerState.PENDING_CONTROLLED_SHUTDOWN:
                if reply.should_shut_down:
                    self._end(None)
                    return
                if not self._has_asked_to_stop:
                    pause_ms = 0 if self._is_alone else _SHUTDOWN_PAUSE_MS
                self._has_asked_to_stop = True
            case _:
                pass
        self._next_ms = now_ms if self._at_once else now_ms + pause_ms

    def _refused(self, code: ErrorCode, now_ms: float) -> None:
        stops = self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
        starts = self.state is BrokerState.STARTING
        if (stops and (self._is_alone or code in _FINAL_FOR_SHUTDOWN)) or (
            starts and code in _FINAL
        ):
            self._end(code)
        else:
            self._next_ms = now_ms + self._times.heartbeat_interval

    def _send_at_once(self, now_ms: float) -> None:
        """Send the next message now, or when what is on its way is answered without an error."""
        self._at_once = True
        if not self._is_waiting:
            self._next_ms = now_ms

    def _end(self, failure: ErrorCode | None) -> None:
        self.state = BrokerState.SHUTTING_DOWN
        self.failure = failure
        self._deadline_ms = None
