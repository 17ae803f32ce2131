"""How consumed records are printed: kcat's format strings, and JSON.

A format is compiled once into a list of pieces, since it is used for every record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from dohle.cli.options import unescape
from dohle.cli.values import Json, RecordHeaders, to_json

if TYPE_CHECKING:
    from dohle.client import ConsumedRecord

Piece = Callable[["ConsumedRecord"], bytes]

_DIRECTIVE = re.compile(r"%(.|$)", re.DOTALL)
_TIMESTAMP_TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}


def compile_format(text: str, *, null: bytes = b"") -> Callable[[ConsumedRecord], bytes]:
    """Return the function that turns a record into bytes; a ValueError names an unknown directive.

    ``null`` is printed for null keys and values.
    """
    pieces: list[Piece] = []
    known = _directives(null)
    end = 0
    for match in _DIRECTIVE.finditer(text):
        _add_literal(pieces, text[end : match.start()])
        end = match.end()
        letter = match[1]
        if letter == "%":
            _add_literal(pieces, "%")
        elif letter in known:
            pieces.append(known[letter])
        else:
            raise ValueError(
                f"%{letter} is not known: use {' '.join(f'%{one}' for one in known)} or %%"
            )
    _add_literal(pieces, text[end:])
    return lambda item: b"".join([piece(item) for piece in pieces])


def _add_literal(pieces: list[Piece], text: str) -> None:
    if text:
        literal = unescape(text)
        pieces.append(lambda _: literal)


def _directives(null: bytes) -> dict[str, Piece]:
    def shown(value: bytes | None) -> bytes:
        return null if value is None else value

    def length(value: bytes | None) -> int:
        return -1 if value is None else len(value)

    return {
        "t": lambda item: item.topic.encode(),
        "p": lambda item: b"%d" % item.partition,
        "o": lambda item: b"%d" % item.record.offset,
        "k": lambda item: shown(item.record.key),
        "K": lambda item: b"%d" % length(item.record.key),
        "s": lambda item: shown(item.record.value),
        "S": lambda item: b"%d" % length(item.record.value),
        "R": lambda item: length(item.record.value).to_bytes(4, "big", signed=True),
        "T": lambda item: b"%d" % item.record.timestamp,
        "h": _headers,
    }


def _headers(item: ConsumedRecord) -> bytes:
    return b",".join(
        name.encode() + b"=" + (b"NULL" if value is None else value)
        for name, value in item.record.headers
    )


def to_fields(item: ConsumedRecord) -> dict[str, object]:
    """Return a record as the fields of a JSON object."""
    record = item.record
    return {
        "topic": item.topic,
        "partition": item.partition,
        "offset": record.offset,
        "leaderEpoch": item.leader_epoch,
        "timestampType": _TIMESTAMP_TYPES[item.timestamp_type],
        "timestamp": record.timestamp,
        "key": record.key,
        "value": record.value,
        "headers": RecordHeaders(record.headers),
    }


def pretty(item: ConsumedRecord) -> bytes:
    """Return a record as JSON that people read: what is JSON itself is shown as such."""
    fields: dict[str, Json] = {}
    for name, value in to_fields(item).items():
        if isinstance(value, RecordHeaders):
            fields[name] = {key: _readable(content) for key, content in value.pairs}
        elif name in ("key", "value"):
            assert value is None or isinstance(value, bytes)
            fields[name] = _readable(value)
        else:
            fields[name] = to_json(value)
    return json.dumps(fields, indent=2, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def _readable(value: bytes | None) -> Json:
    if value is None:
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return to_json(value)
    try:
        found: Json = json.loads(text)
    except ValueError:
        return text
    return found
