"""What a config is: its name, type, default, limits and documentation, and how its text is parsed.

The tables (:mod:`dohle.core.config.topic`, :mod:`dohle.core.config.broker`) consist of
:class:`ConfigKey` rows; the parser of ``server.properties``, AlterConfigs, DescribeConfigs and the
command line's help all read them. A config of Kafka that does nothing here yet has a row too, which
says so: whoever mentions it is not refused. Values are parsed as Kafka parses them, and a refused
value is INVALID_CONFIG with Kafka's message, which tools match.

Every start reads the tables, even that of a command that ends at once. That is why values are named
tuples and plain classes here: a dataclass takes most of a millisecond to create.
"""

from __future__ import annotations

import math
from enum import Enum, IntEnum
from typing import Final, NamedTuple, TypeAlias

from dohle.core.errors import ErrorCode, KafkaError

#: How the documentation of a config begins that does nothing here.
NO_EFFECT: Final = "No effect in dohle"

#: A parsed value; a list is a tuple of strings, and None means not set.
ConfigValue: TypeAlias = bool | int | float | str | tuple[str, ...] | None


class ConfigType(IntEnum):
    """The types, by their code in a DescribeConfigs response."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class UpdateMode(Enum):
    """How a broker config may be changed while running. A topic's may always be changed."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Range:
    """A number from ``low`` to ``high`` inclusive, or the single number ``also``."""

    __slots__ = ("also", "high", "low")

    def __init__(self, low: float, high: float | None = None, *, also: int | None = None) -> None:
        self.low = low
        self.high = high
        self.also = also

    def check(self, name: str, value: ConfigValue) -> None:
        """Raise INVALID_CONFIG for a number out of range."""
        assert isinstance(value, int | float)
        below = value < self.low
        above = self.high is not None and value > self.high
        if value == self.also or not (below or above):
            return
        if self.also is not None:
            limits = f"between {self.low} and {self.high} or equal to {self.also}"
        else:
            limits = f"at least {self.low}" if below else f"no more than {self.high}"
        raise invalid_value(name, value, f"Value must be {limits}")

    def __str__(self) -> str:
        limits = f"[{self.low},...]" if self.high is None else f"[{self.low},...,{self.high}]"
        return limits if self.also is None else f"{limits} or {self.also}"


class OneOf:
    """One of a few words, spelled exactly like this unless ``ignore_case`` is set."""

    __slots__ = ("ignore_case", "words")

    def __init__(self, words: tuple[str, ...], *, ignore_case: bool = False) -> None:
        self.words = words
        self.ignore_case = ignore_case

    def check(self, name: str, value: ConfigValue) -> None:
        """Raise INVALID_CONFIG for any other word."""
        words = self.words
        if self.ignore_case and isinstance(value, str):
            value, words = value.lower(), tuple(map(str.lower, words))
        if value not in words:
            raise invalid_value(name, value, f"String must be one of: {', '.join(self.words)}")

    def __str__(self) -> str:
        return f"[{', '.join(self.words)}]"


class ListOf:
    """A list without duplicates and empty items; if ``words`` are given, of these words."""

    __slots__ = ("may_be_empty", "words")

    def __init__(self, words: tuple[str, ...] = (), *, may_be_empty: bool = False) -> None:
        self.words = words
        self.may_be_empty = may_be_empty

    def check(self, name: str, value: ConfigValue) -> None:
        """Raise INVALID_CONFIG for a list or an item that is not allowed."""
        assert isinstance(value, tuple)
        if not value and not self.may_be_empty:
            allowed = str(OneOf(self.words)) if self.words else "any non-empty value"
            raise _refusal(
                f"Configuration '{name}' must not be empty. Valid values include: {allowed}"
            )
        if len(set(value)) != len(value):
            raise _refusal(f"Configuration '{name}' values must not be duplicated.")
        if "" in value:
            raise _refusal(f"Configuration '{name}' values must not be empty.")
        if self.words:
            for item in value:
                OneOf(self.words).check(name, item)

    def __str__(self) -> str:
        return str(OneOf(self.words)) if self.words else ""


class ReplicaList:
    """Replicas, as ``partition:broker,...``, or ``*`` for all."""

    __slots__ = ()

    def check(self, name: str, value: ConfigValue) -> None:
        """Raise INVALID_CONFIG for an item of another form."""
        assert isinstance(value, tuple)
        if value != ("*",) and not all(map(_is_replica, value)):
            raise invalid_value(
                name,
                value,
                f"{name} must be the literal '*' or a list of replicas in the following format: "
                f"{self}",
            )

    def __str__(self) -> str:
        return "[partitionId]:[brokerId],[partitionId]:[brokerId],..."


class NotEmpty:
    """A text of at least one character."""

    __slots__ = ()

    def check(self, name: str, value: ConfigValue) -> None:
        """Raise INVALID_CONFIG for an empty text."""
        if not value:
            raise invalid_value(name, value, "String must be non-empty")

    def __str__(self) -> str:
        return "non-empty string"


#: The limits of a value beyond its type: ``check`` raises INVALID_CONFIG, ``str`` describes them.
Validator: TypeAlias = Range | OneOf | ListOf | ReplicaList | NotEmpty


