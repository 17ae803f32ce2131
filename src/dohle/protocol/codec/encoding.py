"""Writes the source of encoders.

An encoder returns a list of chunks, each of them bytes or a view of bytes. Adjacent fixed-size
fields are one ``pack``, together with the length, count or marker that follows them; an array of a
fixed-size type is one more; record batches go into the list as they are. Tagged fields almost
always have their default: one condition tells, and then their section is the zero byte at the end
of a ``pack``.
"""

from __future__ import annotations

import struct

from dohle.protocol.codec import unsigned_varint as varint
from dohle.protocol.codec.compiler import (
    FIXED_CODES,
    SourceText,
    default_name,
    fields_in,
    has_records,
)
from dohle.protocol.errors import UnencodableMessage, UnsupportedVersion
from dohle.protocol.schema import Field, Message, Struct, join_small

#: In an encoder that works in steps: so many pieces are joined together.
_PIECES_PER_CHUNK = 512
#: More strings than that are looked at as a whole first.
_STRINGS_AT_ONCE_MIN = 64
#: From so many pieces on it is worthwhile to remember how an array was encoded.
_PIECES_REMEMBERED = 16


def write_encoder(source: SourceText, cls: type[Message], version: int, *, in_steps: bool) -> None:
    """Write ``encode(message)`` and the functions it calls.

    In steps it is the same but for a ``yield`` after each element of an array, and for joining
    small chunks whenever there are many. An array that is in several elements, the very same
    object, is encoded once: a long answer may say the same of many topics, in little memory.
    """
    source.names.update(
        join_small=join_small,
        unpackable=(struct.error, AttributeError, TypeError, ValueError),
        unencodable=unencodable,
        refuse=refuse,
        **{name: getattr(varint, name) for name in _HELPERS},
    )
    writer = _EncoderWriter(source, version, cls.FLEXIBLE.covers(version), in_steps)
    source.open("def encode(o):")
    source.open("try:")
    source.line("out = []")
    if in_steps:
        source.line("chunks = []")
        source.line("known = {}")
    writer.struct(cls, "o")
    writer.flush()
    if in_steps:
        source.line("yield")
        source.line("join_small(out, chunks)")
    source.line("return chunks" if in_steps else "return out")
    source.close()
    source.open("except unpackable as reason:")
    source.line(f"raise unencodable({cls.__name__!r}, {version}, reason) from reason")
    source.close()
    source.close()
    writer.write_tag_functions()


_HELPERS = (
    "check_bytes",
    "check_uuid",
    "pack_array",
    "short_strings",
    "string_length",
    "tagged_section",
    "uvarint",
)


def unencodable(name: str, version: int, reason: Exception) -> UnencodableMessage:
    """Say why a message cannot be encoded."""
    if isinstance(reason, AttributeError) and isinstance(reason.obj, type(None)):
        return UnencodableMessage(f"{name} version {version}: null where null is not allowed")
    return UnencodableMessage(f"{name} version {version}: {reason}")


def refuse(value: Struct, version: int) -> None:
    """Name the field whose value this version cannot carry."""
    for name, field in value.FIELDS.items():
        if field.versions.covers(version) or field.ignorable:
            continue
        if getattr(value, name) != field.default_value:
            raise UnsupportedVersion(
                f"{type(value).__name__}.{name} exists in versions {field.versions}: "
                f"version {version} cannot carry {getattr(value, name)!r}"
            )
    raise UnsupportedVersion(f"{type(value).__name__} has tagged fields only in flexible versions")


def _is_of_structs(element: str | type[Struct]) -> bool:
    """Tell whether an array is of structs without records, whose pieces can be joined."""
    return isinstance(element, type) and not has_records(element)


