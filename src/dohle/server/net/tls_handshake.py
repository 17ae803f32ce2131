"""The handshake of TLS, before a client can ask anything.

To compute keys takes a millisecond or two. It is done in threads, one step when something has
arrived, so that a storm of new connections does not hold up others. A handshake may take no more
bytes than any honest one has; how long it may take, and how many there may be, the listener says.
"""

from __future__ import annotations

import ssl
from asyncio import AbstractEventLoop, Future
from collections.abc import Callable
from contextlib import suppress

from dohle.core.host import StreamSocket, ThreadPool
from dohle.server.net.tls_stream import TlsSession

#: Certificates of clients may come in long chains.
_BYTES_MAX = 256 * 1024
_HANDSHAKE_RECORD = 22
_PLAINTEXT = "what came is not TLS: does the client speak PLAINTEXT?"


class Handshake:
    """A handshake that goes on; it ends with ``on_done`` or ``on_failed``."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        sock: StreamSocket,
        context: ssl.SSLContext,
        threads: ThreadPool,
        scratch: memoryview,
        *,
        on_done: Callable[[StreamSocket, TlsSession], None],
        on_failed: Callable[[str], None],
    ) -> None:
        """Begin; the socket is closed if it fails, and is handed on if it does not."""
        self._loop = loop
        self._socket = sock
        self._fd = sock.fileno()
        self._threads = threads
        self._scratch = scratch
        self._on_done, self._on_failed = on_done, on_failed
        self._context = context
        #: Made when something arrives: a client that only connects costs no more than a socket.
        self._begun: TlsSession | None = None
        self._unsent = memoryview(b"")
        self._received = 0
        self._is_closed = False
        #: The step that a thread takes now: OpenSSL's state must not be touched meanwhile.
        self._step: Future[bool] | None = None
        sock.setblocking(False)
        loop.add_reader(self._fd, self._on_readable)

    @property
    def _session(self) -> TlsSession:
        if self._begun is None:
            self._begun = TlsSession.begin(self._context)
        return self._begun

    def _on_readable(self) -> None:
        self._loop.remove_reader(self._fd)
        try:
            count = self._socket.recv_into(self._scratch)
        except (BlockingIOError, InterruptedError):
            self._loop.add_reader(self._fd, self._on_readable)
            return
        except OSError as error:
            self.fail(error.strerror or str(error))
            return
        if count == 0:
            # Probes that only test whether the port is open send nothing, and are not logged.
            self.fail("the client has closed the connection" if self._received else "")
            return
        if not self._received and self._scratch[0] != _HANDSHAKE_RECORD:
            self.fail(_PLAINTEXT)
            return
        self._received += count
        if self._received > _BYTES_MAX:
            self.fail("it is too long")
            return
        self._session.incoming.write(self._scratch[:count])
        self._step = self._threads.run(self._take_step)
        self._step.add_done_callback(self._on_step)

    def _take_step(self) -> bool:
        """Do as much as what has arrived allows; tell whether all is done. Runs in a thread."""
        try:
            self._session.engine.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def _on_step(self, step: Future[bool]) -> None:
        self._step = None
        if self._is_closed:
            # The session was closed while the thread used it.
            with suppress(Exception):
                step.result()
            self._socket.close()
            return
        try:
            is_done = step.result()
        except OSError as error:
            # The client is told why, as far as TLS has words for it.
            self._send()
            self.fail(_reason(error))
            return
        if not self._send():
            self._loop.add_writer(self._fd, self._on_writable, is_done)
        else:
            self._go_on(is_done)

    def _send(self) -> bool:
        """Send what the client is to be told; tell whether the socket took all."""
        if self._session.outgoing.pending:
            self._unsent = memoryview(bytes(self._unsent) + self._session.outgoing.read())
        if self._unsent:
            try:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
            except (BlockingIOError, InterruptedError):
                pass
            except OSError:
                # The next read notices a client that has gone.
                self._unsent = memoryview(b"")
        return not self._unsent

    def _on_writable(self, is_done: bool) -> None:
        if self._send():
            self._loop.remove_writer(self._fd)
            self._go_on(is_done)

    def _go_on(self, is_done: bool) -> None:
        if is_done:
            self._is_closed = True
            self._on_done(self._socket, self._session)
        else:
            self._loop.add_reader(self._fd, self._on_readable)

    def fail(self, reason: str) -> None:
        """Give up, and say why."""
        if self._is_closed:
            return
        on_failed = self._on_failed
        self._close()
        on_failed(reason)

    def _close(self) -> None:
        self._is_closed = True
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        if self._step is None:
            self._socket.close()


def _reason(error: OSError) -> str:
    """Say in OpenSSL's words what failed, without the place in its source."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return str(error)
