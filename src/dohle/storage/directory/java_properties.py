"""Text files of ``key=value`` lines as Java's ``Properties`` class reads and writes them.

Reading supports the whole grammar: comments, lines continued by a backslash, keys that end at the
first unescaped ``=``, ``:`` or white space, and the escapes. Bytes are Latin-1, as in Java. Writing
sorts the keys, as Java does from version 18 on, and escapes every character outside printable
ASCII, so that the text means the same in any encoding.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

_WHITE = " \t\f"
# Key, then the separator with white space around it, then the value.
_LOGICAL_LINE = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = {character: f"\\{letter}" for letter, character in _CONTROL.items()} | {
    character: f"\\{character}" for character in "\\=:#!"
}

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_properties(data: bytes) -> dict[str, str]:
    """Return the keys and values of a file; ValueError where a ``\\u`` escape is broken."""
    properties = {}
    logical = ""
    for line in data.splitlines():
        natural = line.decode("latin-1").lstrip(_WHITE)
        if not logical and natural[:1] in ("", "#", "!"):
            continue
        logical += natural
        if natural and _is_continued(natural):
            logical = logical[:-1]
            continue
        key, value = _split(logical)
        properties[key] = value
        logical = ""
    if logical:
        key, value = _split(logical)
        properties[key] = value
    return properties


def format_properties(properties: Mapping[str, str], now_ms: int) -> bytes:
    """Return the file that Java writes for an empty comment: two comment lines, then the pairs."""
    lines = ["#", f"#{java_date(now_ms)}"]
    for key, value in sorted(properties.items()):
        escaped = _escape(value)
        if escaped.startswith(" "):
            escaped = "\\" + escaped
        lines.append(_escape(key).replace(" ", "\\ ") + "=" + escaped)
    lines.append("")
    return "\n".join(lines).encode("ascii")


def java_date(now_ms: int) -> str:
    """Return a time as ``Date.toString`` prints it, in UTC: ``Tue Nov 14 22:13:20 UTC 2023``."""
    # strftime would use the names of the machine's locale.
    time = _EPOCH + timedelta(milliseconds=now_ms)
    day, month = _DAYS[time.weekday()], _MONTHS[time.month - 1]
    return f"{day} {month} {time:%d %H:%M:%S} UTC {time.year}"


def _is_continued(natural: str) -> bool:
    return (len(natural) - len(natural.rstrip("\\"))) % 2 == 1


def _split(logical: str) -> tuple[str, str]:
    found = _LOGICAL_LINE.fullmatch(logical)
    assert found is not None, "the pattern takes any line without a lone backslash at its end"
    return _unescape(found[1]), _unescape(found[2])


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    characters = _ESCAPE.sub(_unescape_one, text)
    # Escapes are UTF-16 units: a pair of them can be one character.
    return characters.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")


def _unescape_one(found: re.Match[str]) -> str:
    escape = found[1]
    if escape == "u":
        raise ValueError(f"a \\u without four hex digits in {found.string[:60]!r}")
    return chr(int(escape[1:], 16)) if escape[0] == "u" else _CONTROL.get(escape, escape)


def _escape(text: str) -> str:
    return "".join(map(_escape_one, text))


def _escape_one(character: str) -> str:
    if character in _ESCAPED:
        return _ESCAPED[character]
    if " " <= character <= "~":
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i] << 8 | units[i + 1]:04X}" for i in range(0, len(units), 2))
