"""SASL PLAIN (RFC 4616): name and password in one token, as Kafka checks them."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from dohle.security.mechanism import SaslRefused, SaslStep

_PARTS = 3


class PlainServer:
    """The side of the broker."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users

    def respond(self, token: bytes) -> SaslStep:
        """Check ``[authzid] NUL user NUL password``."""
        try:
            # As Kafka does: there is no telling how many more there are than are looked at.
            parts = token.decode().split("\0", _PARTS)
        except UnicodeDecodeError:
            raise SaslRefused("Authentication failed: the token is not UTF-8") from None
        if len(parts) != _PARTS:
            raise SaslRefused(
                f"Invalid SASL/PLAIN response: expected {_PARTS} tokens, got {len(parts)}"
            )
        authorization, user, password = parts
        if not user:
            raise SaslRefused("Authentication failed: username not specified")
        if not password:
            raise SaslRefused("Authentication failed: password not specified")
        known = self._users.get(user)
        # Whether the user exists must not show in the time that it takes.
        matches = hmac.compare_digest((known or "").encode(), password.encode())
        if known is None or not matches:
            raise SaslRefused("Authentication failed: Invalid username or password")
        if authorization and authorization != user:
            raise SaslRefused(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        return SaslStep(b"", user)


def plain_token(user: str, password: str) -> bytes:
    """Return the one token of a client."""
    return f"\0{user}\0{password}".encode()
