"""What all mechanisms of SASL have in common, on the side of the server."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from dohle.security.refusal import refusal

PLAIN: Final = "PLAIN"
SERVED: Final = (PLAIN, "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_NOT_SERVED: Final = {
    "GSSAPI": "Kerberos (GSSAPI) is not there; it is Kafka's default, so name another mechanism",
}


def check_mechanism(name: str) -> None:
    """Refuse a mechanism that nobody can log in by here."""
    if name not in SERVED:
        reason = _NOT_SERVED.get(name, f"there is no SASL mechanism {name!r}")
        raise refusal(f"{reason}: choose from {', '.join(SERVED)}")


class SaslStep(NamedTuple):
    """What a token of a client leads to."""

    reply: bytes
    #: Who it is, when that is proven; None if another token is due.
    user: str | None = None
    #: For how long what it has shown is good; None: for ever.
    good_for_ms: int | None = None


class SaslRefused(Exception):
    """The client has not proven who it is. The text is for the client, if there is one."""


class SaslServer(Protocol):
    """One login by one mechanism."""

    def respond(self, token: bytes) -> SaslStep:
        """Take the client's next token; SaslRefused if that ends the login."""
