"""Writes the source of decoders.

What makes them fast:

- Neighbouring fields of fixed size are one ``unpack_from``, and the length, count or marker that
  follows them is read by the same call: a compact length as one byte, with a slow path for 128 and
  more.
- Arrays of fixed-size types are one ``unpack_from`` with a struct made for their length.
- Objects are made by ``object.__new__`` and filled slot by slot.

What makes them safe: reading behind the end raises by itself, except for slices; a slice that was
too short leaves ``pos`` behind the end, so that the next read raises, or the check at the very end.
Counts need no check of their own while each element takes at least a byte.
"""

from __future__ import annotations

import struct
from itertools import repeat

from dohle.protocol import varint
from dohle.protocol.compiler import (
    FIXED_CODES,
    Source,
    default_name,
    fields_in,
    smallest_size,
)
from dohle.protocol.errors import MalformedMessage
from dohle.protocol.schema import Field, Message, Struct


def write_decoder(source: Source, cls: type[Message], version: int, *, view: bool) -> None:
    """Write ``decode(buf, pos)``, for memoryviews or for bytes, and what it calls."""
    source.names.update(
        new=object.__new__,
        repeat=repeat,
        nonsense=(struct.error, IndexError, UnicodeDecodeError),
        malformed=malformed,
        **{name: getattr(varint, name) for name in _HELPERS},
    )
    writer = _DecoderWriter(source, version, cls.FLEXIBLE.covers(version), view)
    source.open("def decode(buf, pos):")
    source.open("try:")
    if not view and _has_records(cls):
        source.line("view = memoryview(buf)")
    source.line(f"o = new({source.bind(cls.__name__, cls)})")
    writer.struct(cls, "o")
    writer.flush()
    source.close()
    source.open("except nonsense as reason:")
    source.line(f"raise malformed({cls.__name__!r}, {version}, pos, reason) from None")
    source.close()
    source.open("if pos > len(buf):")
    source.line(f"raise malformed({cls.__name__!r}, {version}, len(buf), 'it ends too early')")
    source.close()
    source.line("return o, pos")
    source.close()
    writer.write_tag_functions()


_HELPERS = (
    "check_count",
    "check_tag_end",
    "compact_array",
    "compact_length",
    "compact_string_length",
    "negative_length",
    "nullable_compact_length",
    "nullable_compact_string_length",
    "plain_array",
    "read_rest",
    "read_tag",
    "read_unknown_tags",
)


def _has_records(cls: type[Struct]) -> bool:
    return any(
        field.kind == "record_data"
        or (isinstance(field.element, type) and _has_records(field.element))
        for field in cls.FIELDS.values()
    )


def malformed(name: str, version: int, pos: int, reason: object) -> MalformedMessage:
    """Say what was wrong with the input, and where."""
    if isinstance(reason, IndexError):
        reason = "it ends too early"
    return MalformedMessage(f"{name} version {version}, near byte {pos}: {reason}")


