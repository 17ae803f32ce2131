"""``sasl.jaas.config``: which login module, and its options. No class is ever loaded by its name.

One entry: ``<module> required|requisite|sufficient|optional name="value" …;``
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from dohle.security.refusal import refusal

_SECURITY: Final = "org.apache.kafka.common.security."
PLAIN_MODULE: Final = f"{_SECURITY}plain.PlainLoginModule"
SCRAM_MODULE: Final = f"{_SECURITY}scram.ScramLoginModule"
OAUTH_MODULE: Final = f"{_SECURITY}oauthbearer.OAuthBearerLoginModule"
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_MODULES: Final = (PLAIN_MODULE, SCRAM_MODULE, OAUTH_MODULE)
_TOKEN: Final = re.compile(
    r"""\s*(?:"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|([^\s"'=;]+)|([=;]))"""
)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_USER: Final = "user_"


@dataclass(frozen=True, slots=True)
class Jaas:
    """One login module with its options, which hold passwords and are never shown."""

    module: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def users(self) -> dict[str, str]:
        """The users that a PLAIN listener knows, with their passwords."""
        return {
            name.removeprefix(_USER): password
            for name, password in self.options.items()
            if name.startswith(_USER)
        }

    @property
    def own(self) -> tuple[str, str] | None:
        """The user and the password of who logs in with this."""
        user, password = self.options.get("username"), self.options.get("password")
        return None if user is None or password is None else (user, password)


def jaas_text(mechanism: str, user: str, password: str) -> str:
    """Return the entry of who logs in."""
    module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE

    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    return f"{module} required username={quoted(user)} password={quoted(password)};"


def parse_jaas(text: str, where: str) -> Jaas:
    """Read an entry; INVALID_CONFIG without any of the text if it cannot be understood."""
    tokens, at = [], 0
    text = text.strip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise refusal(f"{where}: the JAAS configuration cannot be read")
        double, single, word, sign = found.groups()
        quoted = double if double is not None else single
        tokens.append(sign or word or _ESCAPE.sub(r"\1", quoted or ""))
        at = found.end()
    if len(tokens) < 3 or tokens[-1] != ";" or tokens.count(";") != 1:
        raise refusal(f"{where}: expected one login module, and a semicolon at its end")
    module, flag, *rest = tokens[:-1]
    if flag.lower() not in _FLAGS:
        raise refusal(f"{where}: a login module is followed by one of {', '.join(_FLAGS)}")
    if module not in _MODULES:
        raise refusal(f"{where}: the login module is none of {', '.join(_MODULES)}")
    if len(rest) % 3 or any(sign != "=" for sign in rest[1::3]):
        raise refusal(f'{where}: options are of the form name="value"')
    return Jaas(module, dict(zip(rest[::3], rest[2::3], strict=True)))