class _EncoderWriter:
    """Writes the statements of one encoder; they use ``n``, ``s`` and ``a`` as scratch names."""

    def __init__(self, source: SourceText, version: int, flexible: bool, in_steps: bool) -> None:
        self._source = source
        self._in_steps = in_steps
        self._version = version
        self._flexible = flexible
        self._run: list[tuple[str, str]] = []
        self._tag_functions: dict[type[Struct], None] = {}
        #: In how many arrays that which is written now is.
        self._depth = 0

    def flush(self, *more: tuple[str, str]) -> None:
        """Write the pending fixed-size fields, and the given ones, with one call."""
        run, self._run = [*self._run, *more], []
        self._append(run)

    def _append(self, run: list[tuple[str, str]]) -> None:
        if not run:
            return
        codes = "".join(code for code, _ in run)
        values = [value for _, value in run]
        if all(value.lstrip("-").isdigit() for value in values):
            packed = struct.pack(">" + codes, *map(int, values))
            self._source.line(f"out.append({packed!r})")
        else:
            self._source.line(f"out.append({self._source.pack(codes)}({', '.join(values)}))")

    def struct(self, cls: type[Struct], name: str) -> None:
        """Write the struct of that name; some of its fields may stay pending."""
        ordered, tagged, absent = fields_in(cls, self._version)
        self._refuse(cls, name, absent)
        for field_name in ordered:
            self._field(cls.FIELDS[field_name], f"{name}.{field_name}")
        if self._flexible:
            self._tags(cls, name, tagged)

    def _refuse(self, cls: type[Struct], name: str, absent: list[str]) -> None:
        """Refuse a value that must not get lost in a field that this version lacks."""
        wrong = [
            f"{name}.{field_name} != {self._default(cls, field_name)}"
            for field_name in absent
            if not cls.FIELDS[field_name].ignorable
        ]
        if not self._flexible:
            wrong.append(f"{name}.unknown_tags")
        if wrong:
            self._source.open(f"if {' or '.join(wrong)}:")
            self._source.line(f"refuse({name}, {self._version})")
            self._source.close()

    def _default(self, cls: type[Struct], field_name: str) -> str:
        value = cls.FIELDS[field_name].default_value
        return self._source.constant(value, default_name(cls, field_name))

    def _field(self, field: Field, value: str) -> None:
        nullable = field.nullable.covers(self._version)
        match field.kind:
            case "struct":
                assert isinstance(field.element, type)
                self._struct(field.element, value, nullable, tagged=field.tag is not None)
            case "array":
                assert field.element is not None
                self._array(field.element, value, nullable)
            case kind:
                self._value(kind, value, nullable, self._flexible and field.compact)

    def _value(self, kind: str, value: str, nullable: bool, compact: bool) -> None:
        if code := FIXED_CODES.get(kind):
            if kind == "uuid":
                self._source.line(f"check_uuid({value})")
            self._run.append((code, value))
            return
        text = kind == "string"
        self._source.line(f"s = {value}{'' if nullable or not text else '.encode()'}")
        if nullable:
            self._null("s", "B" if compact else "h" if text else "i", compact)
            if text:
                self._source.line("s = s.encode()")
        if not text:
            self._source.open("if type(s) is not bytes:")
            self._source.line("check_bytes(s)")
            self._source.close()
        if compact:
            self._compact_length("s", "string_length(n)" if text else "uvarint(n + 1)")
        else:
            self.flush(("h" if text else "i", "len(s)"))
        self._source.line("out.append(s)")
        if nullable:
            self._source.close()

    def _null(self, name: str, code: str, compact: bool) -> None:
        """Write null if it is null, and open the block for when it is not."""
        run = list(self._run)
        self._source.open(f"if {name} is None:")
        self._append([*run, (code, "0" if compact else "-1")])
        self._source.close()
        self._source.open("else:")

    def _compact_length(self, name: str, slow: str) -> None:
        self._source.line(f"n = len({name})")
        self._source.open("if n < 127:")
        self._append([*self._run, ("B", "n + 1")])
        self._source.close()
        self._source.open("else:")
        self.flush()
        self._source.line(f"out.append({slow})")
        self._source.close()

    def _struct(self, cls: type[Struct], value: str, nullable: bool, tagged: bool) -> None:
        """Write a struct; an int8, or in a tag an unsigned varint, says whether it is null."""
        source = self._source
        name = source.fresh("o")
        source.line(f"{name} = {value}")
        if not nullable:
            self.struct(cls, name)
            return
        self.flush()
        source.open(f"if {name} is None:")
        source.line(r"out.append(b'\x00')" if tagged else r"out.append(b'\xff')")
        source.close()
        source.open("else:")
        self._run.append(("b", "1"))
        self.struct(cls, name)
        self.flush()
        source.close()

    def _array(self, element: str | type[Struct], value: str, nullable: bool) -> None:
        source = self._source
        code = FIXED_CODES.get(element) if isinstance(element, str) else None
        source.line(f"a = {value}")
        if nullable:
            self._null("a", "B" if self._flexible else "i", self._flexible)
        if code:
            self._fixed_array(code)
        else:
            if self._flexible:
                self._compact_length("a", "uvarint(n + 1)")
            else:
                self.flush(("i", "len(a)"))
            may_be_known = self._in_steps and self._depth == 1 and _is_of_structs(element)
            if may_be_known:
                self._known_items(element)
            elif element == "string" and self._flexible and not self._in_steps:
                self._strings()
            else:
                self._items(element)
        if nullable:
            source.close()

    def _strings(self) -> None:
        """Write the strings of the array ``a``, very many at once if that can be."""
        source = self._source
        source.line(f"s = short_strings(a) if n > {_STRINGS_AT_ONCE_MIN} else None")
        source.open("if s is not None:")
        source.line("out.append(s)")
        source.close()
        source.open("else:")
        self._items("string")
        source.close()

    def _items(self, element: str | type[Struct]) -> None:
        """Write the elements of the array ``a``, one by one."""
        source = self._source
        item = source.fresh("o")
        source.open(f"for {item} in a:")
        self._depth += 1
        if isinstance(element, str):
            self._value(element, item, False, self._flexible)
        else:
            self.struct(element, item)
        self.flush()
        self._depth -= 1
        if self._in_steps:
            source.open(f"if len(out) > {_PIECES_PER_CHUNK}:")
            source.line("join_small(out, chunks)")
            source.line("out.clear()")
            source.close()
            source.line("yield")
        source.close()

    def _known_items(self, element: str | type[Struct]) -> None:
        """Write the same, or what is remembered of the very same array."""
        source = self._source
        source.line("array = a")
        source.line("piece = known.get(id(array))")
        source.open("if piece is not None:")
        source.line("out.append(piece)")
        source.close()
        source.open("else:")
        source.line("first, before = len(out), len(chunks)")
        self._items(element)
        # If some pieces were joined with those before them, it is not told what to remember.
        source.open(f"if len(out) - first > {_PIECES_REMEMBERED} and len(chunks) == before:")
        source.line("known[id(array)] = piece = b''.join(out[first:])")
        source.line("out[first:] = (piece,)")
        source.close()
        source.close()

    def _fixed_array(self, code: str) -> None:
        source = self._source
        suffix = code.replace("?", "t")
        if code == "16s":
            source.open("for s in a:")
            source.line("check_uuid(s)")
            source.close()
        if not self._flexible:
            self.flush(("i", "len(a)"))
            source.line(f"out.append(pack_array({code!r}, a))")
            return
        source.line("n = len(a)")
        source.open("if n < 127:")
        if self._run:
            table = source.bind(f"arrays_{suffix}", varint.packers(code))
            self._append([*self._run, ("B", "n + 1")])
            source.line(f"out.append({table}[n](*a))")
        else:
            table = source.bind(f"counted_arrays_{suffix}", varint.counted_packers(code))
            source.line(f"out.append({table}[n](n + 1, *a))")
        source.close()
        source.open("else:")
        self.flush()
        source.line(f"out.append(uvarint(n + 1) + pack_array({code!r}, a))")
        source.close()

    def _tags(self, cls: type[Struct], name: str, tagged: list[str]) -> None:
        source = self._source
        unset = [self._unset(cls, name, field_name) for field_name in tagged]
        source.open(f"if {' and '.join([*unset, f'not {name}.unknown_tags'])}:")
        self._append([*self._run, ("B", "0")])
        source.close()
        source.open("else:")
        self.flush()
        if tagged:
            self._tag_functions[cls] = None
            source.line(f"out.append(tags_of_{cls.__name__}({name}))")
        else:
            source.line(f"out.append(tagged_section([], {name}.unknown_tags, ()))")
        source.close()

    def _unset(self, cls: type[Struct], name: str, field_name: str) -> str:
        default = self._default(cls, field_name)
        # A default struct is shared, so almost always identical; the tag function compares fully.
        same = "is" if cls.FIELDS[field_name].kind == "struct" or default == "None" else "=="
        return f"{name}.{field_name} {same} {default}"

    def write_tag_functions(self) -> None:
        """Write the functions that write known tagged fields, and those they need in turn."""
        written: set[type[Struct]] = set()
        while todo := [cls for cls in self._tag_functions if cls not in written]:
            for cls in todo:
                self._write_tag_function(cls)
                written.add(cls)

    def _write_tag_function(self, cls: type[Struct]) -> None:
        source = self._source
        # Answers have nothing long in tagged fields: these are not told in steps.
        self._in_steps = False
        source.open(f"def tags_of_{cls.__name__}(o):")
        source.line("known = []")
        _, tagged, _ = fields_in(cls, self._version)
        for name in tagged:
            source.open(f"if o.{name} != {self._default(cls, name)}:")
            source.line("out = []")
            self._field(cls.FIELDS[name], f"o.{name}")
            self.flush()
            source.line(f"known.append(({cls.FIELDS[name].tag}, b''.join(out)))")
            source.close()
        reserved = tuple(cls.FIELDS[name].tag for name in tagged)
        source.line(f"return tagged_section(known, o.unknown_tags, {reserved})")
        source.close()
