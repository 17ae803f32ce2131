"""Random messages by Hypothesis: any value that a field can carry in a given version.

``tame`` draws what the peers understand too: kio turns error codes into an enum and times into
datetimes, so that not every integer has a meaning for it. ``values`` draws something else
altogether, by the name and the kind of a field.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from hypothesis import strategies as st

from dohle.core.errors import ErrorCode
from dohle.protocol.apis import load_message, message_modules
from dohle.protocol.schema import Field, Message, Struct

#: Every message, by name; their fields are not known to a type checker here.
MESSAGES: dict[str, type[Any]] = {name: load_message(name) for name in sorted(message_modules())}

#: Every message in every version.
PAIRS = [
    (name, version)
    for name, cls in MESSAGES.items()
    for version in range(cls.VERSIONS.lowest, cls.VERSIONS.highest + 1)
]


def _integers(bits: int, *, signed: bool = True) -> st.SearchStrategy[int]:
    if signed:
        return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)
    return st.integers(0, (1 << bits) - 1)


_TEXT = st.one_of(st.text(max_size=6), st.sampled_from(["", "x" * 126, "x" * 127, "ä" * 200]))
_BINARY = st.one_of(st.binary(max_size=6), st.sampled_from([b"", b"x" * 126, b"x" * 127]))

PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "int8": _integers(8),
    "int16": _integers(16),
    "int32": _integers(32),
    "int64": _integers(64),
    "uint16": _integers(16, signed=False),
    "uint32": _integers(32, signed=False),
    "float64": st.floats(allow_nan=False),
    "uuid": st.binary(min_size=16, max_size=16),
    "string": _TEXT,
    "binary": _BINARY,
    "record_data": _BINARY,
}

_KNOWN_ERRORS = st.sampled_from([int(code) for code in ErrorCode])
_TAME_TIMES = st.integers(0, 1 << 31 - 1)


#: Draws the values of a field: of its name and kind.
Values = Callable[[str, str], st.SearchStrategy[Any]]


def any_values(name: str, kind: str) -> st.SearchStrategy[Any]:
    """Draw anything."""
    return PRIMITIVES[kind]


def tame_values(name: str, kind: str) -> st.SearchStrategy[Any]:
    """Draw what peers understand."""
    if name.endswith("error_code"):
        return _KNOWN_ERRORS
    if kind in ("int32", "int64") and ("time" in name or name.endswith("ms")):
        return _TAME_TIMES
    return PRIMITIVES[kind]


def messages(
    cls: type[Message], version: int, *, tame: bool = False, values: Values = any_values
) -> st.SearchStrategy[Message]:
    """Draw a message that the version can carry in full."""
    flexible = cls.FLEXIBLE.covers(version)
    return _structs(cls, version, flexible, tame_values if tame else values)


@cache
def _structs(
    cls: type[Any], version: int, flexible: bool, values: Values
) -> st.SearchStrategy[Any]:
    fields = {
        name: _field(name, field, version, flexible, values)
        for name, field in cls.FIELDS.items()
        if field.versions.covers(version)
    }
    if flexible and values is not tame_values:
        known = {field.tag for field in cls.FIELDS.values()}
        tags = st.sampled_from([tag for tag in (0, 1, 7, 127, 128, 2**31 - 1) if tag not in known])
        unknown = st.dictionaries(tags, st.binary(max_size=3), max_size=2)
        fields["unknown_tags"] = st.one_of(
            st.just(()), unknown.map(lambda tags: tuple(sorted(tags.items())))
        )
    return st.fixed_dictionaries(fields).map(lambda drawn: cls(**drawn))


def _field(
    name: str, field: Field, version: int, flexible: bool, values: Values
) -> st.SearchStrategy[Any]:
    if field.kind == "struct":
        drawn = _element(name, field.element, version, flexible, values)
    elif field.kind == "array":
        element = _element(name, field.element, version, flexible, values)
        drawn = st.lists(element, max_size=3).map(tuple)
    else:
        drawn = values(name, field.kind)
    if field.nullable.covers(version):
        drawn = st.one_of(st.none(), drawn)
    if field.tag is not None:
        drawn = st.one_of(st.just(field.default_value), drawn)
    return drawn


def _element(
    name: str,
    element: str | type[Struct] | None,
    version: int,
    flexible: bool,
    values: Values,
) -> st.SearchStrategy[Any]:
    if isinstance(element, str):
        return values(name, element)
    assert element is not None
    return _structs(element, version, flexible, values)
