"""How a client logs in by SASL, step by step: what it may send, and who it is in the end.

The states are Kafka's (SaslServerAuthenticator): the versions may be asked for once, then comes the
handshake with a mechanism, then its tokens. A connection that has a session logs in again in the
same way, without asking for versions (KIP-368): by the same mechanism, as the same user.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from dohle.core.principal import USER, Principal
from dohle.security.mechanism import SaslRefused, SaslServer

#: How soon after the beginning of one login the next may begin on the same connection.
_AGAIN_S_MIN: Final = 1.0
_MS: Final = 1000


class MechanismTerms(NamedTuple):
    """A mechanism of a listener."""

    #: Begins a login.
    begin: Callable[[], SaslServer]
    #: How long a session is good for at most; 0: for ever.
    session_ms_max: int


@dataclass(frozen=True, slots=True)
class SaslTerms:
    """How clients log in at a listener."""

    mechanisms: Mapping[str, MechanismTerms]
    #: How long a client that has failed waits for its answer.
    failure_delay_ms: int
    #: The largest request before the login.
    receive_bytes_max: int


class Phase(Enum):
    """What is due."""

    HANDSHAKE = "handshake"
    TOKENS = "tokens"
    OPEN = "open"
    FAILED = "failed"


class LoginStep(NamedTuple):
    """What a token leads to."""

    reply: bytes
    #: How long the session is good for; 0 if there is no end to it, or it has not begun.
    session_ms: int = 0
    #: Why the login has failed.
    failure: str | None = None


class SaslLogin:
    """The login of one connection."""

    def __init__(self, terms: Callable[[], SaslTerms]) -> None:
        """``terms`` are those of the listener now: they may change from one login to the next."""
        self._find_terms = terms
        #: Those of the login that has begun last.
        self.terms = terms()
        self.phase = Phase.HANDSHAKE
        #: Who it is, as proven last.
        self.principal: Principal | None = None
        #: When the session ends, on the loop's clock.
        self.expires_s: float | None = None
        #: Whether tokens come without a header: after a handshake of version 0.
        self.is_bare = False
        self.has_asked_versions = False
        #: Whether it has come to an end just now, good or bad, and nobody has taken note of it.
        self.is_new = False
        #: Why it has failed.
        self.failure = ""
        self._name = ""
        self._mechanism = ""
        self._server: SaslServer | None = None
        self._began_s: float | None = None

    def may_begin(self, now_s: float) -> bool:
        """Tell whether a handshake is in order now."""
        if self.phase is Phase.HANDSHAKE:
            return True
        if self.phase is not Phase.OPEN or self.expires_s is None:
            return False
        return self._began_s is None or now_s - self._began_s >= _AGAIN_S_MIN

    def handshake(self, mechanism: str, version: int, now_s: float) -> bool:
        """Begin with a mechanism; False if there is no such, and the login has failed."""
        self.terms = self._find_terms()
        terms = self.terms.mechanisms.get(mechanism)
        if terms is None:
            self.phase, self.is_new = Phase.FAILED, True
            self.failure = "it has asked for a SASL mechanism that is not enabled"
            return False
        if self.phase is Phase.OPEN:
            self._began_s = now_s
        self._name = mechanism
        self._server = terms.begin()
        self.is_bare = version == 0
        self.phase = Phase.TOKENS
        return True

    def token(self, token: bytes, now_s: float) -> LoginStep:
        """Take a token of the client."""
        assert self._server is not None, "there was a handshake"
        again = self.principal is not None
        try:
            if again and self._name != self._mechanism:
                raise SaslRefused(
                    f"SASL mechanism '{self._name}' requested by client is not supported for "
                    f"re-authentication of mechanism '{self._mechanism}'"
                )
            reply, user, good_for_ms = self._server.respond(token)
            if user is None:
                return LoginStep(reply)
            principal = Principal(USER, user)
            if again and principal != self.principal:
                raise SaslRefused(
                    "Cannot change principals during re-authentication from "
                    f"{self.principal}: {principal}"
                )
        except SaslRefused as refused:
            self.phase, self.is_new = Phase.FAILED, True
            step = "re-authentication" if again else "authentication"
            generic = (
                f"Authentication failed during {step} due to invalid credentials with SASL "
                f"mechanism {self._name}"
            )
            self.failure = str(refused) or generic
            return LoginStep(b"", failure=self.failure)
        self._server = None
        self.principal, self._mechanism = principal, self._name
        self.phase, self.is_bare, self.is_new = Phase.OPEN, False, True
        session_ms = _shorter(self.terms.mechanisms[self._name].session_ms_max, good_for_ms)
        self.expires_s = None if session_ms is None else now_s + session_ms / _MS
        return LoginStep(reply, session_ms or 0)


def _shorter(session_ms_max: int, good_for_ms: int | None) -> int | None:
    """Return how long a session is; None if there is no end to it."""
    if session_ms_max <= 0:
        return good_for_ms
    return session_ms_max if good_for_ms is None else min(session_ms_max, good_for_ms)
