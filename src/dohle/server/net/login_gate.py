"""What stands before all APIs on a listener with SASL, until a client has said who it is.

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
        #: The last answers of connections that have failed, and are closed behind them.
        self._last: dict[Future[Any], Connection] = {}
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
            return self._concluded(self._service.handle(frame, connection), connection, login)
        if not _is_in_order(login, api_key):
            raise CloseConnection(f"a request with API key {api_key} before the login")
        return self._concluded(self._service.handle(frame, connection), connection, login)

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
    ) -> Frame | LateFrame | Future[Any] | None:
        """Take note of how the login goes, after a request that belongs to it."""
        if login.phase is Phase.FAILED:
            if isinstance(reply, Future):
                self._last[reply] = connection
            self._on_failure(connection, login.failure)
        elif login.is_new:
            login.is_new = False
            self._let_in(connection, login)
        return reply

    def _let_in(self, connection: Connection, login: SaslLogin) -> None:
        assert login.principal is not None, "the login is done"
        connection.principal = login.principal
        self._on_login(connection)
        if login.expires_s is None:
            connection.serve_by(self._service)

    def _take_bare_token(
        self, frame: memoryview, connection: Connection, login: SaslLogin
    ) -> Frame | LateFrame | Future[Any] | None:
        """Take a token without a header, and answer with one; who fails gets no answer."""
        answered = login.token(bytes(frame), self._now_s())
        if answered.failure is None:
            reply: Frame = [_SIZE.pack(len(answered.reply)) + answered.reply]
            return self._concluded(reply, connection, login)
        nothing: Future[Any] = self._loop.create_future()
        self._loop.call_later(login.terms.failure_delay_ms / 1000, _finish, nothing)
        return self._concluded(nothing, connection, login)

    def complete(self, answered: Future[Any]) -> Frame:
        """Encode an answer; one that says that the login has failed is the last."""
        connection = self._last.pop(answered, None)
        if connection is None:
            return self._service.complete(answered)
        login = connection.login
        connection.replies.end("the login has failed")
        if login is not None and login.is_bare:
            return []
        return self._service.complete(answered)

    def forget(self, future: Future[Any]) -> None:
        """Give up waiting for an answer to a client that has gone."""
        self._last.pop(future, None)
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
