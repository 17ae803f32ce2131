"""Other implementations of the protocol, as oracles: kio and kafka-python, old and new.

A peer decodes our bytes and encodes what it understood again. Its values are turned back into our
message, guided by our schema but read by position, since peers name fields in their own way.
"""

from __future__ import annotations

import importlib
import io
import pkgutil
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields as dataclass_fields
from datetime import datetime, timedelta
from enum import Enum
from functools import cache
from typing import Any
from uuid import UUID

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.old
import kafka.protocol.producer
import kafka.protocol.sasl
from kafka.protocol.api_data import ApiData
from kafka.protocol.api_header import ApiHeader
from kafka.protocol.api_message import ApiMessage
from kio.index import KioIndexError, load_entity_schema
from kio.schema.index import LoadableEntityType, api_key_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from dohle.protocol.apis import load_message
from dohle.protocol.schema import Field, Message, Request, Response

#: What a peer understood: our message again, and the peer's encoding of it.
Exchange = Callable[[bytes], tuple[Message, bytes]]


def kio_exchange(name: str, version: int) -> Exchange | None:
    """Return the exchange with kio, or None if it does not know the message."""
    cls = load_message(name)
    kind: LoadableEntityType
    if issubclass(cls, Request | Response):
        kind = EntityType.request if issubclass(cls, Request) else EntityType.response
        peer_name = api_key_map.get(cls.API_KEY, "")
    else:
        kind = EntityType.header if name.endswith("Header") else EntityType.data
        peer_name = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    try:
        entity = load_entity_schema(peer_name, version, kind)
    except KioIndexError:
        return None
    reader, writer = entity_reader(entity), entity_writer(entity)

    def exchange(data: bytes) -> tuple[Message, bytes]:
        value, size = reader(data, 0)
        assert size == len(data)
        out = io.BytesIO()
        writer(out, value)
        return _ours(cls, version, value, _dataclass_values), out.getvalue()

    return exchange


def _dataclass_values(value: Any, _version: int) -> list[Any]:
    return [getattr(value, field.name) for field in dataclass_fields(value)]


@cache
def _kafka_python_classes() -> dict[str, Any]:
    def walk(cls: Any) -> Iterator[Any]:
        for sub in cls.__subclasses__():
            yield sub
            yield from walk(sub)

    return {
        cls.__name__: cls
        for base in (ApiMessage, ApiData, ApiHeader)
        for cls in walk(base)
        if "_json" in vars(cls)
    }


def kafka_python_exchange(name: str, version: int) -> Exchange | None:
    """Return the exchange with kafka-python's current codec, or None."""
    cls = load_message(name)
    peer = _kafka_python_classes().get(name)
    if peer is None or not peer._valid_versions[0] <= version <= peer._valid_versions[1]:
        return None
    flexible = cls.FLEXIBLE.covers(version)

    def exchange(data: bytes) -> tuple[Message, bytes]:
        if issubclass(peer, ApiHeader):
            value = peer.decode(io.BytesIO(data), flexible=flexible)
            encoded = value.encode(flexible=flexible)
        elif issubclass(peer, ApiData):
            value = peer.decode(data, version=version, header=False)
            encoded = value.encode(version=version, header=False)
        else:
            # Its public decode has rules of its own for some responses; this is the codec itself.
            read = peer._struct.compiled_decode_from(
                version, compact=flexible, tagged=flexible, data_class=peer
            )
            value, end = read(memoryview(data), 0)
            assert end == len(data)
            value._header = None
            encoded = bytes(value.encode(version=version))
        return _ours(cls, version, value, _container_values), encoded

    return exchange


def _container_values(value: Any, version: int) -> list[Any]:
    return [
        getattr(value, field.name)
        for field in value._struct._fields
        if field.for_version_q(version)
    ]


@cache
def _old_classes() -> dict[tuple[int, int, bool], Any]:
    found = {}
    for module in pkgutil.iter_modules(kafka.protocol.old.__path__):
        contents = vars(importlib.import_module(f"kafka.protocol.old.{module.name}"))
        for name, cls in contents.items():
            if re.search(r"_v\d+$", name) and hasattr(cls, "API_KEY"):
                found[cls.API_KEY, cls.API_VERSION, cls.is_request()] = cls
    return found


def old_kafka_python_exchange(name: str, version: int) -> Exchange | None:
    """Return the exchange with kafka-python's former codec, which knows versions since dropped."""
    cls = load_message(name)
    if not issubclass(cls, Request | Response) or cls.FLEXIBLE.covers(version):
        return None
    peer = _old_classes().get((cls.API_KEY, version, issubclass(cls, Request)))
    if peer is None:
        return None

    def exchange(data: bytes) -> tuple[Message, bytes]:
        stream = io.BytesIO(data)
        values = peer.SCHEMA.decode(stream)
        assert stream.tell() == len(data)
        return _ours(cls, version, values, _sequence_values), peer.SCHEMA.encode(values)

    return exchange


def _sequence_values(value: Any, _version: int) -> list[Any]:
    # A struct of a single field may be given as that field alone.
    return list(value) if isinstance(value, tuple | list) else [value]


PEERS: dict[str, Callable[[str, int], Exchange | None]] = {
    "kio": kio_exchange,
    "kafka-python": kafka_python_exchange,
    "kafka-python (old)": old_kafka_python_exchange,
}


def _ours(
    cls: type[Any], version: int, value: Any, values_of: Callable[[Any, int], Sequence[Any]]
) -> Any:
    fields = {name: f for name, f in cls.FIELDS.items() if f.versions.covers(version)}
    values = values_of(value, version)
    assert len(values) == len(fields), f"{cls.__name__}: {values} for {list(fields)}"
    return cls(
        **{
            name: _our_value(field, version, value, values_of)
            for (name, field), value in zip(fields.items(), values, strict=True)
        }
    )


def _our_value(field: Field, version: int, value: Any, values_of: Any) -> Any:
    if field.kind == "array":
        if value is None:
            return None
        element = field.element
        if isinstance(element, str):
            return tuple(_our_primitive(element, item) for item in value)
        assert element is not None
        return tuple(_ours(element, version, item, values_of) for item in value)
    if field.kind == "struct":
        if value is None:  # kafka-python has null for a struct that was not sent
            return None if field.nullable.covers(version) else field.default_value
        assert isinstance(field.element, type)
        return _ours(field.element, version, value, values_of)
    return _our_primitive(field.kind, value)


def _our_primitive(kind: str, value: Any) -> Any:
    if kind == "uuid":
        return bytes(16) if value is None else value.bytes
    match value:
        case Enum():
            return value.value
        case UUID():
            return value.bytes
        case timedelta():
            return round(value / timedelta(milliseconds=1))
        case datetime():
            return round(value.timestamp() * 1000)
        case set():  # a bit field
            number = sum(1 << bit for bit in value)
            return number - (1 << 32) if number >= 1 << 31 else number
        case None if kind == "int32":  # the bit field that means "not asked for"
            return -(1 << 31)
        case None if kind == "int64":  # no time
            return -1
    return value
