from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dohle.core.config.definition import (
    ConfigKey,
    ConfigType,
    ConfigValue,
    ConfigValues,
    ListOf,
    OneOf,
    Range,
)
from dohle.core.errors import MESSAGE_CHARACTERS_MAX, ErrorCode, KafkaError
from dohle.core.texts import shorten


def _key(
    type_: ConfigType, validator: Range | OneOf | ListOf | None = None, default: ConfigValue = None
) -> ConfigKey:
    return ConfigKey("x.y", type_, default, "A test.", validator)


def _refusal(key: ConfigKey, text: str) -> str:
    with pytest.raises(KafkaError) as caught:
        key.parse(text)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    message: str = caught.value.args[0]
    return message


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (ConfigType.BOOLEAN, " TRUE\n", True),
        (ConfigType.BOOLEAN, "False", False),
        (ConfigType.STRING, "\t a b ", "a b"),
        (ConfigType.PASSWORD, " secret ", "secret"),
        (ConfigType.CLASS, "a.B", "a.B"),
        (ConfigType.SHORT, "-32768", -32768),
        (ConfigType.INT, " +007 ", 7),
        (ConfigType.INT, "2147483647", 2**31 - 1),
        (ConfigType.LONG, "-9223372036854775808", -(2**63)),
        (ConfigType.LONG, "0" * 40 + "5", 5),
        (ConfigType.DOUBLE, "0.5", 0.5),
        (ConfigType.DOUBLE, "1e-3", 0.001),
        (ConfigType.LIST, "", ()),
        (ConfigType.LIST, "  ", ()),
        (ConfigType.LIST, "a", ("a",)),
        (ConfigType.LIST, " a , b,c\t", ("a", "b", "c")),
        (ConfigType.LIST, "a,,b,", ("a", "", "b", "")),
    ],
)
def test_a_text_is_read_as_java_reads_it(type_: ConfigType, text: str, value: ConfigValue) -> None:
    parsed = _key(type_).parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("type_", "text", "reason"),
    [
        (ConfigType.BOOLEAN, "yes", "Expected value to be either true or false"),
        (ConfigType.BOOLEAN, "", "Expected value to be either true or false"),
        (ConfigType.SHORT, "32768", "Not a number of type SHORT"),
        (ConfigType.INT, "2147483648", "Not a number of type INT"),
        (ConfigType.INT, "1_000", "Not a number of type INT"),
        (ConfigType.INT, "1.0", "Not a number of type INT"),
        (ConfigType.INT, "", "Not a number of type INT"),
        (ConfigType.INT, "+", "Not a number of type INT"),
        (ConfigType.INT, "- 1", "Not a number of type INT"),
        (ConfigType.INT, "²", "Not a number of type INT"),
        (ConfigType.LONG, "9223372036854775808", "Not a number of type LONG"),
        (ConfigType.LONG, "9" * 10_000, "Not a number of type LONG"),
        (ConfigType.DOUBLE, "1_0.0", "Not a number of type DOUBLE"),
        (ConfigType.DOUBLE, "half", "Not a number of type DOUBLE"),
        (ConfigType.DOUBLE, "nan", "Not a number of type DOUBLE"),
    ],
)
def test_a_text_of_another_type_is_refused_with_its_name(
    type_: ConfigType, text: str, reason: str
) -> None:
    expected = f"Invalid value {text} for configuration x.y: {reason}"
    assert _refusal(_key(type_), text) == shorten(expected, MESSAGE_CHARACTERS_MAX)


@pytest.mark.parametrize(
    ("validator", "good", "bad", "reason"),
    [
        (Range(1), ["1", "99"], "0", "Value must be at least 1"),
        (Range(1, 17), ["1", "17"], "18", "Value must be no more than 17"),
        (Range(1, 17), [], "0", "Value must be at least 1"),
        (Range(1, 9, also=-1), ["-1", "9"], "0", "Value must be between 1 and 9 or equal to -1"),
        (Range(1, 9, also=-1), [], "10", "Value must be between 1 and 9 or equal to -1"),
    ],
)
def test_a_number_outside_its_limits_is_refused_with_the_limits(
    validator: Range, good: list[str], bad: str, reason: str
) -> None:
    key = _key(ConfigType.INT, validator)
    for text in good:
        assert key.parse(text) == int(text)
    assert _refusal(key, bad) == f"Invalid value {bad} for configuration x.y: {reason}"


