"""How values are shown: as text on one line, and as JSON.

Text never contains a control character, whatever a record holds: a dump must not move the cursor of
a terminal. JSON is lossless: bytes can be restored from either form.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None

# Characters below the space, except those that text files are made of.
_BINARY = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class DecodedMessage:
    """A key or value that is a protocol message."""

    name: str
    version: int | None
    data: Json


@dataclass(frozen=True, slots=True)
class Undecoded:
    """A key or value that should have been a message but is not, and why."""

    raw: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class RecordHeaders:
    """The headers of a record."""

    pairs: tuple[tuple[str, bytes | None], ...]


def to_json(value: object) -> Json:
    """Return the value in a form that JSON can represent."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return bytes_to_json(value)
        case DecodedMessage():
            version: dict[str, Json] = {} if value.version is None else {"version": value.version}
            return {"name": value.name, **version, "data": value.data}
        case Undecoded():
            return {"undecoded": value.reason, **bytes_to_json(value.raw)}
        case RecordHeaders():
            return [{"key": key, "value": to_json(header)} for key, header in value.pairs]
        case Mapping():
            return {str(key): to_json(item) for key, item in value.items()}
        case list() | tuple():
            return [to_json(item) for item in value]
    raise TypeError(f"{value!r} is not a value that can be shown")


def bytes_to_json(value: bytes) -> dict[str, Json]:
    """Return bytes as text if they are UTF-8, as base64 otherwise."""
    try:
        return {"utf8": value.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode("ascii")}


def to_text(value: object) -> str:
    """Return the value as text on one line."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return _without_controls(value)
        case bytes():
            return bytes_to_text(value)
        case DecodedMessage():
            name = value.name if value.version is None else f"{value.name} v{value.version}"
            return f"{name} {_compact(value.data)}"
        case Undecoded():
            return f"{bytes_to_text(value.raw)} (not decoded: {_without_controls(value.reason)})"
        case RecordHeaders():
            pairs = (f"{_quoted(key)}: {to_text(header)}" for key, header in value.pairs)
            return f"[{', '.join(pairs)}]"
        case Mapping() | list() | tuple():
            return _compact(to_json(value))
    return str(value)


def bytes_to_text(value: bytes) -> str:
    """Return bytes as quoted text if they look like text, as hex otherwise."""
    if _BINARY.search(value) is None:
        try:
            return _quoted(value.decode())
        except UnicodeDecodeError:
            pass
    return f"0x{value.hex()}"


def _compact(value: Json) -> str:
    return _without_controls(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _quoted(text: str) -> str:
    return _without_controls(json.dumps(text, ensure_ascii=False))


def _without_controls(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else json.dumps(character)[1:-1] for character in text
    )
