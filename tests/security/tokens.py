"""An authorization server for tests: a key, its JWKS, and tokens that it signs."""

from __future__ import annotations

import json
import time
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

ISSUER = "https://issuer.example.org"
AUDIENCE = "kafka"


class Issuer:
    """Signs tokens by one key."""

    def __init__(self, key_id: str = "one") -> None:
        self.key_id = key_id
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    @property
    def jwk(self) -> dict[str, Any]:
        made = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
        return {**made, "kid": self.key_id, "use": "sig"}

    def sign(
        self, user: str = "alice", *, life_s: float = 3600, now_s: float | None = None, **more: Any
    ) -> str:
        """Sign a token; claims that are None are left out."""
        now_s = time.time() if now_s is None else now_s
        claims = {"sub": user, "iat": now_s, "exp": now_s + life_s, "iss": ISSUER, "aud": AUDIENCE}
        claims = {name: value for name, value in (claims | more).items() if value is not None}
        return jwt.encode(claims, self.key, "RS256", headers={"kid": self.key_id})


def jwks_of(*issuers: Issuer) -> bytes:
    return json.dumps({"keys": [each.jwk for each in issuers]}).encode()
