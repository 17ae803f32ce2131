"""Unsigned varints and the slow paths of what they count, called by compiled codecs.

An unsigned varint is base 128, low group first, at most five bytes. A length is almost always one
byte, so compiled code handles a single byte itself and comes here for the rest. Functions that read
raise :class:`struct.error` on invalid input, as the struct module does: the compiled decoder turns
every such error into one :class:`~dohle.protocol.errors.MalformedMessage` that says where.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from dohle.core.steps import CountedSteps, PlainSteps
from dohle.protocol.errors import UnencodableMessage

INT32_MAX = 0x7FFF_FFFF
STRING_BYTES_MAX = 0x7FFF

View = bytes | memoryview

#: What the later bytes of a compact length of two or three bytes add to its first byte: looking it
#: up is faster than computing it.
SECOND_OF_TWO = [byte * 0x80 - 0x80 - 1 for byte in range(0x80)]
SECOND_OF_THREE = [byte * 0x80 - 0x80 - 0x4000 - 1 for byte in range(0x100)]
THIRD = [byte * 0x4000 for byte in range(0x80)]

#: Arrays of fixed-size types below this length have a struct of their own in a table. Longer ones
#: are never cached by the struct module, whose cache holds a hundred formats of any size.
TABLE_LENGTH = 127

#: How many elements of such an array are read in one step.
_ARRAY_STEP = 8_192

_UUID = struct.Struct(">16s")


def uvarint(value: int) -> bytes:
    """Encode an unsigned varint of 32 bits."""
    if 0 <= value < 0x80:
        return _SINGLE_BYTES[value]
    if not 0 <= value <= 0xFFFF_FFFF:
        raise UnencodableMessage(f"{value} is not an unsigned 32-bit number")
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_SINGLE_BYTES = [bytes((value,)) for value in range(0x80)]


def read_uvarint(buffer: View, pos: int) -> tuple[int, int]:
    """Read an unsigned varint that fits in 31 bits; return it and the offset after it."""
    byte = buffer[pos]
    return (byte, pos + 1) if byte < 0x80 else read_rest(buffer, pos + 1, byte)


def read_rest(buffer: View, pos: int, first: int) -> tuple[int, int]:
    """Read the rest of an unsigned varint of several bytes, after its first byte."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buffer[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > INT32_MAX:
                raise struct.error(f"a length of {value}, which is more than any length can be")
            return value, pos
    raise struct.error("a varint of more than five bytes")


def compact_length(buffer: View, pos: int, first: int) -> tuple[int, int]:
    """Complete the length of non-null bytes whose first byte is 0 or at least 128.

    Compact lengths are one more than what they count, so that zero can mean null; they are returned
    in that form.
    """
    return _not_null(*(read_rest(buffer, pos, first) if first else (0, pos)))


def _not_null(length: int, pos: int) -> tuple[int, int]:
    if not length:  # zero may also be written in more bytes than it needs
        raise struct.error("null where null is not allowed")
    return length, pos


nullable_compact_length = read_rest


def compact_count(size: int, buffer: View, pos: int, first: int) -> tuple[int, int]:
    """Complete the count of a non-null array whose elements have at least this size."""
    return _not_null(*(nullable_compact_count(size, buffer, pos, first) if first else (0, pos)))


def nullable_compact_count(size: int, buffer: View, pos: int, first: int) -> tuple[int, int]:
    """Complete the count of an array whose elements have at least this size."""
    count, pos = read_rest(buffer, pos, first)
    check_count(buffer, pos, count - 1, size)
    return count, pos


def compact_string_length(buffer: View, pos: int, first: int) -> tuple[int, int]:
    """Complete the length of a compact string that is not null."""
    return _not_null(*(nullable_compact_string_length(buffer, pos, first) if first else (0, pos)))


def nullable_compact_string_length(buffer: View, pos: int, first: int) -> tuple[int, int]:
    """Complete the length of a compact string whose first byte is 128 or more."""
    length, pos = read_rest(buffer, pos, first)
    if length - 1 > STRING_BYTES_MAX:
        raise struct.error(f"a string of {length - 1} bytes; {STRING_BYTES_MAX} are allowed")
    return length, pos


def negative_length(length: int) -> None:
    """Refuse a negative length that does not mean null, or null where it is not allowed."""
    raise struct.error("null where null is not allowed" if length == -1 else f"length {length}")


