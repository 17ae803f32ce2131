"""Random messages by Hypothesis: any value that a field can carry in a given version.

``tame`` draws what the peers understand too: kio turns error codes into an enum and times into
datetimes, so that not every integer has a meaning for it.
"""

from __future__ import annotations

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


def messages(cls: type[Message], version: int, *, tame: bool = False) -> st.SearchStrategy[Message]:
    """Draw a message that the version can carry in full."""
    return _structs(cls, version, cls.FLEXIBLE.covers(version), tame)


@cache
def _structs(cls: type[Any], version: int, flexible: bool, tame: bool) -> st.SearchStrategy[Any]:
    fields = {
        name: _values(name, field, version, flexible, tame)
        for name, field in cls.FIELDS.items()
        if field.versions.covers(version)
    }
    if flexible and not tame:
        known = {field.tag for field in cls.FIELDS.values()}
        tags = st.sampled_from([tag for tag in (0, 1, 7, 127, 128, 2**31 - 1) if tag not in known])
        unknown = st.dictionaries(tags, st.binary(max_size=3), max_size=2)
        fields["unknown_tags"] = st.one_of(
            st.just(()), unknown.map(lambda tags: tuple(sorted(tags.items())))
        )
    return st.fixed_dictionaries(fields).map(lambda values: cls(**values))


def _values(
    name: str, field: Field, version: int, flexible: bool, tame: bool
) -> st.SearchStrategy[Any]:
    if field.kind == "struct":
        values = _structs(field.element, version, flexible, tame)
    elif field.kind == "array":
        values = st.lists(_elements(field.element, version, flexible, tame), max_size=3).map(tuple)
    elif tame and name.endswith("error_code"):
        values = _KNOWN_ERRORS
    elif tame and field.kind in ("int32", "int64") and ("time" in name or name.endswith("ms")):
        values = _TAME_TIMES
    else:
        values = PRIMITIVES[field.kind]
    if field.nullable.covers(version):
        values = st.one_of(st.none(), values)
    if field.tag is not None:
        values = st.one_of(st.just(field.default_value), values)
    return values


def _elements(
    element: str | type[Struct] | None, version: int, flexible: bool, tame: bool
) -> st.SearchStrategy[Any]:
    if isinstance(element, str):
        return PRIMITIVES[element]
    assert element is not None
    return _structs(element, version, flexible, tame)