def test_a_word_that_is_not_one_of_the_allowed_is_refused_with_them() -> None:
    key = _key(ConfigType.STRING, OneOf(("a", "b")))
    assert key.parse(" b ") == "b"
    assert (
        _refusal(key, "B") == "Invalid value B for configuration x.y: String must be one of: a, b"
    )


@pytest.mark.parametrize(
    ("validator", "text", "message"),
    [
        (
            ListOf(("a", "b"), may_be_empty=True),
            "a,c",
            "Invalid value c for configuration x.y: String must be one of: a, b",
        ),
        (ListOf(("a", "b")), "b,b", "Configuration 'x.y' values must not be duplicated."),
        (ListOf(), "b,,c", "Configuration 'x.y' values must not be empty."),
        (
            ListOf(("a", "b")),
            "",
            "Configuration 'x.y' must not be empty. Valid values include: [a, b]",
        ),
        (
            ListOf(),
            "",
            "Configuration 'x.y' must not be empty. Valid values include: any non-empty value",
        ),
    ],
)
def test_a_list_is_refused_for_its_items(validator: ListOf, text: str, message: str) -> None:
    assert _refusal(_key(ConfigType.LIST, validator), text) == message


def test_a_list_may_be_empty_where_that_means_something() -> None:
    assert _key(ConfigType.LIST, ListOf(("a",), may_be_empty=True)).parse("") == ()


@pytest.mark.parametrize(
    ("validator", "text"),
    [
        (Range(1), "[1,...]"),
        (Range(1, 17), "[1,...,17]"),
        (Range(1, 9, also=-1), "[1,...,9] or -1"),
        (OneOf(("a", "b")), "[a, b]"),
        (ListOf(("a", "b")), "[a, b]"),
        (ListOf(), ""),
    ],
)
def test_what_is_allowed_can_be_shown(validator: Range | OneOf | ListOf, text: str) -> None:
    assert str(validator) == text


@pytest.mark.parametrize(
    ("type_", "value", "text"),
    [
        (ConfigType.BOOLEAN, True, "true"),
        (ConfigType.BOOLEAN, False, "false"),
        (ConfigType.LONG, -1, "-1"),
        (ConfigType.DOUBLE, 0.5, "0.5"),
        (ConfigType.LIST, ("a", "b"), "a,b"),
        (ConfigType.LIST, (), ""),
        (ConfigType.STRING, "a b", "a b"),
        (ConfigType.STRING, None, None),
    ],
)
def test_a_value_is_shown_as_kafka_shows_it(
    type_: ConfigType, value: ConfigValue, text: str | None
) -> None:
    assert _key(type_).format(value) == text
    assert _key(type_, default=value).default_text == text


@given(st.integers())
def test_a_number_is_read_back_as_shown_if_java_can_hold_it(number: int) -> None:
    key = _key(ConfigType.LONG)
    text = key.format(number)
    assert text is not None
    if -(2**63) <= number < 2**63:
        assert key.parse(text) == number
    else:
        _refusal(key, text)


@given(st.sampled_from([one for one in ConfigType if one is not ConfigType.UNKNOWN]), st.text())
@example(ConfigType.LIST, "\xa0")
@example(ConfigType.LIST, "a \x01, \x1f")
def test_any_text_is_read_or_refused(type_: ConfigType, text: str) -> None:
    key = _key(type_)
    try:
        value = key.parse(text)
    except KafkaError:
        return
    shown = key.format(value)
    assert shown is not None
    assert key.parse(shown) == value


def test_values_are_given_out_by_their_type() -> None:
    values = ConfigValues(number=1, flag=True, text="a", items=("a",), missing=None)
    assert values.get_int("number") == 1
    assert values.get_bool("flag") is True
    assert values.get_str("text") == "a"
    assert values.get_list("items") == ("a",)
    for access in (values.get_int, values.get_bool, values.get_str, values.get_list):
        with pytest.raises(TypeError, match="missing is None"):
            access("missing")
    with pytest.raises(TypeError, match="flag is True, not a number"):
        values.get_int("flag")
