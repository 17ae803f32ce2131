"""Signed tokens of OAUTHBEARER: whose they are, by Kafka's rules (BrokerJwtValidator).

A token is taken only if a key of a JWKS has signed it. Kafka takes unsigned ones where no JWKS is
configured; nothing here does. PyJWT checks signatures, the claims are checked here, so that the
clock is ours and the rules are Kafka's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from dohle.security.refusal import refusal

#: By the type of key that goes with them. None with a shared secret: a public key must never pass
#: for one.
_ALGORITHMS: Final[Mapping[str, tuple[str, ...]]] = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
_ALL: Final = frozenset(name for names in _ALGORITHMS.values() for name in names)
#: Longer names of keys make nobody look for new keys.
KEY_ID_LENGTH_MAX: Final = 1000
_KEYS_MAX: Final = 1000
_PARTS: Final = 3
_MS: Final = 1000


class TokenRefused(Exception):
    """A token that does not count; the text is for the log of the broker."""


class UnknownKey(TokenRefused):
    """A token whose key is not known, at least not yet."""

    def __init__(self, key_id: str) -> None:
        super().__init__("no key of the JWKS has signed it")
        self.key_id = key_id


def need_jwt() -> Any:
    """Return PyJWT; INVALID_CONFIG if it is missing."""
    try:
        import cryptography  # noqa: F401
        import jwt
    except ImportError:
        raise refusal(
            "OAUTHBEARER needs the packages PyJWT and cryptography: pip install 'dohle[oauth]'"
        ) from None
    return jwt


class Jwks:
    """Keys by which tokens are signed."""

    def __init__(self, keys: Sequence[Mapping[str, Any]]) -> None:
        self._keys = keys

    @classmethod
    def parse(cls, data: bytes, where: str) -> Jwks:
        """Read a JWKS (RFC 7517); INVALID_CONFIG if there is no key that can be used."""
        need_jwt()
        try:
            found = json.loads(data)
            keys = found["keys"]
            usable = [key for key in keys if key.get("kty") in _ALGORITHMS and _signs(key)]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise refusal(f"{where}: it is not a JWKS") from None
        if not usable:
            raise refusal(f"{where}: there is no public key for signatures in it")
        if len(usable) > _KEYS_MAX:
            raise refusal(f"{where}: there are more than {_KEYS_MAX} keys in it")
        return cls(usable)

    def find(self, algorithm: str, key_id: str | None) -> Mapping[str, Any] | None:
        """Return the key of a token; without a name, the first that could be it."""
        for key in self._keys:
            if algorithm not in _ALGORITHMS[key["kty"]]:
                continue
            if key.get("alg", algorithm) != algorithm:
                continue
            if key_id is None or key.get("kid") == key_id:
                return key
        return None


def _signs(key: Mapping[str, Any]) -> bool:
    return bool(key.get("use", "sig") == "sig")


class BearerToken(NamedTuple):
    """What a token says."""

    user: str
    expires_ms: int


@dataclass(frozen=True, slots=True)
class TokenTerms:
    """What a token must say to count: ``sasl.oauthbearer.*``."""

    issuer: str | None = None
    audience: tuple[str, ...] = ()
    skew_s: int = 30
    subject_claim: str = "sub"
    scope_claim: str = "scope"

    def read(self, token: str, keys: Jwks, now_ms: int) -> BearerToken:
        """Return whose token it is; TokenRefused if it does not count."""
        claims = _verified(token, keys)
        expires_s, issued_s = _moment(claims, "exp"), _moment(claims, "iat")
        if expires_s is None or issued_s is None:
            raise TokenRefused("it has no exp or no iat")
        not_before_s, now_s = _moment(claims, "nbf"), now_ms / _MS
        if now_s - self.skew_s >= expires_s:
            raise TokenRefused("it has expired")
        if expires_s < max(issued_s, not_before_s or 0):
            raise TokenRefused("it expires before it begins")
        if not_before_s is not None and now_s + self.skew_s < not_before_s:
            raise TokenRefused("it is not valid yet")
        if self.issuer is not None and claims.get("iss") != self.issuer:
            raise TokenRefused("it is of another issuer")
        self._check_audience(claims.get("aud"))
        self._check_scope(claims.get(self.scope_claim))
        user = claims.get(self.subject_claim)
        if not isinstance(user, str) or not user.strip():
            raise TokenRefused(f"it has no {self.subject_claim}")
        return BearerToken(user.strip(), int(expires_s * _MS))

    def _check_audience(self, found: object) -> None:
        # As jose4j has it, which Kafka uses: a token for somebody is not for whoever is nobody.
        given = [found] if isinstance(found, str) else found
        if given is None and not self.audience:
            return
        if not isinstance(given, list) or not set(self.audience) & {str(one) for one in given}:
            raise TokenRefused("it is for another audience")

    def _check_scope(self, found: object) -> None:
        given = [found] if isinstance(found, str) else found
        if not isinstance(given, list):
            return
        names = [one.strip() if isinstance(one, str) else "" for one in given]
        if not all(names) or len(set(names)) < len(names):
            raise TokenRefused(f"its {self.scope_claim} has a scope that is empty or there twice")


def _verified(token: str, keys: Jwks) -> Mapping[str, Any]:
    """Return the claims of a token that one of the keys has signed."""
    jwt = need_jwt()
    token = token.strip()
    if token.count(".") != _PARTS - 1:
        raise TokenRefused("it does not have three parts")
    try:
        header = jwt.get_unverified_header(token)
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in _ALL or not (key_id is None or isinstance(key_id, str)):
            raise TokenRefused("its algorithm is not one of those that count")
        key = keys.find(algorithm, key_id)
        if key is None:
            raise UnknownKey(key_id or "")
        made = jwt.get_algorithm_by_name(algorithm).from_jwk(dict(key))
        unchecked = {
            f"verify_{name}": False for name in ("exp", "iat", "nbf", "aud", "iss", "sub", "jti")
        }
        claims: Mapping[str, Any] = jwt.decode(
            token, made, algorithms=[algorithm], options=unchecked
        )
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        raise TokenRefused("its form or its signature is wrong") from None
    return claims


def _moment(claims: Mapping[str, Any], name: str) -> float | None:
    found = claims.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found < 1e12:
        raise TokenRefused(f"its {name} is not a time")
    return float(found)


#: Returns whose token it is; TokenRefused if it does not count.
ReadToken = Callable[[str], BearerToken]
