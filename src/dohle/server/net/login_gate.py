"""What stands before all APIs on a listener with SASL, until a client has logged in.

A connection is served by the gate at first. It lets nothing through but what belongs to the login.
When that is done, the connection is served as any other, without the gate, unless its session has
an end: then the gate stays, and looks at the clock before each request, so that no shortcut
outlives the session.
"""

from __future__ import annotations

import struct
from asyncio import AbstractEventLoop, Future
from collections.abc import Callable
from typing import Any

from dohle.protocol.apis import ApiKey
from dohle.security.login import Phase, SaslLogin
from dohle.server.net.connection import Connection
from dohle.server.net.outcome import CloseConnection, Frame, LateFrame
from dohle.server.net.service import Service

_API_KEY = struct.Struct(">h")
_SIZE = struct.Struct(">i")
_OF_LOGINS = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})


class LoginGate:
    """Serves connections that have not logged in, and those with sessions."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        service: Service,
        now_s: Callable[[], float],
        on_login: Callable[[Connection], None],
        on_failure: Callable[[Connection, str], None],
    ) -> None:
        """``service`` is what the gate stands before."""
        self._loop = loop
        self._service = service
        self._now_s = now_s
        self._on_login = on_login
        self._on_failure = on_failure
        #: Answers that belong to a login and are awaited. Who has failed is told a little later and
        #: closed behind that; what came in a long frame is taken while it is awaited.
        self._awaited: dict[Future[Any], Connection] = {}
        #: How many were cut off because their session had ended.
        self.expired_count = 0
        self.is_patient = service.is_patient
        self.settle = service.settle
        self.may_settle_later = service.may_settle_later

    def handle(
        self, frame: memoryview, connection: Connection
    ) -> Frame | LateFrame | Future[Any] | None:
        """Let a request through if it is in order now; close the connection if it is not."""
        login = connection.login
        assert login is not None, "the gate serves listeners with SASL"
        phase = login.phase
        if phase is Phase.TOKENS and login.is_bare:
            return self._take_bare_token(frame, connection, login)
        api_key = _API_KEY.unpack_from(frame)[0] if len(frame) >= _API_KEY.size else -1
        if phase is Phase.OPEN:
            if login.expires_s is not None and api_key != ApiKey.SASL_HANDSHAKE:
                self._check_session(login)
        elif not _is_in_order(login, api_key):
            raise CloseConnection(f"a request with API key {api_key} before the login")
        reply = self._service.handle(frame, connection)
        if api_key in _OF_LOGINS:
            self._concluded(reply, connection, login)
        return reply

    def _check_session(self, login: SaslLogin) -> None:
        assert login.expires_s is not None, "it has an end"
        if self._now_s() > login.expires_s:
            self.expired_count += 1
            raise CloseConnection(f"the session of {login.principal} has ended")

    def _concluded(
        self,
        reply: Frame | LateFrame | Future[Any] | None,
        connection: Connection,
        login: SaslLogin,
    ) -> None:
        """Take note of how the login goes, after a request that belongs to it."""
        if isinstance(reply, Future):
            self._awaited[reply] = connection
        self._take_note(connection, login)

    def _take_note(self, connection: Connection, login: SaslLogin) -> None:
        if not login.is_new:
            return
        login.is_new = False
        if login.phase is Phase.FAILED:
            self._on_failure(connection, login.failure)
        else:
            self._let_in(connection, login)

    def _let_in(self, connection: Connection, login: SaslLogin) -> None:
        assert login.principal is not None, "the login is done"
        connection.principal = login.principal
        self._on_login(connection)
        if login.expires_s is None:
            connection.serve_by(self._service)

    def _take_bare_token(
        self, frame: memoryview, connection: Connection, login: SaslLogin
    ) -> Frame | LateFrame | Future[Any] | None:
        """Take a token without a header, and answer with one; there is no answer to a failure."""
        answered = login.token(bytes(frame), self._now_s())
        if answered.failure is None:
            reply: Frame = [_SIZE.pack(len(answered.reply)) + answered.reply]
            self._concluded(reply, connection, login)
            return reply
        nothing: Future[Any] = self._loop.create_future()
        self._loop.call_later(login.terms.failure_delay_ms / 1000, _finish, nothing)
        self._concluded(nothing, connection, login)
        return nothing

    def complete(self, answered: Future[Any]) -> Frame:
        """Encode an answer; one that says that the login has failed is the last."""
        connection = self._awaited.pop(answered, None)
        login = None if connection is None else connection.login
        if connection is None or login is None:
            return self._service.complete(answered)
        # Before the next request is looked at, whatever it is that was awaited.
        self._take_note(connection, login)
        if login.phase is Phase.FAILED:
            connection.replies.end("the login has failed")
            if login.is_bare:
                return []
        return self._service.complete(answered)

    def forget(self, future: Future[Any]) -> None:
        """Give up waiting for an answer to a client that has gone."""
        connection = self._awaited.pop(future, None)
        login = None if connection is None else connection.login
        if connection is not None and login is not None and login.phase is Phase.FAILED:
            # Whoever guesses passwords does not wait for the answer, and is logged all the same.
            self._take_note(connection, login)
        self._service.forget(future)


def _is_in_order(login: SaslLogin, api_key: int) -> bool:
    if login.phase is Phase.TOKENS:
        return api_key == ApiKey.SASL_AUTHENTICATE
    if login.phase is Phase.HANDSHAKE:
        return api_key == ApiKey.SASL_HANDSHAKE or (
            api_key == ApiKey.API_VERSIONS and not login.has_asked_versions
        )
    return False


def _finish(future: Future[Any]) -> None:
    if not future.done():
        future.set_result(None)
