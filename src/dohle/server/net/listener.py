"""Accepting connections on one address, within the limits, and closing idle ones."""

from __future__ import annotations

import errno
import logging
import socket
from asyncio import AbstractEventLoop, TimerHandle
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from dohle.core.config.definition import ConfigValues
from dohle.core.config.listeners import Listener
from dohle.core.host import Descriptor, Host, StreamSocket
from dohle.core.principal import Principal
from dohle.security.login import SaslLogin, SaslTerms
from dohle.server.net.connection import Connection
from dohle.server.net.entrance import Entrance
from dohle.server.net.login_gate import LoginGate
from dohle.server.net.request_memory import RequestMemory
from dohle.server.net.service import Service
from dohle.server.net.tls_connection import TlsConnection
from dohle.server.net.tls_stream import TlsStream
from dohle.server.net.turns import Turns

logger = logging.getLogger("dohle.server")

_ACCEPT_PAUSE_S = 1.0
_ACCEPTED_AT_ONCE = 16
#: How many connections are kept only to be closed later.
_HELD_MAX = 1_000
_NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})
# Loopback addresses, also as an IPv6 socket shows them.
_LOCAL, _LOCAL_V6 = ("127.", "::ffff:127."), "::1"
_UNPACED = b"reno"


class ConnectionLimits:
    """Limits shared by all listeners of a node: how many connections, in all and per host."""

    def __init__(
        self, values: Callable[[], ConfigValues], open_files_max: Callable[[], int]
    ) -> None:
        # Read each time: the limits may be altered while the node runs.
        self._values = values
        self._open_files_max = open_files_max
        self.by_host: Counter[str] = Counter()
        self.total = 0
        #: Returns for how long a new connection is held before it is closed, because there were too
        #: many from its host; None as long as there are no such quotas.
        self.delay_s: Callable[[str], float] | None = None

    def admit(self, host: str) -> bool:
        """Count a new connection, unless there are too many."""
        values = self._values()
        # The other half of the descriptors is for files: see ``OpenFiles``.
        most = self._open_files_max() // 2
        if self.total >= min(most, values.get_int("max.connections")) or self.by_host[
            host
        ] >= values.get_int("max.connections.per.ip"):
            return False
        self.total += 1
        self.by_host[host] += 1
        return True

    def release(self, host: str) -> None:
        """Count one connection less."""
        self.total -= 1
        self.by_host[host] -= 1
        if not self.by_host[host]:
            del self.by_host[host]


