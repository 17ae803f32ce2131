"""The functions that declare the fields of messages, one for each of Kafka's types.

All take the versions in which the field exists and, where it makes sense: ``default``;
``nullable``, True or the versions in which null is allowed; ``tag``, which makes it a tagged field;
``ignorable``, which allows dropping it silently in versions that lack it.

They return Any, so that a declaration can state the type that its users see.
"""

from __future__ import annotations

from typing import Any, Protocol

from dohle.protocol.schema import NO_VERSIONS, STRUCT_DEFAULT, Field, Struct, version_range


def _field(
    kind: str,
    versions: str,
    default: object,
    ignorable: bool,
    tag: int | None,
    nullable: str | bool = False,
    element: str | type[Struct] | None = None,
    compact: bool = True,
) -> Field:
    present = version_range(versions)
    if isinstance(nullable, str):
        null_versions = version_range(nullable)
    else:
        null_versions = present if nullable else NO_VERSIONS
    return Field(kind, present, null_versions, default, tag, ignorable, compact, element)


def boolean(
    versions: str, *, default: bool = False, ignorable: bool = False, tag: int | None = None
) -> Any:
    """Declare a truth value: one byte."""
    return _field("boolean", versions, default, ignorable, tag)


def int8(
    versions: str, *, default: int = 0, ignorable: bool = False, tag: int | None = None
) -> Any:
    """Declare an integer from -2^7 to 2^7-1."""
    return _field("int8", versions, default, ignorable, tag)


def int16(
    versions: str, *, default: int = 0, ignorable: bool = False, tag: int | None = None
) -> Any:
    """Declare an integer from -2^15 to 2^15-1."""
    return _field("int16", versions, default, ignorable, tag)


def int32(
    versions: str, *, default: int = 0, ignorable: bool = False, tag: int | None = None
) -> Any:
    """Declare an integer from -2^31 to 2^31-1."""
    return _field("int32", versions, default, ignorable, tag)


def int64(
    versions: str, *, default: int = 0, ignorable: bool = False, tag: int | None = None
) -> Any:
    """Declare an integer from -2^63 to 2^63-1."""
    return _field("int64", versions, default, ignorable, tag)


def uint16(
    versions: str, *, default: int = 0, ignorable: bool = False, tag: int | None = None
) -> Any:
    """Declare an integer from 0 to 2^16-1."""
    return _field("uint16", versions, default, ignorable, tag)


def uint32(
    versions: str, *, default: int = 0, ignorable: bool = False, tag: int | None = None
) -> Any:
    """Declare an integer from 0 to 2^32-1."""
    return _field("uint32", versions, default, ignorable, tag)


def float64(
    versions: str, *, default: float = 0.0, ignorable: bool = False, tag: int | None = None
) -> Any:
    """Declare a number of double precision."""
    return _field("float64", versions, default, ignorable, tag)


def uuid(
    versions: str, *, default: bytes = bytes(16), ignorable: bool = False, tag: int | None = None
) -> Any:
    """Declare a uuid: sixteen bytes."""
    return _field("uuid", versions, default, ignorable, tag)


def string(
    versions: str,
    *,
    nullable: str | bool = False,
    default: str | None = "",
    ignorable: bool = False,
    tag: int | None = None,
    compact: bool = True,
) -> Any:
    """Declare a text of at most 32767 bytes of UTF-8."""
    return _field("string", versions, default, ignorable, tag, nullable, None, compact)


def binary(
    versions: str,
    *,
    nullable: str | bool = False,
    default: bytes | None = b"",
    ignorable: bool = False,
    tag: int | None = None,
) -> Any:
    """Declare bytes; decoding copies them."""
    return _field("binary", versions, default, ignorable, tag, nullable)


def record_data(
    versions: str, *, nullable: str | bool = False, ignorable: bool = False, tag: int | None = None
) -> Any:
    """Declare record batches; decoding returns a view of its input. The default is null."""
    return _field("record_data", versions, None, ignorable, tag, nullable)


class ElementField(Protocol):
    """A function of this file that can also declare the elements of an array."""

    __name__: str

    def __call__(self, versions: str) -> Any:
        """Declare a field."""


def array(
    element: ElementField | type[Struct],
    versions: str,
    *,
    nullable: str | bool = False,
    default: tuple[()] | None = (),
    ignorable: bool = False,
    tag: int | None = None,
) -> Any:
    """Declare an array of structs, or of elements that another function of this file declares."""
    kind = element if isinstance(element, type) else element.__name__
    return _field("array", versions, default, ignorable, tag, nullable, kind)


def struct(
    element: type[Struct],
    versions: str,
    *,
    nullable: str | bool = False,
    default: object = STRUCT_DEFAULT,
    ignorable: bool = False,
    tag: int | None = None,
) -> Any:
    """Declare a struct; its default is the struct with all defaults, unless null is the default."""
    return _field("struct", versions, default, ignorable, tag, nullable, element)
