"""``ssl.principal.mapping.rules``: from the name in a certificate to the name of a user.

A comma-separated list of ``DEFAULT`` (the name as it is) and ``RULE:pattern/replacement/[LU]``. The
first whose pattern matches the whole name counts. A backslash keeps a slash from ending a part.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from dohle.security.refusal import refusal

_CONFIG: Final = "ssl.principal.mapping.rules"
_RULE: Final = re.compile(
    r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?)\s*(?:,(?=\s*(?:DEFAULT|RULE:))|$)",
    re.DOTALL,
)
_GROUP: Final = re.compile(r"\$(\d+)")


class _Rule(NamedTuple):
    #: None: every name, as it is.
    pattern: re.Pattern[str] | None
    replacement: str
    case: str

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        found = self.pattern.sub(lambda match: _filled(self.replacement, match), name)
        return {"L": found.lower(), "U": found.upper()}.get(self.case, found)


class MappingRules:
    """The rules of a listener."""

    def __init__(self, rules: Iterable[_Rule]) -> None:
        self._rules = tuple(rules)

    @classmethod
    def parse(cls, text: str) -> MappingRules:
        """Read the rules; INVALID_CONFIG if they cannot be understood."""
        text = text.strip() or "DEFAULT"
        rules, at = [], 0
        while at < len(text):
            found = _RULE.match(text, at)
            if found is None or found.end() == at:
                raise refusal(f"Invalid rule: `{text[at:]}` in {_CONFIG}")
            default, pattern, replacement, case = found.groups()
            at = found.end()
            try:
                compiled = None if default else re.compile(pattern)
            except re.error as error:
                raise refusal(f"Invalid pattern in {_CONFIG}: {error}") from None
            rules.append(_Rule(compiled, (replacement or "").replace("\\/", "/"), case or ""))
        return cls(rules)

    def user(self, name: str) -> str | None:
        """Return the user of a distinguished name; None if no rule is about it."""
        return next((user for rule in self._rules if (user := rule.apply(name)) is not None), None)


def _filled(replacement: str, match: re.Match[str]) -> str:
    """Put groups into a replacement; one that the pattern does not have stays as it is written."""

    def group(reference: re.Match[str]) -> str:
        number = int(reference[1])
        return reference[0] if number > match.re.groups else match[number] or ""

    return _GROUP.sub(group, replacement)
