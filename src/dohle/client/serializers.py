"""How keys and values become bytes, and bytes become keys and values.

A serializer is a function from a value to bytes, a deserializer the other way round; for the common
ones there are names, with the bytes that Kafka's own serializers write:

===========  ==================================================
``bytes``    as they are (the default)
``str``      UTF-8
``int``      4 bytes, big-endian (Java's IntegerSerializer)
``long``     8 bytes, big-endian (Java's LongSerializer)
``double``   8 bytes, big-endian (Java's DoubleSerializer)
``json``     JSON in UTF-8, without spaces
===========  ==================================================

A pydantic model or a msgspec Struct, as a class, is written as JSON and checked when it is read.
Avro, Protobuf and the like: give the function. None is never handed to one: it stays None, which
deletes a key on a compacted topic.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from importlib import import_module
from typing import Any

from dohle.core.errors import ErrorCode, KafkaError

Serializer = Callable[[Any], bytes]
Deserializer = Callable[[bytes], Any]
#: A name, a class of models, or the function itself.
Serialization = str | type[Any] | Callable[[Any], Any]

_INT, _LONG, _DOUBLE = struct.Struct(">i"), struct.Struct(">q"), struct.Struct(">d")


class SerializationFailed(KafkaError):
    """A key or value that its serializer or deserializer does not take."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)


def _json_bytes(value: Any) -> bytes:
    import json  # not every program has a use for it

    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _json_value(data: bytes) -> Any:
    import json

    return json.loads(data)


def _packed(form: struct.Struct) -> tuple[Serializer, Deserializer]:
    return form.pack, lambda data: form.unpack(data)[0]


_BY_NAME: dict[str, tuple[Serializer, Deserializer]] = {
    "str": (str.encode, bytes.decode),
    "string": (str.encode, bytes.decode),
    "int": _packed(_INT),
    "long": _packed(_LONG),
    "double": _packed(_DOUBLE),
    "float": _packed(_DOUBLE),
    "json": (_json_bytes, _json_value),
}
_BY_TYPE: dict[type[Any], str] = {str: "str", int: "long", float: "double", bytes: "bytes"}


def serializer_of(given: Serialization | None, what: str) -> Serializer | None:
    """Return the function for what a user has given; None where bytes are sent as they are."""
    found = _pair(given, what)
    return None if found is None else found[0]


def deserializer_of(given: Serialization | None, what: str) -> Deserializer | None:
    """Return the function for what a user has given; None where bytes are handed out."""
    found = _pair(given, what)
    return None if found is None else found[1]


def _pair(given: Serialization | None, what: str) -> tuple[Serializer, Deserializer] | None:
    if isinstance(given, type):
        models = _models(given)
        if models is not None:
            return models
        given = _BY_TYPE.get(given, given)
    if given is None or given == "bytes":
        return None
    if isinstance(given, str):
        pair = _BY_NAME.get(given.lower())
        if pair is None:
            raise ValueError(f"{what} is {given!r}: choose from bytes, {', '.join(_BY_NAME)}")
        return pair
    if not callable(given):
        raise TypeError(f"{what} is {given!r}: it must be a function or one of {[*_BY_NAME]}")
    return given, given


def _models(kind: type[Any]) -> tuple[Serializer, Deserializer] | None:
    """Return how models of a class are written and read, if it is a class of models."""
    if hasattr(kind, "model_validate_json"):  # pydantic
        return (lambda model: model.model_dump_json().encode()), kind.model_validate_json
    if hasattr(kind, "__struct_fields__"):
        json = import_module("msgspec").json
        return json.encode, json.Decoder(kind).decode
    return None


def serialized(value: Any, serializer: Serializer | None, what: str) -> bytes | None:
    """Return the bytes of a key or value."""
    if value is None:
        return None
    if serializer is not None:
        try:
            value = serializer(value)
        except Exception as error:
            raise SerializationFailed(
                f"{what} {_shown(value)} is not serialized: {error}"
            ) from error
    if isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if serializer is not None:
        raise SerializationFailed(
            f"the {what}_serializer returned a {type(value).__name__}: it must return bytes"
        )
    raise TypeError(
        f"{what} is a {type(value).__name__}: pass bytes, or give the producer a {what}_serializer "
        f'("str", "json", a function ...)'
    )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