class ConfigKey(NamedTuple):
    """One row of a table."""

    name: str
    type: ConfigType
    default: ConfigValue
    doc: str
    validator: Validator | None = None
    update_mode: UpdateMode = UpdateMode.READ_ONLY
    is_sensitive: bool = False
    #: For tests: Kafka does not list it unless it is set.
    is_internal: bool = False
    #: For a topic config: the broker configs that supply it when the topic does not, in order.
    synonyms: tuple[str, ...] = ()
    #: Why it does nothing here; "" if it does what Kafka's does.
    no_effect: str = ""

    def parse(self, text: str) -> ConfigValue:
        """Parse a text as Java does, and check the value."""
        value = _PARSERS[self.type](self.name, text, text.strip(_JAVA_WHITE))
        if self.validator is not None:
            self.validator.check(self.name, value)
        return value

    def format(self, value: ConfigValue) -> str | None:
        """Return a value's text as DescribeConfigs shows it; None if it is not set."""
        match value:
            case None:
                return None
            case bool():
                return "true" if value else "false"
            case tuple():
                return ",".join(value)
            case float():
                return java_double(value)
            case _:
                return str(value)

    @property
    def default_text(self) -> str | None:
        """The default's text; None if there is no default."""
        return self.format(self.default)


class ConfigValues(dict[str, ConfigValue]):
    """Values by name, with typed access."""

    __slots__ = ()

    def get_int(self, name: str) -> int:
        """Return a value of type INT, SHORT or LONG."""
        value = self[name]
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        raise TypeError(f"{name} is {value!r}, not a number")

    def get_float(self, name: str) -> float:
        """Return a value of type DOUBLE."""
        value = self[name]
        if isinstance(value, float):
            return value
        raise TypeError(f"{name} is not a number")

    def get_bool(self, name: str) -> bool:
        """Return a value of type BOOLEAN."""
        value = self[name]
        if isinstance(value, bool):
            return value
        raise TypeError(f"{name} is {value!r}, neither true nor false")

    def get_str(self, name: str) -> str:
        """Return a value of type STRING."""
        value = self[name]
        if isinstance(value, str):
            return value
        raise TypeError(f"{name} is {value!r}, not a text")

    def get_list(self, name: str) -> tuple[str, ...]:
        """Return a value of type LIST."""
        value = self[name]
        if isinstance(value, tuple):
            return value
        raise TypeError(f"{name} is {value!r}, not a list")


def invalid_value(name: str, value: ConfigValue, reason: str) -> KafkaError:
    """Return the error for an invalid value, in Kafka's wording."""
    match value:
        case bool():
            shown = "true" if value else "false"
        case tuple():
            shown = f"[{', '.join(value)}]"
        case _:
            shown = str(value)
    return _refusal(f"Invalid value {shown} for configuration {name}: {reason}")


def java_double(value: float) -> str:
    """Return a number as Java's Double.toString writes it: 1.0E7 is the least with an exponent."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    digits = repr(value).partition("e")[0].replace(".", "").strip("-0")
    mantissa, _, exponent = f"{value:.{max(len(digits) - 1, 1)}e}".partition("e")
    return f"{mantissa}E{int(exponent)}"


def _is_replica(item: str) -> bool:
    """Tell whether it is ``partition:broker``; as in Kafka, an empty item is none and all right."""
    partition, colon, broker = item.partition(":")
    return not item or (colon == ":" and _is_number(partition) and _is_number(broker))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _refusal(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)


# What String.trim() removes.
_JAVA_WHITE: Final = "".join(map(chr, range(33)))
# What the pattern \s removes around the commas of a list.
_JAVA_SPACE: Final = " \t\n\v\f\r"
_BITS: Final = {"SHORT": 16, "INT": 32, "LONG": 64}


def _parse_boolean(name: str, text: str, trimmed: str) -> ConfigValue:
    match trimmed.lower():
        case "true":
            return True
        case "false":
            return False
        case _:
            raise invalid_value(name, text, "Expected value to be either true or false")


def _parse_integer(name: str, text: str, trimmed: str, type_name: str) -> ConfigValue:
    digits = trimmed[1:] if trimmed[:1] in ("+", "-") else trimmed
    # int() accepts more than Java does, and is slow for a very long text.
    if digits.isascii() and digits.isdigit() and len(digits.lstrip("0")) < 20:
        number, limit = int(trimmed), 1 << (_BITS[type_name] - 1)
        if -limit <= number < limit:
            return number
    raise invalid_value(name, text, f"Not a number of type {type_name}")


def _parse_short(name: str, text: str, trimmed: str) -> ConfigValue:
    return _parse_integer(name, text, trimmed, "SHORT")


def _parse_int(name: str, text: str, trimmed: str) -> ConfigValue:
    return _parse_integer(name, text, trimmed, "INT")


def _parse_long(name: str, text: str, trimmed: str) -> ConfigValue:
    return _parse_integer(name, text, trimmed, "LONG")


def _parse_double(name: str, text: str, trimmed: str) -> ConfigValue:
    try:
        number = float(trimmed)
    except ValueError:
        number = math.nan
    if "_" in trimmed or not math.isfinite(number):
        raise invalid_value(name, text, "Not a number of type DOUBLE")
    return number


def _parse_list(_name: str, _text: str, trimmed: str) -> ConfigValue:
    return tuple(item.strip(_JAVA_SPACE) for item in trimmed.split(",")) if trimmed else ()


def _parse_text(_name: str, _text: str, trimmed: str) -> ConfigValue:
    return trimmed


_PARSERS: Final = {
    ConfigType.BOOLEAN: _parse_boolean,
    ConfigType.STRING: _parse_text,
    ConfigType.INT: _parse_int,
    ConfigType.SHORT: _parse_short,
    ConfigType.LONG: _parse_long,
    ConfigType.DOUBLE: _parse_double,
    ConfigType.LIST: _parse_list,
    ConfigType.CLASS: _parse_text,
    ConfigType.PASSWORD: _parse_text,
}
