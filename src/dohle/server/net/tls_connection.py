"""A client connection over TLS: the same as any other, but for what lies between it and the socket.

OpenSSL may hold bytes that have arrived for which there was no room. The loop does not know of
them: the connection looks again by itself.
"""

from __future__ import annotations

from typing import Any, ClassVar

from dohle.server.net.connection import Connection
from dohle.server.net.sending import Sender
from dohle.server.net.tls_stream import TlsSender, TlsStream


class TlsConnection(Connection):
    """A connected client whose handshake is done."""

    _SENDER: ClassVar[type[Sender]] = TlsSender

    def __init__(self, loop: Any, stream: TlsStream, *more: Any, **named: Any) -> None:
        """Serve a stream; what else is needed is that of any connection."""
        self._stream = stream
        self._looks_again = False
        super().__init__(loop, stream, *more, **named)

    def _read_more(self) -> None:
        super()._read_more()
        self._look_again()

    def _on_readable(self) -> None:
        super()._on_readable()
        self._look_again()

    def _look_again(self) -> None:
        if self._stream.has_more and self._is_reading and not self._looks_again:
            self._looks_again = True
            self._loop.call_soon(self._on_more)

    def _on_more(self) -> None:
        self._looks_again = False
        if self._is_reading:
            self._on_readable()
