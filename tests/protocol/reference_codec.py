"""The encoding rules once more, field by field, slowly: what the compiler is held against."""

from __future__ import annotations

import struct
from typing import Any

from dohle.protocol.schema import Field, Message

FIXED = {
    "boolean": ">?",
    "int8": ">b",
    "int16": ">h",
    "int32": ">i",
    "int64": ">q",
    "uint16": ">H",
    "uint32": ">I",
    "float64": ">d",
    "uuid": ">16s",
}


def reference_encode(message: Message, version: int) -> bytes:
    """Encode a message that the version can carry."""
    return _struct(message, version, type(message).FLEXIBLE.covers(version))


def varint(value: int) -> bytes:
    """Encode an unsigned varint."""
    groups = []
    while True:
        groups.append(value & 0x7F)
        value >>= 7
        if not value:
            break
    return bytes([group | 0x80 for group in groups[:-1]] + groups[-1:])


def _struct(value: Any, version: int, flexible: bool) -> bytes:
    out = b""
    tagged: dict[int, bytes] = dict(value.unknown_tags)
    for name, field in value.FIELDS.items():
        if not field.versions.covers(version):
            continue
        item = getattr(value, name)
        if field.tag is None:
            out += _field(field, item, version, flexible)
        elif item != field.default_value:
            tagged[field.tag] = _field(field, item, version, flexible)
    if flexible:
        out += varint(len(tagged))
        for tag, data in sorted(tagged.items()):
            out += varint(tag) + varint(len(data)) + data
    return out


def _field(field: Field, value: Any, version: int, flexible: bool) -> bytes:
    if field.kind == "struct":
        if not field.nullable.covers(version):
            return _struct(value, version, flexible)
        null = b"\xff" if field.tag is None else varint(0)
        return null if value is None else b"\x01" + _struct(value, version, flexible)
    if field.kind == "array":
        head = _length(None if value is None else len(value), 4, flexible)
        element = field.element
        if isinstance(element, str):
            return head + b"".join(_primitive(element, item, flexible) for item in value or ())
        return head + b"".join(_struct(item, version, flexible) for item in value or ())
    return _primitive(field.kind, value, flexible and field.compact)


def _primitive(kind: str, value: Any, compact: bool) -> bytes:
    if kind in FIXED:
        return struct.pack(FIXED[kind], value)
    data = value.encode() if kind == "string" and value is not None else value
    size = 2 if kind == "string" else 4
    return _length(None if data is None else len(data), size, compact) + (data or b"")


def _length(length: int | None, size: int, compact: bool) -> bytes:
    if compact:
        return varint(0 if length is None else length + 1)
    return (-1 if length is None else length).to_bytes(size, "big", signed=True)