def check_count(buffer: View, pos: int, count: int, size: int) -> None:
    """Refuse an array whose elements, each of at least this size, exceed the remaining bytes."""
    if count * size > len(buffer) - pos:
        raise struct.error(f"{count} elements with {len(buffer) - pos} bytes left")


def compact_array(
    buffer: View, pos: int, first: int, code: str
) -> CountedSteps[tuple[tuple[Any, ...], int]]:
    """Read an array of a fixed-size type whose compact length takes several bytes."""
    length, pos = _not_null(*read_rest(buffer, pos, first))
    return (yield from _unpack_array(buffer, pos, length - 1, code))


def nullable_compact_array(
    buffer: View, pos: int, first: int, code: str
) -> CountedSteps[tuple[tuple[Any, ...] | None, int]]:
    """Read such an array if it may be null: a length of zero written in several bytes."""
    length, pos = read_rest(buffer, pos, first)
    if not length:
        return None, pos
    return (yield from _unpack_array(buffer, pos, length - 1, code))


def plain_array(
    buffer: View, pos: int, count: int, code: str
) -> CountedSteps[tuple[tuple[Any, ...], int]]:
    """Read an array of a fixed-size type after a non-compact count below zero or above 126."""
    if count < 0:
        negative_length(count)
    return (yield from _unpack_array(buffer, pos, count, code))


def _unpack_array(
    buffer: View, pos: int, count: int, code: str
) -> CountedSteps[tuple[tuple[Any, ...], int]]:
    size = struct.calcsize(code)
    check_count(buffer, pos, count, size)
    yield count
    found: list[Any] = []
    for start in range(0, count, _ARRAY_STEP):
        step = min(_ARRAY_STEP, count - start)
        end = pos + step * size
        if code == "16s":
            # A struct for many uuids would be larger than the uuids.
            some = tuple(chain.from_iterable(_UUID.iter_unpack(buffer[pos:end])))
        else:
            some = struct.Struct(_array_format(code, step)).unpack_from(buffer, pos)
        pos = end
        if step == count:
            return some, pos
        found += some
        yield 0
    return tuple(found), pos


Unpackers = list[Callable[[Any, int], tuple[Any, ...]]]
Packers = list[Callable[..., bytes]]

# Tables by code. Two threads may create the same table; all use the one stored first.
_unpackers: dict[str, Unpackers] = {}
_packers: dict[str, Packers] = {}
_counted_packers: dict[str, Packers] = {}


def unpackers(code: str) -> Unpackers:
    """Return the readers of arrays of one fixed-size type, indexed by compact length below 128."""

    def null(_buffer: Any, _pos: int) -> tuple[Any, ...]:
        raise struct.error("null where null is not allowed")

    if table := _unpackers.get(code):
        return table
    return _unpackers.setdefault(code, [null, *(s.unpack_from for s in _structs(">", code))])


def packers(code: str) -> Packers:
    """Return the writers of arrays of one fixed-size type, indexed by length below 127."""
    if table := _packers.get(code):
        return table
    return _packers.setdefault(code, [s.pack for s in _structs(">", code)])


def counted_packers(code: str) -> Packers:
    """Return the writers of such arrays that put the compact length before them."""
    if table := _counted_packers.get(code):
        return table
    return _counted_packers.setdefault(code, [s.pack for s in _structs(">B", code)])


def _structs(head: str, code: str) -> list[struct.Struct]:
    return [struct.Struct(head + _array_format(code, n)[1:]) for n in range(TABLE_LENGTH)]


def _array_format(code: str, count: int) -> str:
    return ">" + code * count if code == "16s" else f">{count}{code}"


def pack_array(code: str, values: Sequence[Any]) -> bytes:
    """Write an array of a fixed-size type, of any length."""
    count = len(values)
    if count < TABLE_LENGTH:
        return packers(code)[count](*values)
    if code == "16s":
        return b"".join(map(_UUID.pack, values))
    return struct.Struct(_array_format(code, count)).pack(*values)


class RecordsElsewhere:
    """Record batches that are not in memory but, say, in a file: only their length matters here.

    It may be the value of a field of record batches; ``encode_chunks`` passes it on unchanged if it
    is long enough to be a chunk of its own.
    """

    __slots__ = ()

    def __len__(self) -> int:
        raise NotImplementedError


def check_uuid(value: bytes) -> None:
    """Refuse a uuid that is not sixteen bytes long, which struct would pad or cut."""
    if len(value) != 16:
        raise UnencodableMessage(f"a uuid of {len(value)} bytes")


