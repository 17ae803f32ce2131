"""A response whose texts do not fit, made one whose texts do.

Names in requests have at most 32767 bytes and so fit into a response, and messages about them are
shortened (``KafkaError``). But a text may also come from elsewhere: the path of a directory, say,
need not be UTF-8. By then the request is carried out. Without an answer its client would send it
again; a shortened text does less harm.
"""

from __future__ import annotations

from typing import TypeVar

from dohle.core.texts import encodable, shorten
from dohle.protocol.codec.unsigned_varint import STRING_BYTES_MAX
from dohle.protocol.schema import Struct

S = TypeVar("S", bound=Struct)

#: A character has at most four bytes, and the note of what is left out needs some too.
_CHARACTERS_MAX = 8000


def with_fitting_texts(message: S) -> S:
    """Return the message with every text short enough, and in characters that UTF-8 has."""
    changes = {
        name: fitting
        for name in message.FIELDS
        if (fitting := _fitting(value := getattr(message, name))) is not value
    }
    return message.replace(**changes) if changes else message


def _fitting(value: object) -> object:
    """Return the value itself if nothing in it has to change."""
    if isinstance(value, str):
        text = encodable(value)
        if len(text.encode()) > STRING_BYTES_MAX:
            return shorten(text, _CHARACTERS_MAX)
        return value if text == value else text
    if isinstance(value, Struct):
        return with_fitting_texts(value)
    if isinstance(value, tuple):
        items = tuple(map(_fitting, value))
        return items if any(map(_differ, items, value)) else value
    return value


def _differ(one: object, other: object) -> bool:
    return one is not other
