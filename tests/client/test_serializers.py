"""Keys and values become bytes and come back."""

from __future__ import annotations

from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.client.serializers import (
    SerializationFailed,
    deserializer_of,
    serialized,
    serializer_of,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def there_and_back(name: Any, value: Any) -> Any:
    data = serialized(value, serializer_of(name, "value_serializer"), "value")
    read = deserializer_of(name, "value_deserializer")
    assert read is not None
    assert data is not None
    return read(data)


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1), st.text())
def test_numbers_and_texts_come_back(small: int, large: int, text: str) -> None:
    assert there_and_back("int", small) == small
    assert there_and_back("long", large) == there_and_back(int, large) == large
    assert there_and_back("str", text) == there_and_back(str, text) == text


@given(JSON.filter(lambda value: value is not None))
def test_json_comes_back(value: Any) -> None:
    assert there_and_back("json", value) == value


def test_the_bytes_are_those_of_kafkas_own_serializers() -> None:
    def bytes_of(name: str, value: Any) -> bytes | None:
        return serialized(value, serializer_of(name, "value_serializer"), "value")

    assert bytes_of("int", 258) == b"\x00\x00\x01\x02"
    assert bytes_of("long", -2) == b"\xff" * 7 + b"\xfe"
    assert bytes_of("double", 1.5) == b"\x3f\xf8" + bytes(6)
    assert bytes_of("str", "größe") == "größe".encode()
    assert bytes_of("json", {"a": ["ö", None]}) == '{"a":["ö",null]}'.encode()


def test_none_stays_none_whatever_the_serializer() -> None:
    assert serialized(None, serializer_of("json", "value_serializer"), "value") is None


class PydanticOrder(pydantic.BaseModel):
    item: str
    cups: int = 1


class MsgspecOrder(msgspec.Struct):
    item: str
    cups: int = 1


@pytest.mark.parametrize("kind", [PydanticOrder, MsgspecOrder])
def test_models_are_written_as_json_and_checked_when_they_are_read(kind: Any) -> None:
    assert there_and_back(kind, kind(item="coffee", cups=2)) == kind(item="coffee", cups=2)
    assert there_and_back(kind, kind(item="tea")).cups == 1
    read = deserializer_of(kind, "value_deserializer")
    assert read is not None
    with pytest.raises(ValueError, match="item"):
        read(b'{"cups":2}')


def test_a_function_is_taken_as_it_is() -> None:
    assert serialized("abc", serializer_of(lambda v: v.encode("utf-16-le"), "s"), "value") == (
        b"a\x00b\x00c\x00"
    )


def test_what_is_wrong_is_told_with_what_to_do() -> None:
    with pytest.raises(
        TypeError, match="value is a str: pass bytes, or give the producer a value_s"
    ):
        serialized("text", None, "value")
    with pytest.raises(SerializationFailed, match="key 'x' is not serialized: required argument"):
        serialized("x", serializer_of("int", "key_serializer"), "key")
    with pytest.raises(
        SerializationFailed, match="key_serializer returned a int: it must return b"
    ):
        serialized("x", len, "key")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="key_serializer is 'avro': choose from bytes, str"):
        serializer_of("avro", "key_serializer")
    with pytest.raises(TypeError, match="key_serializer is 5"):
        serializer_of(5, "key_serializer")  # type: ignore[arg-type]
