"""How clients enter through a listener that authenticates them."""

from __future__ import annotations

import ssl
from asyncio import AbstractEventLoop
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from dohle.core.host import StreamSocket, ThreadPool
from dohle.core.principal import ANONYMOUS, USER, Principal
from dohle.security.distinguished_names import subject_name
from dohle.security.login import SaslTerms
from dohle.security.mapping_rules import MappingRules
from dohle.server.net.tls_handshake import Handshake
from dohle.server.net.tls_stream import PIECE_BYTES, TlsSession, TlsStream
from dohle.server.net.waiting_room import WaitingRoom


@dataclass(frozen=True, slots=True)
class TlsTerms:
    """How TLS is spoken at a listener."""

    context: ssl.SSLContext
    rules: MappingRules
    #: What clients are shown, in DER.
    certificate: bytes

    def principal(self, session: TlsSession) -> Principal:
        """Return who a client is by its certificate; a ValueError if no rule is about it."""
        certificate = session.engine.getpeercert(binary_form=True)
        if certificate is None:
            return ANONYMOUS
        name = subject_name(certificate)
        user = self.rules.user(name)
        if user is None:
            raise ValueError(f"no rule of ssl.principal.mapping.rules is about {name}")
        return Principal(USER, user)


class Surroundings(NamedTuple):
    """What the entrances of a node share."""

    loop: AbstractEventLoop
    #: Compute keys.
    threads: ThreadPool
    #: For what arrives.
    scratch: memoryview

    @classmethod
    def of(cls, loop: AbstractEventLoop, threads: ThreadPool) -> Surroundings:
        """Make them."""
        return cls(loop, threads, memoryview(bytearray(PIECE_BYTES)))


class Entrance:
    """The entrance of one listener."""

    def __init__(
        self,
        around: Surroundings,
        room: WaitingRoom,
        tls: TlsTerms | None,
        sasl: SaslTerms | None,
    ) -> None:
        """``tls`` and ``sasl`` may be replaced, for those who come later."""
        self._around = around
        self.room = room
        self.tls = tls
        self.sasl = sasl

    def receive(
        self,
        sock: StreamSocket,
        on_done: Callable[[TlsStream, Principal], None],
        on_failed: Callable[[str], None],
    ) -> None:
        """Speak TLS with a new client; either is called, once."""
        around, tls = self._around, self.tls
        assert tls is not None, "it is a listener with TLS"

        def done(opened: StreamSocket, session: TlsSession) -> None:
            self.room.leave(handshake)
            try:
                principal = tls.principal(session)
            except ValueError as error:
                opened.close()
                on_failed(str(error))
            else:
                on_done(TlsStream(opened, session, around.scratch), principal)

        def failed(reason: str) -> None:
            self.room.leave(handshake)
            on_failed(reason)

        handshake = Handshake(
            around.loop,
            sock,
            tls.context,
            around.threads,
            around.scratch,
            on_done=done,
            on_failed=failed,
        )
        self.room.enter(handshake, handshake.fail)