class ListeningSocket:
    """A bound listener and its connections."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        host: Host,
        listener: Listener,
        turns: Turns,
        memory: RequestMemory | None,
        limits: ConnectionLimits,
        *,
        backlog: int,
        request_bytes_max: int,
        idle_ms_max: int,
        entrance: Entrance | None = None,
    ) -> None:
        """``entrance`` authenticates clients, if they have to be."""
        self.listener = listener
        self.entrance = entrance
        #: What stands before all requests, if clients have to log in.
        self.gate: LoginGate | None = None
        #: In the order in which they were accepted.
        self.connections: dict[Connection, None] = {}
        self._loop = loop
        self._host = host
        self._spare: Descriptor | None = None
        self._turns = turns
        self._memory = memory
        self._limits = limits
        self._request_bytes_max = request_bytes_max
        self._idle_s_max = idle_ms_max / 1000
        #: How many connections were made, were closed again, of these some for their silence; and
        #: how many were refused.
        self.made_count = self.closed_count = self.expired_count = self.refused_count = 0
        #: How many failed to authenticate.
        self.failed_count = 0
        #: How many were made too soon for their quota, and those of them that are not closed yet.
        self.throttled_count = 0
        self._held: dict[StreamSocket, TimerHandle] = {}
        #: The bytes in and out of connections that are closed.
        self.closed_bytes_in = self.closed_bytes_out = 0
        self._now = host.clock.monotonic_s
        self._sweeper: TimerHandle | None = None
        self._resumer: TimerHandle | None = None
        self._socket = host.listen(listener.host or "0.0.0.0", listener.port, backlog)
        self.host, self.port = self._socket.getsockname()[:2]

    def start(self, service: Service) -> None:
        """Start accepting; the service gets the requests."""
        self._service = service
        if self.entrance is not None and self.entrance.sasl is not None:
            self.gate = LoginGate(
                self._loop, service, self._now, self._logged_in, self._login_failed
            )
        self._take_spare()
        self._loop.add_reader(self._socket.fileno(), self._on_acceptable)
        self._sweep_later()

    def _on_acceptable(self) -> None:
        # A few at a time: a storm of new connections must not hold up requests on the others.
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                sock, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_DESCRIPTOR or not self._refuse_some():
                    self._pause_accepting(error)
                return
            self._admit(sock, address[0], address[1])

    def _refuse_some(self) -> bool:
        """Close connections for which there is no descriptor, with the help of the spare one.

        Their clients are told at once; otherwise they would wait for ever to be accepted. False
        if the spare descriptor is in use elsewhere by now.
        """
        for _ in range(_ACCEPTED_AT_ONCE):
            if self._spare is None:
                return False
            self._spare.close()
            self._spare = None
            try:
                sock, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return True
            except OSError:
                return False
            else:
                sock.close()
            finally:
                self._take_spare()
            logger.warning(
                "refused a connection from %s on listener %s: too many files are open; raise the"
                " hard limit (ulimit -Hn) or lower max.connections",
                address[0],
                self.listener.name,
            )
        return True

    def _take_spare(self) -> None:
        if self._spare is None:
            with suppress(OSError):
                self._spare = self._host.spare_descriptor()

    def _pause_accepting(self, error: OSError) -> None:
        """Wait a little when there are no descriptors left, instead of failing again at once."""
        logger.error(
            "listener %s cannot accept connections, and tries again in %g s: %s. If there are too"
            " many open files, raise the hard limit (ulimit -Hn) or lower max.connections.",
            self.listener.name,
            _ACCEPT_PAUSE_S,
            error,
        )
        self._loop.remove_reader(self._socket.fileno())
        self._resumer = self._loop.call_later(_ACCEPT_PAUSE_S, self._resume_accepting)

    def _resume_accepting(self) -> None:
        self._resumer = None
        self._take_spare()
        self._loop.add_reader(self._socket.fileno(), self._on_acceptable)

    def _hold(self, sock: StreamSocket, host: str, delay_s: float) -> None:
        """Close a connection that is not served, but not before some time has passed (KIP-612).

        So its client is slowed down. Only so many are kept for that.
        """
        self.throttled_count += 1
        logger.debug(
            "a connection from %s on listener %s is closed in %g s: its quota is exceeded",
            host,
            self.listener.name,
            delay_s,
        )
        if len(self._held) >= _HELD_MAX:
            sock.close()
        else:
            self._held[sock] = self._loop.call_later(delay_s, self._drop, sock)

    def _drop(self, sock: StreamSocket) -> None:
        self._held.pop(sock).cancel()
        sock.close()

    def _admit(self, sock: StreamSocket, host: str, port: int) -> None:
        delay_of = self._limits.delay_s
        if delay_of is not None and (delay_s := delay_of(host)):
            self._hold(sock, host, delay_s)
            return
        if not self._limits.admit(host):
            self.refused_count += 1
            logger.warning(
                "refused a connection from %s on listener %s: there are too many (see"
                " max.connections, max.connections.per.ip and the limit of open files)",
                host,
                self.listener.name,
            )
            sock.close()
            return
        send_at_once(sock, host)
        peer = f"{host}:{port}"
        if self.entrance is None:
            self._serve(Connection, sock, host, peer)
        elif not self.entrance.room.has_room():
            self._turn_away(sock, host)
        elif self.entrance.tls is None:
            self._serve(Connection, sock, host, peer)
        else:
            self._let_in(self.entrance, sock, host, peer)

    def _turn_away(self, sock: StreamSocket, host: str) -> None:
        self._limits.release(host)
        self.refused_count += 1
        logger.warning(
            "refused a connection from %s on listener %s: too many others have not logged in yet "
            "(see connections.login.max)",
            host,
            self.listener.name,
        )
        sock.close()

    def _let_in(self, entrance: Entrance, sock: StreamSocket, host: str, peer: str) -> None:
        def done(stream: TlsStream, principal: Principal) -> None:
            self._serve(TlsConnection, stream, host, peer).principal = principal

        def failed(reason: str) -> None:
            self._limits.release(host)
            self.failed_count += 1
            logger.log(
                logging.INFO if reason else logging.DEBUG,
                "the TLS handshake with %s on listener %s failed: %s",
                peer,
                self.listener.name,
                reason,
            )

        entrance.receive(sock, done, failed)

    def _serve(
        self, kind: Callable[..., Connection], sock: StreamSocket, host: str, peer: str
    ) -> Connection:
        def closed(connection: Connection) -> None:
            self.connections.pop(connection, None)
            if self.entrance is not None:
                self.entrance.room.leave(connection)
            self._limits.release(host)
            self._count_closed(connection)

        made = kind(
            self._loop,
            sock,
            self._service,
            self._turns,
            self._memory,
            listener=self.listener.name,
            peer=peer,
            request_bytes_max=self._request_bytes_max,
            on_closed=closed,
            now=self._now,
        )
        self.connections[made] = None
        self.made_count += 1
        if self.gate is not None:
            self._have_log_in(self.gate, made)
        return made

    # Logging in

    def _have_log_in(self, gate: LoginGate, connection: Connection) -> None:
        entrance = self.entrance
        assert entrance is not None

        def terms() -> SaslTerms:
            assert entrance.sasl is not None, "it is a listener with SASL"
            return entrance.sasl

        connection.login = SaslLogin(terms)
        connection.serve_by(gate)
        connection.limit_frames(min(terms().receive_bytes_max, self._request_bytes_max))

        def turn_out(reason: str) -> None:
            self._login_failed(connection, reason)
            connection.close()

        entrance.room.enter(connection, turn_out)

    def _logged_in(self, connection: Connection) -> None:
        assert self.entrance is not None, "there is a gate"
        self.entrance.room.leave(connection)
        connection.limit_frames(self._request_bytes_max)

    def _login_failed(self, connection: Connection, reason: str) -> None:
        self.failed_count += 1
        logger.info(
            "the login of %s on listener %s failed: %s", connection.peer, self.listener.name, reason
        )

    # End

    def _count_closed(self, connection: Connection) -> None:
        self.closed_count += 1
        self.closed_bytes_in += connection.bytes_in
        self.closed_bytes_out += connection.bytes_out
        for usage in connection.times.usages.values():
            usage.count()

    def _sweep_later(self) -> None:
        interval = max(0.05, min(self._idle_s_max / 4, 30.0))
        self._sweeper = self._loop.call_later(interval, self._sweep)

    def _sweep(self) -> None:
        """Close the connections on which nothing has happened for ``connections.max.idle.ms``."""
        oldest = self._now() - self._idle_s_max
        # A client that has to wait for its quota is silent because of that.
        silent = [c for c in self.connections if c.last_active < oldest and not c.is_muted]
        for connection in silent:
            self.expired_count += 1
            connection.close()
        self._sweep_later()

    def stop_accepting(self) -> None:
        """Take no new connections."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
        if self._spare is not None:
            self._spare.close()
            self._spare = None
        for timer in (self._sweeper, self._resumer):
            if timer is not None:
                timer.cancel()

    def close(self) -> None:
        """Close every connection."""
        for held in list(self._held):
            self._drop(held)
        if self.entrance is not None:
            self.entrance.room.close()
        for connection in list(self.connections):
            connection.close()


def send_at_once(sock: StreamSocket, host: str) -> None:
    """Do not pace what goes to a client on this machine.

    Where the system's congestion control is BBR, packets wait for timers. Over a network that keeps
    queues short, but here it only halves the speed of large fetches and doubles their cost.
    """
    if host.startswith(_LOCAL) or host == _LOCAL_V6:
        with suppress(OSError, AttributeError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _UNPACED)
