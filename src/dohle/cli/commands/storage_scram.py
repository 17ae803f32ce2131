"""``dohle storage format --add-scram``: users that a new cluster begins with, in Kafka's form."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from typing import Final

from dohle.cli.errors import UsageError
from dohle.core.seams import system_rng
from dohle.metadata.decision import VersionedRecord
from dohle.protocol.messages.records.cluster_metadata import UserScramCredentialRecord
from dohle.security.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    MECHANISMS,
    ScramCredential,
    new_salt,
)

_FORM: Final = re.compile(r"([A-Z0-9-]+)=\[(.*)\]", re.DOTALL)
_PAIR: Final = re.compile(r'\s*([a-z]+)\s*=\s*(?:"([^"]*)"|([^,"]*))\s*(?:,|$)')
_NAMES: Final = frozenset({"name", "password", "salt", "saltedpassword", "iterations"})
_HOW: Final = (
    "--add-scram is of the form 'SCRAM-SHA-256=[name=USER,password=PASSWORD]', or "
    "'SCRAM-SHA-256=[name=USER,iterations=4096,salt=BASE64,saltedpassword=BASE64]'"
)


def scram_records(texts: Iterable[str]) -> list[VersionedRecord]:
    """Return the records of the users; what is wrong is told without the text, which is secret."""
    return [VersionedRecord(_record(text), 0) for text in texts]


def _record(text: str) -> UserScramCredentialRecord:
    found = _FORM.fullmatch(text.strip())
    mechanism = None if found is None else MECHANISMS.get(found[1])
    if found is None or mechanism is None:
        raise UsageError(f"{_HOW}; mechanisms are {', '.join(MECHANISMS)}")
    given = _pairs(found[2])
    if not given.get("name"):
        raise UsageError("You must supply 'name' to add-scram")
    iterations = int(given.get("iterations", ITERATIONS_MIN))
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise UsageError(
            f"The 'iterations' value must be from {ITERATIONS_MIN} to {ITERATIONS_MAX} for "
            f"{mechanism.sasl_name}"
        )
    if ("password" in given) is ("saltedpassword" in given):
        raise UsageError("You must supply one of 'password' or 'saltedpassword' to add-scram")
    salt = _bytes(given["salt"]) if "salt" in given else new_salt(system_rng())
    if "saltedpassword" in given:
        if "salt" not in given:
            raise UsageError("You must supply 'salt' with 'saltedpassword' to add-scram")
        salted = _bytes(given["saltedpassword"])
    else:
        salted = mechanism.salted_password(given["password"], salt, iterations)
    made = ScramCredential.of(mechanism, salted, salt, iterations)
    return UserScramCredentialRecord(
        name=given["name"],
        mechanism=mechanism,
        salt=made.salt,
        stored_key=made.stored_key,
        server_key=made.server_key,
        iterations=made.iterations,
    )


def _pairs(text: str) -> dict[str, str]:
    given, at = {}, 0
    while at < len(text):
        found = _PAIR.match(text, at)
        if found is None or found[1] not in _NAMES:
            raise UsageError(_HOW)
        given[found[1]] = found[2] if found[2] is not None else found[3].strip()
        at = found.end()
    if not given.get("iterations", "0").isdigit():
        raise UsageError(_HOW)
    return given


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise UsageError("salt and saltedpassword are in base64") from None
