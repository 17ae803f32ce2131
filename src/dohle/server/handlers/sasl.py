"""SaslHandshake (17) v0-1, SaslAuthenticate (36) v0-2 and AlterUserScramCredentials (51) v0.

- Where nobody has to log in, or has done so for ever: ILLEGAL_SASL_STATE, and the connection stays.
- A client that has failed is told after ``connection.failed.authentication.delay.ms``, and the
  connection is closed behind that answer (``dohle.server.net.login_gate``). No more is told than
  Kafka tells.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from dohle.core.errors import ErrorCode
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from dohle.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from dohle.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from dohle.protocol.schema import Response
from dohle.security.login import Phase, SaslLogin
from dohle.server.net.handler import Handler, serves

if TYPE_CHECKING:
    from dohle.server.frontend import Frontend
    from dohle.server.net.handler import RequestContext


def handle_sasl_handshake(
    server: Frontend, context: RequestContext, request: SaslHandshakeRequest
) -> SaslHandshakeResponse | asyncio.Future[Any]:
    """Begin to log in."""
    login, now_s = context.connection.login, server.clock.monotonic_s()
    if login is None or not login.may_begin(now_s):
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    is_begun = login.handshake(request.mechanism, context.version, now_s)
    mechanisms = tuple(login.terms.mechanisms)
    if is_begun:
        return SaslHandshakeResponse(mechanisms=mechanisms)
    refused = SaslHandshakeResponse(
        error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=mechanisms
    )
    return _later(login, refused)


def handle_sasl_authenticate(
    server: Frontend, context: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse | asyncio.Future[Any]:
    """Take a token."""
    login = context.connection.login
    if login is None or login.phase is not Phase.TOKENS:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received after successful authentication"
            if login is not None
            else "This listener is without SASL: nobody authenticates here.",
        )
    answered = login.token(request.auth_bytes, server.clock.monotonic_s())
    if answered.failure is not None:
        refused = SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=answered.failure
        )
        return _later(login, refused)
    return SaslAuthenticateResponse(
        error_message=None, auth_bytes=answered.reply, session_lifetime_ms=answered.session_ms
    )


def _later(login: SaslLogin, response: Response) -> asyncio.Future[Any]:
    """Answer after the delay for those who have failed."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Any] = loop.create_future()
    loop.call_later(login.terms.failure_delay_ms / 1000, _answer, answer, response)
    return answer


def _answer(answer: asyncio.Future[Any], response: Response) -> None:
    if not answer.done():
        answer.set_result(response)


async def handle_alter_user_scram_credentials(
    server: Frontend, context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Have the controller alter passwords."""
    return await server.ask_controller(context, request, AlterUserScramCredentialsResponse)


HANDLERS: tuple[tuple[ApiKey, Handler], ...] = (
    serves(ApiKey.SASL_HANDSHAKE, handle_sasl_handshake),
    serves(ApiKey.SASL_AUTHENTICATE, handle_sasl_authenticate, is_secret=True),
    serves(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS, handle_alter_user_scram_credentials, is_secret=True
    ),
)
