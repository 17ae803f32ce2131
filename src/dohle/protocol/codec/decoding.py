"""Writes the source of decoders.

What makes them fast:

- Adjacent fixed-size fields, a *run*, are read by one ``unpack_from``, and the length, count or
  marker that follows is read by the same call: a compact length as one byte, with a slow path for
  128 and more.
- A field that is almost always null is a *gamble*: what follows it is read along with its length,
  and read again if it was not null after all.
- An array of a fixed-size type is one ``unpack_from`` with a struct made for its length.
- Structs are created by ``object.__new__``, those of an array many at once, and filled slot by
  slot.

What makes them safe: reading past the end raises by itself, except for slices; a slice that was too
short leaves ``pos`` past the end, so that the next read raises, or the check at the very end.
Counts of 127 and more are checked against the remaining bytes before anything is created, and at
most ``STRUCTS_AT_ONCE`` structs are created before the first of them is read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import repeat

from dohle.core.steps import finish
from dohle.protocol.codec import unsigned_varint as varint
from dohle.protocol.codec.compiler import (
    FIXED_CODES,
    SourceText,
    default_name,
    fields_in,
    has_records,
    smallest_size,
)
from dohle.protocol.errors import MalformedMessage
from dohle.protocol.schema import Field, Message, Struct

#: How many structs of an array may be created before the first of them is read.
STRUCTS_AT_ONCE = 1024


def write_decoder(
    source: SourceText, cls: type[Message], version: int, *, view: bool, in_steps: bool
) -> None:
    """Write ``decode(buf, pos)``, for memoryviews or for bytes, and the functions it calls.

    In steps it is the same but for a ``yield`` after each element of an array. It tells how
    many elements the arrays have that have begun since the last one: so very many are known of
    before they are read.
    """
    source.names.update(
        finish=finish,
        new=object.__new__,
        repeat=repeat,
        nonsense=(struct.error, IndexError, UnicodeDecodeError),
        malformed=malformed,
        made_as_read=made_as_read,
        **{name: getattr(varint, name) for name in _HELPERS},
    )
    writer = _DecoderWriter(source, version, cls.FLEXIBLE.covers(version), view, in_steps)
    source.open("def decode(buf, pos, held):" if in_steps else "def decode(buf, pos):")
    if in_steps:
        source.line("count = 0")
    source.open("try:")
    if not view and has_records(cls):
        source.line("view = memoryview(buf)")
    source.line(f"o = new({source.bind(cls.__name__, cls)})")
    if in_steps:
        source.line("held.append(o)")
    writer.struct(cls, "o")
    writer.flush()
    if in_steps:
        source.line("yield count")
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
    "SECOND_OF_THREE",
    "SECOND_OF_TWO",
    "THIRD",
    "check_count",
    "check_tag_end",
    "compact_array",
    "compact_count",
    "compact_length",
    "compact_string_length",
    "negative_length",
    "nullable_compact_array",
    "nullable_compact_count",
    "nullable_compact_length",
    "nullable_compact_string_length",
    "plain_array",
    "read_rest",
    "read_tag",
    "read_uvarint",
    "read_unknown_tags",
)


def malformed(name: str, version: int, pos: int, reason: object) -> MalformedMessage:
    """Say what was wrong with the input, and where."""
    if isinstance(reason, IndexError):
        reason = "it ends too early"
    return MalformedMessage(f"{name} version {version}, near byte {pos}: {reason}")


def made_as_read(cls: type[Struct], count: int, owner: Struct, field: str) -> Iterator[Struct]:
    """Create the structs of a long array as they are read, and set the field to all of them.

    Whoever stops before the end finds those made so far in the field.
    """
    made: list[Struct] = []
    setattr(owner, field, made)
    for start in range(0, count, STRUCTS_AT_ONCE):
        some = list(map(object.__new__, repeat(cls, min(STRUCTS_AT_ONCE, count - start))))
        made += some
        yield from some
    setattr(owner, field, tuple(made))


Run = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class _Gamble:
    """A field expected to be null, with the run before it; its length is read into ``m``."""

    head: Run
    target: str
    null: str
    rest: Callable[[], None]


class _DecoderWriter:
    """Writes the statements of one decoder; they use ``n``, ``m`` and ``end`` as scratch names."""

    def __init__(
        self, source: SourceText, version: int, flexible: bool, view: bool, in_steps: bool
    ) -> None:
        self._source = source
        self._in_steps = in_steps
        self._version = version
        self._flexible = flexible
        self._view = view
        self._run: Run = []
        self._gamble: _Gamble | None = None
        self._depth = 0
        self._tag_functions: dict[type[Struct], None] = {}

    def flush(self) -> None:
        """Read all pending fields."""
        run, self._run = self._run, []
        gamble, self._gamble = self._gamble, None
        if gamble is None:
            self._read(run)
        else:
            self._read_gamble(gamble, run)

    def _read(self, run: Run) -> None:
        if len(run) == 1 and run[0][0] == "B":
            self._source.line(f"{run[0][1]} = buf[pos]")
            self._source.line("pos += 1")
        elif run:
            self._source.line(f"pos += {self._unpack(run)}")

    def _unpack(self, run: Run) -> int:
        unpack, size = self._source.unpack("".join(code for code, _ in run))
        targets = ", ".join(target for _, target in run) + ("," if len(run) == 1 else "")
        self._source.line(f"{targets} = {unpack}(buf, pos)")
        return size

    def _read_gamble(self, gamble: _Gamble, run: Run) -> None:
        source = self._source
        code = gamble.head[-1][0]
        if not run:
            self._read([*gamble.head[:-1], (code, "n")])
            gamble.rest()
            return
        # What follows is there in any case, so this cannot read too far.
        size = self._unpack([*gamble.head, *run])
        source.open(f"if {gamble.null}:")
        source.line(f"{gamble.target} = None")
        source.line(f"pos += {size}")
        source.close()
        source.open("else:")
        source.line("n = m")
        source.line(f"pos += {struct.calcsize('>' + ''.join(code for code, _ in gamble.head))}")
        gamble.rest()
        self._read(run)
        source.close()

    def struct(self, cls: type[Struct], name: str) -> None:
        """Read the fields of an empty struct with this name; some of them may stay pending."""
        source = self._source
        self._depth += 1
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
        self._depth -= 1

    def _field(self, field: Field, target: str) -> None:
        nullable = field.nullable.covers(self._version)
        gamble = nullable and field.default is None
        match field.kind:
            case "struct":
                assert isinstance(field.element, type)
                self._struct(field.element, target, nullable, tagged=field.tag is not None)
            case "array":
                assert field.element is not None
                self._array(field.element, target, nullable)
            case "record_data" | "binary" if self._flexible and self._depth > 1:
                self._long(field.kind, target, nullable)
            case kind:
                compact = self._flexible and field.compact
                self._value(kind, target, nullable, compact, gamble)

    def _value(
        self, kind: str, target: str, nullable: bool, compact: bool, gamble: bool = False
    ) -> None:
        if code := FIXED_CODES.get(kind):
            self._run.append((code, target))
            return
        length = "string_length(" if kind == "string" else "length("

        def slice_it() -> None:
            self._slice(kind, target, "n - 1" if compact else "n")

        code = "B" if compact else "h" if kind == "string" else "i"
        self._counted(code, length, target, nullable, slice_it, gamble)

    def _slice(self, kind: str, target: str, length: str) -> None:
        if kind == "string":
            value = 'str(buf[pos:end], "utf-8")' if self._view else "buf[pos:end].decode()"
        elif kind == "binary":
            value = "buf[pos:end].tobytes()" if self._view else "buf[pos:end]"
        else:
            value = "buf[pos:end]" if self._view else "view[pos:end]"
        self._source.line(f"end = pos + {length}")
        self._source.line(f"{target} = {value}")
        self._source.line("pos = end")

    def _counted(
        self,
        code: str,
        slow: str,
        target: str,
        nullable: bool,
        body: Callable[[], None],
        gamble: bool,
    ) -> None:
        """Read a length or count into ``n``; then set null if it says so, else run the body."""
        source = self._source
        compact = code == "B"

        def rest() -> None:
            if compact:
                source.open(f"if n > 127{'' if nullable else ' or not n'}:")
                source.line(f"n, pos = {'nullable_' * nullable}compact_{slow}buf, pos, n)")
            else:
                source.open(f"if n < {-1 if nullable else 0}:")
                source.line("negative_length(n)")
            source.close()
            if not nullable:
                body()
                return
            source.open(f"if {'not n' if compact else 'n < 0'}:")
            source.line(f"{target} = None")
            source.close()
            source.open("else:")
            body()
            source.close()

        if gamble and self._gamble is None:
            null = "not m" if compact else "m == -1"
            self._gamble = _Gamble([*self._run, (code, "m")], target, null, rest)
            self._run = []
        else:
            self._run.append((code, "n"))
            self.flush()
            rest()

    def _long(self, kind: str, target: str, nullable: bool) -> None:
        """Read bytes whose length probably takes two or three bytes, as a batch's does.

        After a field of an inner struct come at least two tagged sections of a byte each. So it is
        safe to read three bytes for the length, whatever it is.
        """
        source = self._source
        self._run += [("B", "n"), ("B", "n2"), ("B", "n3")]
        self.flush()
        source.open("if n > 127:")
        source.open("if n2 < 128:")
        source.line("pos -= 1")
        source.line("n += SECOND_OF_TWO[n2]")
        source.close()
        source.open("elif n3 < 128:")
        source.line("n += SECOND_OF_THREE[n2] + THIRD[n3]")
        source.close()
        source.open("else:")
        source.line("n, pos = read_rest(buf, pos - 2, n)")
        source.line("n -= 1")
        source.close()
        source.open("if n < 0:")
        source.line("negative_length(n)")
        source.close()
        self._slice(kind, target, "n")
        source.close()
        source.open("elif n:")
        source.line("pos -= 2")
        self._slice(kind, target, "n - 1")
        source.close()
        source.open("else:")
        source.line("pos -= 2")
        source.line(f"{target} = None" if nullable else "negative_length(-1)")
        source.close()

    def _struct(self, cls: type[Struct], target: str, nullable: bool, tagged: bool) -> None:
        """Read a struct; an int8, or in a tag an unsigned varint, says whether it is null."""
        source = self._source
        if nullable:
            self._run.append(("b", "n"))
            self.flush()
            source.open("if not n:" if tagged else "if n < 0:")
            source.line(f"{target} = None")
            source.close()
            source.open("else:")
        name = source.fresh("o")
        source.line(f"{target} = {name} = new({source.bind(cls.__name__, cls)})")
        self.struct(cls, name)
        if nullable:
            self.flush()
            source.close()

    def _array(self, element: str | type[Struct], target: str, nullable: bool) -> None:
        code = FIXED_CODES.get(element) if isinstance(element, str) else None
        if code:
            self._fixed_array(code, target, nullable)
            return

        def items() -> None:
            if not self._flexible:
                source.open("if n > 127:")
                source.line(f"check_count(buf, pos, n, {smallest})")
                source.close()
            if isinstance(element, str):
                self._value_items(element, target)
            else:
                self._struct_items(element, target)

        source = self._source
        smallest = self._smallest(element)
        count = f"count({smallest}, "
        self._counted("B" if self._flexible else "i", count, target, nullable, items, nullable)

    def _smallest(self, element: str | type[Struct]) -> int:
        """Return the smallest size of an element, so that impossible counts can be refused."""
        if isinstance(element, str):
            return 1 if self._flexible else 2 if element == "string" else 4
        smallest = smallest_size(element, self._version, self._flexible)
        assert smallest, "elements without a size could be claimed in any number"
        return smallest

    def _value_items(self, kind: str, target: str) -> None:
        source = self._source
        self._count("n - 1" if self._flexible else "n")
        source.line(f"{target} = items = []")
        source.open(f"for _ in range({'n - 1' if self._flexible else 'n'}):")
        self._value(kind, "item", False, self._flexible)
        source.line("items.append(item)")
        self._end_step()
        source.close()
        source.line(f"{target} = tuple(items)")

    def _struct_items(self, cls: type[Struct], target: str) -> None:
        source = self._source
        name = source.fresh("o")
        bound = source.bind(cls.__name__, cls)
        # One element is common, and then creating the iterators costs more than using them.
        one, count = ("n == 2", "n - 1") if self._flexible else ("n == 1", "n")
        most = STRUCTS_AT_ONCE + 1 if self._flexible else STRUCTS_AT_ONCE
        owner, field = target.split(".")
        self._count(count)
        source.line(
            f"{target} = items = (new({bound}),) if {one} "
            f"else tuple(map(new, repeat({bound}, {count}))) if n <= {most} "
            f"else made_as_read({bound}, {count}, {owner}, {field!r})"
        )
        source.open(f"for {name} in items:")
        self.struct(cls, name)
        self.flush()
        self._end_step()
        source.close()

    def _end_step(self) -> None:
        if self._in_steps:
            self._source.line("yield count")
            self._source.line("count = 0")

    def _count(self, elements: str) -> None:
        """Have the elements of an array told by the next step."""
        if self._in_steps:
            self._source.line(f"count += {elements}")

    def _call(self, steps: str) -> str:
        """Return an expression for the result of a function that works in steps."""
        return f"yield from {steps}" if self._in_steps else f"finish({steps})"

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
            self._count("n - 1")
            slow = "nullable_compact_array" if nullable else "compact_array"
        else:
            source.open(f"{word} -1 < n < 127:")
            source.line(f"{target} = {table}[n + 1](buf, pos)")
            source.line(f"pos += n * {size}")
            self._count("n")
            slow = "plain_array"
        source.close()
        source.open("else:")
        source.line(f"{target}, pos = {self._call(f'{slow}(buf, pos, n, {code!r})')}")
        source.close()

    def _tags(self, cls: type[Struct], name: str, *, known: bool) -> None:
        source = self._source
        if known:
            self._tag_functions[cls] = None
            steps = "yield from " if self._in_steps else ""
            read = f"pos = {steps}tags_of_{cls.__name__}(buf, %s, {name})"
        else:
            read = f"{name}.unknown_tags, pos = {self._call('read_unknown_tags(buf, %s)')}"
        if self._run or self._gamble:
            self._run.append(("B", "n"))
            self.flush()
            source.open("if n:")
            source.line(read % "pos - 1")
            source.close()
        else:
            source.open("if buf[pos]:")
            source.line(read % "pos")
            source.close()
            source.open("else:")
            source.line("pos += 1")
            source.close()

    def write_tag_functions(self) -> None:
        """Write the functions that read known tagged fields, and those they need in turn."""
        written: set[type[Struct]] = set()
        while todo := [cls for cls in self._tag_functions if cls not in written]:
            for cls in todo:
                self._write_tag_function(cls)
                written.add(cls)

    def _write_tag_function(self, cls: type[Struct]) -> None:
        source = self._source
        source.open(f"def tags_of_{cls.__name__}(buf, pos, o):")
        if not self._view and has_records(cls):
            source.line("view = memoryview(buf)")
        if self._in_steps:
            source.line("count = 0")
        source.line("n, pos = read_uvarint(buf, pos)")
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
        self._count("1")
        source.line("pos = tag_end")
        source.close()
        self._end_step()
        source.close()
        source.line("o.unknown_tags = tuple(unknown)")
        source.line("return pos")
        source.close()
