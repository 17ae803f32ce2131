"""SASL SCRAM-SHA-256 and -512 (RFC 5802), as Kafka speaks it: both sides, and credentials.

The server never sees a password, and keeps none. Somebody whom it does not know gets the same first
answer as everybody, with a salt that is made up: who exists does not show.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from dohle.core.seams import Rng
from dohle.security.mechanism import SaslRefused, SaslStep

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16_384
#: What a client computes at most on a server's word.
_CLIENT_ITERATIONS_MAX: Final = 1_000_000
_NONCE_BITS: Final = 130
#: What comes before a login must cost next to nothing: no honest message is nearly as long, and one
#: of half a megabyte would hold up everybody for tens of milliseconds.
_MESSAGE_BYTES_MAX: Final = 8 * 1024
_CLIENT_FIRST: Final = re.compile(
    r"(?P<flag>[nyp])[^,]*,(?:a=(?P<authorization>[^,]*))?,(?:m=[^,]*,)?"
    r"(?P<bare>n=(?P<name>[\x01-\x2b\x2d-\x7f]*),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    r"(?P<extensions>(?:,[A-Za-z]+=[^,]*)*))"
)
_CLIENT_FINAL: Final = re.compile(
    r"c=(?P<binding>[^,]*),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-z]+=[^,]*)*,p=(?P<proof>[^,]*)"
)
_SERVER_FIRST: Final = re.compile(
    r"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>[^,]+),i=(?P<iterations>\d{1,9})(?:,.*)?"
)


class ScramMechanism(IntEnum):
    """The mechanisms, by their numbers in requests and records."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """The name in handshakes."""
        return self.name.replace("_", "-")

    @property
    def digest(self) -> str:
        """The name of the hash function."""
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"

    def hash(self, data: bytes) -> bytes:
        """Hash."""
        return hashlib.new(self.digest, data).digest()

    def hmac(self, key: bytes, data: bytes | str) -> bytes:
        """Sign."""
        return hmac.digest(key, data.encode() if isinstance(data, str) else data, self.digest)

    def salted_password(self, password: str, salt: bytes, iterations: int) -> bytes:
        """Make a password hard to guess; takes milliseconds."""
        return hashlib.pbkdf2_hmac(self.digest, password.encode(), salt, iterations)


MECHANISMS: Final[Mapping[str, ScramMechanism]] = {each.sasl_name: each for each in ScramMechanism}


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What a server knows of a user. Whoever has it can guess passwords: it is never shown."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def of(
        cls, mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int
    ) -> ScramCredential:
        """Compute the keys from a salted password."""
        return cls(
            salt,
            mechanism.hash(mechanism.hmac(salted_password, "Client Key")),
            mechanism.hmac(salted_password, "Server Key"),
            iterations,
        )


def new_salt(rng: Rng) -> bytes:
    """Return a salt."""
    return rng.randbytes(24)


def new_nonce(rng: Rng) -> str:
    """Return a nonce: 130 bits, of which no comma is one."""
    return base64.b64encode(rng.getrandbits(_NONCE_BITS + 14).to_bytes(18, "big")).decode()


class ScramServer:
    """The side of the broker, for one login."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        find: Callable[[str], ScramCredential | None],
        rng: Rng,
        made_up_key: bytes,
    ) -> None:
        """``made_up_key`` is a secret of this broker, for the salts of users that do not exist."""
        self._mechanism = mechanism
        self._find = find
        self._rng = rng
        self._made_up_key = made_up_key
        self._user = ""
        self._credential: ScramCredential | None = None
        self._first_bare = self._server_first = self._nonce = ""

    def respond(self, token: bytes) -> SaslStep:
        """Take the first or the final message of the client."""
        if len(token) > _MESSAGE_BYTES_MAX:
            raise SaslRefused
        try:
            text = token.decode()
        except UnicodeDecodeError:
            raise SaslRefused from None
        return self._final(text) if self._server_first else self._first(text)

    def _first(self, text: str) -> SaslStep:
        found = _CLIENT_FIRST.fullmatch(text)
        if found is None or found["flag"] != "n":
            raise SaslRefused
        self._user = _unescaped(found["name"])
        if found["authorization"] and found["authorization"] != self._user:
            raise SaslRefused(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        extensions = dict(one.split("=", 1) for one in found["extensions"].split(",")[1:])
        credential = None
        # A name with this extension is that of a delegation token, of which there are none.
        if extensions.get("tokenauth", "").lower() != "true":
            credential = self._find(self._user)
        if credential is not None and credential.iterations < ITERATIONS_MIN:
            credential = None
        self._credential = credential
        salt, iterations = self._made_up_salt(), ITERATIONS_MIN
        if credential is not None:
            salt, iterations = credential.salt, credential.iterations
        self._first_bare = found["bare"]
        self._nonce = found["nonce"] + new_nonce(self._rng)
        self._server_first = f"r={self._nonce},s={_base64(salt)},i={iterations}"
        return SaslStep(self._server_first.encode())

    def _made_up_salt(self) -> bytes:
        return self._mechanism.hmac(self._made_up_key, self._user)[:24]

    def _final(self, text: str) -> SaslStep:
        found = _CLIENT_FINAL.fullmatch(text)
        credential = self._credential
        if found is None or credential is None or found["nonce"] != self._nonce:
            raise SaslRefused
        binding, proof = _bytes(found["binding"]), _bytes(found["proof"])
        message = f"{self._first_bare},{self._server_first},c={_base64(binding)},r={self._nonce}"
        signature = self._mechanism.hmac(credential.stored_key, message)
        if len(proof) != len(signature):
            raise SaslRefused
        client_key = _xor(signature, proof)
        if not hmac.compare_digest(self._mechanism.hash(client_key), credential.stored_key):
            raise SaslRefused
        reply = f"v={_base64(self._mechanism.hmac(credential.server_key, message))}"
        return SaslStep(reply.encode(), self._user)


class ScramClient:
    """The side of a client, for one login."""

    def __init__(self, mechanism: ScramMechanism, user: str, password: str, rng: Rng) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = new_nonce(rng)
        self._first_bare = f"n={_escaped(user)},r={self._nonce}"
        self._salt, self.iterations = b"", 0
        self._server_first = ""
        self._server_nonce = ""
        self._server_signature = b""

    def first(self) -> bytes:
        """Return the first message."""
        return f"n,,{self._first_bare}".encode()

    def challenged(self, answer: bytes) -> None:
        """Take the server's answer to it; SaslRefused if it cannot be trusted."""
        self._server_first = answer.decode("utf-8", "replace")
        found = _SERVER_FIRST.fullmatch(self._server_first)
        if found is None or not found["nonce"].startswith(self._nonce):
            raise SaslRefused("the broker's answer is not one to this login")
        self.iterations = int(found["iterations"])
        if not ITERATIONS_MIN <= self.iterations <= _CLIENT_ITERATIONS_MAX:
            raise SaslRefused(f"the broker asks for {self.iterations} iterations")
        self._server_nonce, self._salt = found["nonce"], _bytes(found["salt"])

    def final(self) -> bytes:
        """Return the final message; takes milliseconds, so that it is for a thread."""
        mechanism = self._mechanism
        salted = mechanism.salted_password(self._password, self._salt, self.iterations)
        client_key = mechanism.hmac(salted, "Client Key")
        without_proof = f"c={_base64(b'n,,')},r={self._server_nonce}"
        message = f"{self._first_bare},{self._server_first},{without_proof}"
        signature = mechanism.hmac(mechanism.hash(client_key), message)
        self._server_signature = mechanism.hmac(mechanism.hmac(salted, "Server Key"), message)
        return f"{without_proof},p={_base64(_xor(client_key, signature))}".encode()

    def confirmed(self, answer: bytes) -> None:
        """See that the server knows the password, too; SaslRefused if it does not."""
        expected = f"v={_base64(self._server_signature)}".encode()
        if not hmac.compare_digest(answer.partition(b",")[0], expected):
            raise SaslRefused("the broker has not proven that it knows this user")


def _unescaped(name: str) -> str:
    if name.count("=") != name.count("=2C") + name.count("=3D"):
        raise SaslRefused
    return name.replace("=2C", ",").replace("=3D", "=")


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise SaslRefused from None


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
