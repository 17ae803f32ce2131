"""PEM text: certificates and private keys, by the rules of Kafka's PEM stores (KIP-651).

Text before, between and behind the blocks is skipped; a missing last newline does no harm, nor does
text that came as one line, with spaces where line ends were.
"""

from __future__ import annotations

import re
from typing import Final

from dohle.security.refusal import refusal

_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----([^-]*)-----END \1-----")
_LINE: Final = 64
_CERTIFICATE: Final = "CERTIFICATE"
_KEYS: Final = ("PRIVATE KEY", "ENCRYPTED PRIVATE KEY")


def certificates_in(text: str, where: str) -> str:
    """Return the certificates alone; there must be one."""
    found = [_block(kind, body) for kind, body in _BLOCK.findall(text) if kind == _CERTIFICATE]
    if not found:
        raise refusal(f"{where}: there is no certificate in PEM format")
    return "".join(found)


def private_key_in(text: str, where: str, *, has_password: bool) -> str:
    """Return the private key alone: one, as PKCS#8, and encrypted only if there is a password."""
    keys = [(kind, body) for kind, body in _BLOCK.findall(text) if kind.endswith("PRIVATE KEY")]
    if len(keys) != 1:
        raise refusal(f"{where}: expected one private key in PEM format, found {len(keys)}")
    kind, body = keys[0]
    if kind not in _KEYS:
        raise refusal(
            f"{where}: a key of the form {kind} is not accepted; convert it to PKCS#8 with: "
            "openssl pkcs8 -topk8 -nocrypt -in OLD -out NEW"
        )
    if kind == "ENCRYPTED PRIVATE KEY" and not has_password:
        raise refusal(f"{where}: the private key is encrypted, and ssl.key.password is not set")
    return _block(kind, body)


def _block(kind: str, body: str) -> str:
    data = "".join(body.split())
    lines = "".join(data[at : at + _LINE] + "\n" for at in range(0, len(data), _LINE))
    return f"-----BEGIN {kind}-----\n{lines}-----END {kind}-----\n"