def check_bytes(value: object) -> None:
    """Refuse anything but bytes, and a view whose length is not its number of bytes."""
    if isinstance(value, memoryview):
        if value.itemsize != 1 or value.ndim != 1 or not value.c_contiguous:
            raise UnencodableMessage(
                f"a view of format {value.format!r}, not a contiguous one of bytes"
            )
    elif value is None:
        raise UnencodableMessage("null where null is not allowed")
    elif not isinstance(value, bytes | bytearray | RecordsElsewhere):
        raise UnencodableMessage(f"{type(value).__name__} instead of bytes")


def read_unknown_tags(
    buffer: View, pos: int
) -> CountedSteps[tuple[tuple[tuple[int, bytes], ...], int]]:
    """Read the tagged fields of a struct that declares none."""
    count, pos = read_uvarint(buffer, pos)
    tags = []
    last = -1
    for _ in range(count):
        tag, end, pos = read_tag(buffer, pos, last)
        last = tag
        tags.append((tag, bytes(buffer[pos:end])))
        pos = end
        yield 1
    return tuple(tags), pos


def read_tag(buffer: View, pos: int, last: int) -> tuple[int, int, int]:
    """Read the head of a tagged field: its tag, where it ends, and where its value starts."""
    tag, pos = read_uvarint(buffer, pos)
    if tag <= last:
        raise struct.error(f"tag {tag} after tag {last}")
    size, pos = read_uvarint(buffer, pos)
    if size > len(buffer) - pos:
        raise struct.error(f"a tagged field of {size} bytes with {len(buffer) - pos} left")
    return tag, pos + size, pos


def check_tag_end(pos: int, end: int) -> None:
    """Refuse a tagged field whose length differs from its size."""
    if pos != end:
        raise struct.error(f"a tagged field that ends {end - pos} bytes before its size")


#: How many strings are encoded in one step.
_PREPARED_AT_A_TIME = 1_000
#: What goes before a string of so many ASCII characters, where that is one byte.
_LENGTHS = [chr(length + 1) for length in range(127)]


def string_length(length: int) -> bytes:
    """Encode the length of a compact string of 127 bytes or more."""
    if length > STRING_BYTES_MAX:
        raise UnencodableMessage(f"a string of {length} bytes; {STRING_BYTES_MAX} are allowed")
    return uvarint(length + 1)


class PreparedStrings(tuple[str, ...]):
    """Strings that are encoded already, because there may be very many of them."""

    #: As compact strings, without their number; None if they are to be encoded one by one.
    encoded: bytes | None


def prepare_strings(values: Sequence[str]) -> PlainSteps[PreparedStrings]:
    """Encode any number of strings in steps, ahead of the message that they go into."""
    prepared = PreparedStrings(values)
    prepared.encoded = None
    parts: list[bytes] = []
    for start in range(0, len(values), _PREPARED_AT_A_TIME):
        part = short_strings(values[start : start + _PREPARED_AT_A_TIME])
        if part is None:
            return prepared
        parts.append(part)
        yield
    prepared.encoded = b"".join(parts)
    return prepared


def short_strings(values: Sequence[str]) -> bytes | None:
    """Encode very many compact strings at once; None unless all of them are ASCII and short.

    That takes few calls, where one by one would take several for each.
    """
    if isinstance(values, PreparedStrings):
        return values.encoded
    try:
        if max(map(len, values)) >= len(_LENGTHS):
            return None
        prefixes = map(_LENGTHS.__getitem__, map(len, values))
        text = "".join(chain.from_iterable(zip(prefixes, values, strict=True)))
    except TypeError:
        # Which one is no string is told by whoever takes them one by one.
        return None
    return text.encode() if text.isascii() else None


def tagged_section(
    known: list[tuple[int, bytes]],
    unknown: tuple[tuple[int, bytes], ...],
    reserved: tuple[int, ...],
) -> bytes:
    """Encode tagged fields, known and unknown ones merged in ascending order."""
    out = [uvarint(len(known) + len(unknown))]
    last = -1
    for tag, value in sorted([*known, *unknown]) if unknown else known:
        if tag <= last:
            raise UnencodableMessage(f"tag {tag} twice")
        last = tag
        out += (uvarint(tag), uvarint(len(value)), value)
    if any(tag in reserved for tag, _ in unknown):
        raise UnencodableMessage(f"unknown tags {unknown} that the schema knows")
    return b"".join(out)
