"""Turns (message, version) into a flat decode and a flat encode function, on first use.

The functions are written as source text and compiled by ``exec``, as dataclasses do. All structs of
a message are inlined in one function, except tagged fields, which are rare and get a function of
their own. :mod:`~dohle.protocol.codec.decoding` and :mod:`~dohle.protocol.codec.encoding` write the
text; this file holds what both need.

To read what is compiled::

    print(decoder_source(MetadataResponse, 12).text())
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from dohle.protocol.schema import Field, Message, Struct

#: The struct codes of the fixed-size types.
FIXED_CODES = {
    "boolean": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "float64": "d",
    "uuid": "16s",
}


class SourceText:
    """Source text under construction, with the names it refers to."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self._lines: list[str] = []
        self._indent = 0
        self._counter = 0

    def line(self, text: str) -> None:
        """Add a line."""
        self._lines.append("    " * self._indent + text)

    def open(self, text: str) -> None:
        """Add a line that opens a block."""
        self.line(text)
        self._indent += 1

    def close(self) -> None:
        """Close a block."""
        self._indent -= 1

    def fresh(self, prefix: str) -> str:
        """Return a name that is not in use."""
        self._counter += 1
        return f"{prefix}{self._counter}"

    def bind(self, name: str, value: object) -> str:
        """Bind a value to a name and return the name."""
        bound = self.names.setdefault(name, value)
        assert bound is value, f"{name} means two things"
        return name

    def unpack(self, codes: str) -> tuple[str, int]:
        """Bind the unpacker of a run of fixed-size fields; return its name and the run's size."""
        run = struct.Struct(">" + codes)
        name = "unpack_" + codes.replace("?", "t")
        self.names.setdefault(name, run.unpack_from)
        return name, run.size

    def pack(self, codes: str) -> str:
        """Bind the packer of a run of fixed-size fields; return its name."""
        name = "pack_" + codes.replace("?", "t")
        if name not in self.names:
            self.names[name] = struct.Struct(">" + codes).pack
        return name

    def constant(self, value: object, name: str) -> str:
        """Return an expression for a default value."""
        if value is None or isinstance(value, bool | int | float | str | bytes) or value == ():
            return repr(value)
        return self.bind(name, value)

    def text(self) -> str:
        """Return the whole text."""
        return "\n".join(self._lines) + "\n"

    def compile(self, function: str, title: str) -> Callable[..., Any]:
        """Compile the text and return one of its functions."""
        exec(compile(self.text(), f"<{title}>", "exec"), self.names)
        compiled: Callable[..., Any] = self.names[function]
        return compiled


def fields_in(cls: type[Struct], version: int) -> tuple[list[str], list[str], list[str]]:
    """Split the names of a struct's fields into the ordered, the tagged and the absent ones."""
    ordered: list[str] = []
    tagged: list[str] = []
    absent: list[str] = []
    for name, field in cls.FIELDS.items():
        if not field.versions.covers(version):
            absent.append(name)
        elif field.tag is not None:
            tagged.append(name)
        else:
            ordered.append(name)
    tagged.sort(key=lambda name: cls.FIELDS[name].tag or 0)
    return ordered, tagged, absent


def default_name(cls: type[Struct], name: str) -> str:
    """Return the name to which a field's default is bound."""
    return f"default_{cls.__name__}_{name}"


def has_records(cls: type[Struct]) -> bool:
    """Tell whether there may be record batches in a struct."""
    return any(
        field.kind == "record_data"
        or (isinstance(field.element, type) and has_records(field.element))
        for field in cls.FIELDS.values()
    )


def smallest_size(cls: type[Struct], version: int, flexible: bool) -> int:
    """Return the smallest number of bytes a struct can take."""
    ordered, _, _ = fields_in(cls, version)
    return sum(_smallest_field(cls.FIELDS[name], version, flexible) for name in ordered) + flexible


def _smallest_field(field: Field, version: int, flexible: bool) -> int:
    code = FIXED_CODES.get(field.kind)
    if code is not None:
        return struct.calcsize(">" + code)
    if field.kind == "struct":
        if field.nullable.covers(version):
            return 1
        assert isinstance(field.element, type)
        return smallest_size(field.element, version, flexible)
    if flexible and field.compact:
        return 1
    return 2 if field.kind == "string" else 4


def compile_init(cls: type[Struct]) -> Callable[..., None]:
    """Compile the constructor: keywords only, every field with its default."""
    source = SourceText()
    defaults = {
        name: source.constant(field.default_value, default_name(cls, name))
        for name, field in cls.FIELDS.items()
    }
    parameters = [f"{name}={default}" for name, default in defaults.items()]
    source.open(f"def __init__(self, *, {', '.join([*parameters, 'unknown_tags=()'])}):")
    for name in (*defaults, "unknown_tags"):
        source.line(f"self.{name} = {name}")
    return source.compile("__init__", f"{cls.__name__} constructor")


def compile_decoder(
    cls: type[Message], version: int, *, view: bool, in_steps: bool = False
) -> Callable[..., Any]:
    """Compile the decoder of one version, for memoryviews or for bytes."""
    return decoder_source(cls, version, view=view, in_steps=in_steps).compile(
        "decode", f"{cls.__name__} version {version} decoder"
    )


def compile_encoder(
    cls: type[Message], version: int, *, in_steps: bool = False
) -> Callable[..., Any]:
    """Compile the encoder of one version."""
    return encoder_source(cls, version, in_steps=in_steps).compile(
        "encode", f"{cls.__name__} version {version} encoder"
    )


def decoder_source(
    cls: type[Message], version: int, *, view: bool = False, in_steps: bool = False
) -> SourceText:
    """Write the decoder of one version."""
    from dohle.protocol.codec.decoding import write_decoder

    source = SourceText()
    write_decoder(source, cls, version, view=view, in_steps=in_steps)
    return source


def encoder_source(cls: type[Message], version: int, *, in_steps: bool = False) -> SourceText:
    """Write the encoder of one version."""
    from dohle.protocol.codec.encoding import write_encoder

    source = SourceText()
    write_encoder(source, cls, version, in_steps=in_steps)
    return source