class _DecoderWriter:
    """Writes the statements of one decoder; ``n`` and ``end`` are scratch names in them."""

    def __init__(self, source: Source, version: int, flexible: bool, view: bool) -> None:
        self._source = source
        self._version = version
        self._flexible = flexible
        self._view = view
        self._run: list[tuple[str, str]] = []
        self._tag_functions: dict[type[Struct], None] = {}

    def flush(self) -> None:
        """Read the fixed-size fields that are due, by one call."""
        run, self._run = self._run, []
        if not run:
            return
        if len(run) == 1 and run[0][0] == "B":
            self._source.line(f"{run[0][1]} = buf[pos]")
            self._source.line("pos += 1")
            return
        unpack, size = self._source.unpack("".join(code for code, _ in run))
        targets = ", ".join(target for _, target in run)
        comma = "," if len(run) == 1 else ""
        self._source.line(f"{targets}{comma} = {unpack}(buf, pos)")
        self._source.line(f"pos += {size}")

    def struct(self, cls: type[Struct], name: str) -> None:
        """Read the fields of an empty struct of that name; some of them may still be due."""
        source = self._source
        ordered, tagged, absent = fields_in(cls, self._version)
        for field_name in (*absent, *tagged):
            value = cls.FIELDS[field_name].default_value
            default = source.constant(value, default_name(cls, field_name))
            source.line(f"{name}.{field_name} = {default}")
        source.line(f"{name}.unknown_tags = ()")
        for field_name in ordered:
            self._field(cls.FIELDS[field_name], f"{name}.{field_name}")
        if self._flexible:
            self._tags(cls, name, known=bool(tagged))

    def _new(self, cls: type[Struct], target: str) -> str:
        """Make an empty struct and put it where it belongs; return a shorter name for it."""
        name = self._source.fresh("o")
        self._source.line(f"{target} = {name} = new({self._source.bind(cls.__name__, cls)})")
        return name

    def _field(self, field: Field, target: str) -> None:
        nullable = field.nullable.covers(self._version)
        match field.kind:
            case "struct":
                assert isinstance(field.element, type)
                self._struct(field.element, target, nullable)
            case "array":
                assert field.element is not None
                self._array(field.element, target, nullable)
            case kind:
                self._value(kind, target, nullable, self._flexible and field.compact)

    def _value(self, kind: str, target: str, nullable: bool, compact: bool) -> None:
        if code := FIXED_CODES.get(kind):
            self._run.append((code, target))
        elif kind == "string":
            expression = 'str(buf[pos:end], "utf-8")' if self._view else "buf[pos:end].decode()"
            self._sliced(target, expression, nullable, compact, "_string")
        elif kind == "binary":
            expression = "buf[pos:end].tobytes()" if self._view else "buf[pos:end]"
            self._sliced(target, expression, nullable, compact)
        else:
            expression = "buf[pos:end]" if self._view else "view[pos:end]"
            self._sliced(target, expression, nullable, compact)

    def _sliced(
        self, target: str, expression: str, nullable: bool, compact: bool, prefix: str = ""
    ) -> None:
        """Read a length and as many bytes."""
        if not compact:
            self._plain_length("h" if prefix else "i", nullable)
        elif prefix:
            self._compact_length(nullable, prefix)
        else:
            self._long_compact_length(nullable)
        if nullable:
            self._source.open(f"if {'not n' if compact else 'n < 0'}:")
            self._source.line(f"{target} = None")
            self._source.close()
            self._source.open("else:")
        self._source.line(f"end = pos + n{' - 1' if compact else ''}")
        self._source.line(f"{target} = {expression}")
        self._source.line("pos = end")
        if nullable:
            self._source.close()

    def _compact_length(self, nullable: bool, prefix: str = "") -> None:
        self._run.append(("B", "n"))
        self.flush()
        function = f"{'nullable_' if nullable else ''}compact{prefix}_length"
        self._source.open(f"if n > 127{'' if nullable else ' or not n'}:")
        self._source.line(f"n, pos = {function}(buf, pos, n)")
        self._source.close()

    def _long_compact_length(self, nullable: bool) -> None:
        """Read a length that is likely to have two or three bytes, as that of a batch has."""
        source = self._source
        self._run.append(("B", "n"))
        self.flush()
        source.open("if n > 127:")
        source.line("n2 = buf[pos]")
        source.open("if n2 < 128:")
        source.line("n += n2 * 128 - 128")
        source.line("pos += 1")
        source.close()
        source.open("else:")
        source.line("n3 = buf[pos + 1]")
        source.open("if n3 < 128:")
        source.line("n += n2 * 128 + n3 * 16384 - 16512")
        source.line("pos += 2")
        source.close()
        source.open("else:")
        source.line("n, pos = read_rest(buf, pos, n)")
        source.close()
        source.close()
        source.close()
        if not nullable:
            source.open("elif not n:")
            source.line("negative_length(-1)")
            source.close()

    def _plain_length(self, code: str, nullable: bool) -> None:
        self._run.append((code, "n"))
        self.flush()
        self._source.open(f"if n < {-1 if nullable else 0}:")
        self._source.line("negative_length(n)")
        self._source.close()

    def _struct(self, cls: type[Struct], target: str, nullable: bool) -> None:
        source = self._source
        if not nullable:
            self.struct(cls, self._new(cls, target))
            return
        self._run.append(("b", "n"))
        self.flush()
        source.open("if n < 0:")
        source.line(f"{target} = None")
        source.close()
        source.open("else:")
        self.struct(cls, self._new(cls, target))
        self.flush()
        source.close()

    def _array(self, element: str | type[Struct], target: str, nullable: bool) -> None:
        source = self._source
        code = FIXED_CODES.get(element) if isinstance(element, str) else None
        if code:
            self._fixed_array(code, target, nullable)
            return
        if self._flexible:
            self._compact_length(nullable)
        else:
            self._plain_length("i", nullable)
        if nullable:
            source.open(f"if {'not n' if self._flexible else 'n < 0'}:")
            source.line(f"{target} = None")
            source.close()
            source.open("else:")
        if not self._flexible:
            self._check_plain_count(element)
        items = source.fresh("items")
        source.line(f"{items} = []")
        count = "n - 1" if self._flexible else "n"
        if isinstance(element, str):
            item = "item"
            source.open(f"for _ in range({count}):")
            self._value(element, item, False, self._flexible)
        else:
            # The loop makes the structs itself, which saves a call for each.
            item = source.fresh("o")
            new = f"repeat({source.bind(element.__name__, element)}, {count})"
            source.open(f"for {item} in map(new, {new}):")
            self.struct(element, item)
        self.flush()
        source.line(f"{items}.append({item})")
        source.close()
        source.line(f"{target} = tuple({items})")
        if nullable:
            source.close()

    def _check_plain_count(self, element: str | type[Struct]) -> None:
        """Refuse at once a count that cannot be, where one has four bytes to boast with."""
        if isinstance(element, str):
            smallest = 2 if element == "string" else 4
        else:
            smallest = smallest_size(element, self._version, self._flexible)
        assert smallest, "elements without a size could be claimed in any number"
        self._source.open("if n > 127:")
        self._source.line(f"check_count(buf, pos, n, {smallest})")
        self._source.close()

    def _fixed_array(self, code: str, target: str, nullable: bool) -> None:
        source = self._source
        table = source.bind(f"arrays_{code.replace('?', 't')}", varint.unpackers(code))
        size = struct.calcsize(code)
        self._run.append(("B" if self._flexible else "i", "n"))
        self.flush()
        if nullable:
            source.open(f"if n == {0 if self._flexible else -1}:")
            source.line(f"{target} = None")
            source.close()
        word = "elif" if nullable else "if"
        if self._flexible:
            source.open(f"{word} n < 128:")
            source.line(f"{target} = {table}[n](buf, pos)")
            source.line(f"pos += n * {size} - {size}")
            slow = "compact_array"
        else:
            source.open(f"{word} -1 < n < 127:")
            source.line(f"{target} = {table}[n + 1](buf, pos)")
            source.line(f"pos += n * {size}")
            slow = "plain_array"
        source.close()
        source.open("else:")
        source.line(f"{target}, pos = {slow}(buf, pos, n, {code!r})")
        source.close()

    def _tags(self, cls: type[Struct], name: str, *, known: bool) -> None:
        self._run.append(("B", "n"))
        self.flush()
        self._source.open("if n:")
        if known:
            self._tag_functions[cls] = None
            self._source.line(f"pos = tags_of_{cls.__name__}(buf, pos, n, {name})")
        else:
            self._source.line(f"{name}.unknown_tags, pos = read_unknown_tags(buf, pos, n)")
        self._source.close()

    def write_tag_functions(self) -> None:
        """Write the functions that read known tagged fields, and those they need in turn."""
        written: set[type[Struct]] = set()
        while todo := [cls for cls in self._tag_functions if cls not in written]:
            for cls in todo:
                self._write_tag_function(cls)
                written.add(cls)

    def _write_tag_function(self, cls: type[Struct]) -> None:
        source = self._source
        source.open(f"def tags_of_{cls.__name__}(buf, pos, n, o):")
        if not self._view and _has_records(cls):
            source.line("view = memoryview(buf)")
        source.open("if n > 127:")
        source.line("n, pos = read_rest(buf, pos, n)")
        source.close()
        source.line("unknown = []")
        source.line("tag = -1")
        source.open("for _ in range(n):")
        source.line("tag, tag_end, pos = read_tag(buf, pos, tag)")
        _, tagged, _ = fields_in(cls, self._version)
        for position, name in enumerate(tagged):
            source.open(f"{'elif' if position else 'if'} tag == {cls.FIELDS[name].tag}:")
            self._field(cls.FIELDS[name], f"o.{name}")
            self.flush()
            source.line("check_tag_end(pos, tag_end)")
            source.close()
        source.open("else:")
        source.line("unknown.append((tag, bytes(buf[pos:tag_end])))")
        source.line("pos = tag_end")
        source.close()
        source.close()
        source.line("o.unknown_tags = tuple(unknown)")
        source.line("return pos")
        source.close()
