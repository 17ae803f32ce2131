"""Values of settings, as users write them: ``codec="gzip"``, ``acks="all"``, or "true" in a file.

A value of the declared type is taken as it is, a word for it is understood, and everything else is
refused with a sentence when the settings are created.
"""

from __future__ import annotations

from enum import Enum
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

#: The types of the fields of each kind of settings: to find them out takes a while.
_TYPES: dict[type[Any], dict[str, Any]] = {}
_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
#: What librdkafka and Java's clients call values that have another name here.
_OTHER_WORDS = {
    ("acks", "all"): -1,
    ("auto_offset_reset", "smallest"): "earliest",
    ("auto_offset_reset", "beginning"): "earliest",
    ("auto_offset_reset", "largest"): "latest",
    ("auto_offset_reset", "end"): "latest",
    ("auto_offset_reset", "error"): "none",
}


_NUMBER = "a whole number"
#: Numbers that are a choice.
_CHOICES = {"acks": "0, 1 or -1 (all)"}


def take_words(config: Any) -> None:
    """Put the values that words mean in the place of those words, in a frozen dataclass."""
    for name, kind in _types_of(config).items():
        given = getattr(config, name)
        meant = understand(name, given, kind)
        if meant is not given:
            object.__setattr__(config, name, meant)


def _types_of(config: Any) -> dict[str, Any]:
    kind = type(config)
    known = _TYPES.get(kind)
    if known is None:
        known = _TYPES[kind] = get_type_hints(kind)
    return known


def understand(name: str, value: Any, kind: Any) -> Any:
    """Return a value of the type, or raise what is wrong with it."""
    if type(value) is kind:
        return value
    if isinstance(kind, UnionType):
        kinds = get_args(kind)
        if value is None and NoneType in kinds:
            return value
        kind = next(each for each in kinds if each is not NoneType)
    if isinstance(value, str):
        value = _OTHER_WORDS.get((name, value.strip().lower()), value)
    if kind is bool:
        return _truth(name, value)
    if kind is int:
        return _number(name, value)
    if kind is str:
        if not isinstance(value, str):
            raise TypeError(f"{name} is {value!r}: it must be a string")
        return value
    if get_origin(kind) is tuple and get_args(kind)[0] is str:
        return _words(name, value)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _member(name, value, kind)
    return value


def _truth(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = value.strip().lower() if isinstance(value, str) else ""
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise TypeError(f"{name} is {value!r}: it must be True or False")


def _number(name: str, value: Any) -> int:
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            raise ValueError(
                f"{name} is {value!r}: it must be {_CHOICES.get(name, _NUMBER)}"
            ) from None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}: it must be {_CHOICES.get(name, _NUMBER)}")
    return value


def _words(name: str, value: Any) -> tuple[str, ...]:
    words = value.split(",") if isinstance(value, str) else value
    try:
        found = tuple(word.strip() for word in words)
    except (AttributeError, TypeError):
        raise TypeError(f"{name} is {value!r}: it must be a list of names") from None
    return found


def _member(name: str, value: Any, kind: type[Enum]) -> Enum:
    if isinstance(value, kind):
        return value
    for member in kind:
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if (is_number and member.value == value) or (
            isinstance(value, str) and member.name.lower() == value.strip().lower()
        ):
            return member
    choices = ", ".join(member.name.lower() for member in kind)
    raise ValueError(f"{name} is {value!r}: choose from {choices}")
