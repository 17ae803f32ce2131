"""Logging in at a broker by SASL, on a connection that is open."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NoReturn

from dohle.client.errors import AuthenticationFailed
from dohle.client.net.tokens import get_token
from dohle.core.host import Host
from dohle.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from dohle.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from dohle.protocol.schema import Request, Response
from dohle.security.client import SaslAccount
from dohle.security.mechanism import SaslRefused
from dohle.security.oauthbearer import KVSEP, oauth_message
from dohle.security.plain import plain_token
from dohle.security.scram import MECHANISMS, ScramClient
from dohle.security.token_source import TokenSource

#: Asks the broker.
Ask = Callable[[Request, type[Response]], Awaitable[Response]]


class Login:
    """One login; ``run`` returns for how many milliseconds it is good, 0: for ever."""

    def __init__(self, address: str, account: SaslAccount | None, host: Host, ask: Ask) -> None:
        self._address = address
        self._account = account
        self._host = host
        self._ask = ask

    async def run(self) -> int:
        """Log in; AuthenticationFailed if the broker does not let this client in."""
        account = self._account
        if account is None:
            self._fail("there is no user to log in with: set sasl.jaas.config")
        await self._shake_hands(account.mechanism)
        if account.tokens is not None:
            return await self._bear_token(account.tokens)
        mechanism = MECHANISMS.get(account.mechanism)
        if mechanism is None:
            answer = await self._send(plain_token(account.user, account.password))
            return answer.session_lifetime_ms
        scram = ScramClient(mechanism, account.user, account.password, self._host.rng)
        try:
            scram.challenged((await self._send(scram.first())).auth_bytes)
            final = await self._host.run_in_thread(scram.final)
            answer = await self._send(final)
            scram.confirmed(answer.auth_bytes)
        except SaslRefused as refused:
            self._fail(str(refused) or "the broker's answer makes no sense")
        return answer.session_lifetime_ms

    async def _bear_token(self, source: TokenSource) -> int:
        try:
            token = await get_token(source, self._host)
            message = oauth_message(token.text, token.extensions)
        except SaslRefused as refused:
            self._fail(str(refused))
        answer = await self._send(message)
        if answer.auth_bytes:
            # The broker says what is wrong, and wants to hear that this was understood.
            await self._send(KVSEP)
            self._fail(answer.auth_bytes.decode(errors="replace"))
        return answer.session_lifetime_ms

    async def _shake_hands(self, mechanism: str) -> None:
        answer = await self._ask(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse)
        assert isinstance(answer, SaslHandshakeResponse), "as asked for"
        if answer.error_code:
            offered = ", ".join(answer.mechanisms) or "no mechanism: is it a listener without SASL?"
            self._fail(f"{mechanism} is refused; it offers {offered}")

    async def _send(self, token: bytes) -> SaslAuthenticateResponse:
        request = SaslAuthenticateRequest(auth_bytes=token)
        answer = await self._ask(request, SaslAuthenticateResponse)
        assert isinstance(answer, SaslAuthenticateResponse), "as asked for"
        if answer.error_code:
            self._fail(answer.error_message or f"error {answer.error_code}")
        return answer

    def _fail(self, reason: str) -> NoReturn:
        raise AuthenticationFailed(f"{self._address} does not let this client in: {reason}")
