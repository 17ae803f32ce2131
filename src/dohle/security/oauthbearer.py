"""SASL OAUTHBEARER (RFC 7628), as Kafka speaks it: a signed token in one message."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Final

from dohle.security.bearer_tokens import ReadToken, TokenRefused
from dohle.security.mechanism import SaslRefused, SaslStep

OAUTHBEARER: Final = "OAUTHBEARER"
#: What a client answers when it is told that its token does not count.
KVSEP: Final = b"\x01"
#: What comes before a login must cost little; tokens have a few kilobytes.
_MESSAGE_BYTES_MAX: Final = 64 * 1024
_FIRST: Final = re.compile(
    r"n,(?:a=(?P<authorization>[^,]*))?,\x01(?P<pairs>(?:[A-Za-z]+=[^\x01]*\x01)*)\x01"
)
_BEARER: Final = re.compile(r"bearer +(\S+)", re.IGNORECASE)
_INVALID: Final = json.dumps({"status": "invalid_token"}, separators=(",", ":"))
_NAME: Final = re.compile(r"[A-Za-z]+")
_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")


class OAuthServer:
    """The side of the broker, for one login."""

    def __init__(self, read: ReadToken, now_ms: Callable[[], int]) -> None:
        self._read = read
        self._now_ms = now_ms
        self._is_told = False

    def respond(self, token: bytes) -> SaslStep:
        """Take the token; who is told that it does not count is refused with the next message."""
        if self._is_told:
            raise SaslRefused(_INVALID)
        if len(token) > _MESSAGE_BYTES_MAX:
            raise SaslRefused
        try:
            found = _FIRST.fullmatch(token.decode())
        except UnicodeDecodeError:
            found = None
        if found is None:
            raise SaslRefused
        pairs = dict(pair.split("=", 1) for pair in found["pairs"].split("\x01")[:-1])
        bearer = _BEARER.fullmatch(pairs.get("auth", ""))
        if bearer is None:
            raise SaslRefused
        try:
            read = self._read(bearer[1])
        except TokenRefused:
            self._is_told = True
            return SaslStep(_INVALID.encode())
        authorization = found["authorization"]
        if authorization and authorization != read.user:
            raise SaslRefused(
                "Authentication failed: Client requested an authorization id that is different "
                "from the token's principal name"
            )
        return SaslStep(b"", read.user, max(read.expires_ms - self._now_ms(), 0))


def oauth_message(token: str, extensions: Mapping[str, str]) -> bytes:
    """Return the first message of a client; SaslRefused if it cannot be written."""
    for name, value in extensions.items():
        if not _NAME.fullmatch(name) or name == "auth" or not _VALUE.fullmatch(value):
            raise SaslRefused(f"the SASL extension {name!r} cannot be sent")
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise SaslRefused("the token cannot be sent: it is not printable")
    pairs = {"auth": f"Bearer {token}", **extensions}
    text = "".join(f"{name}={value}\x01" for name, value in pairs.items())
    return f"n,,\x01{text}\x01".encode()
