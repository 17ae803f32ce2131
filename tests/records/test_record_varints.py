"""Variable-length integers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.records.errors import InvalidRecord
from dohle.records.varint import (
    encode_varint,
    read_varint,
    read_varlong,
)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (8191, "fe7f"),
        (-8192, "ff7f"),
        (8192, "808001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
    ],
)
def test_known_values(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded
    assert read_varint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)
    assert read_varlong(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


@given(value=st.integers(-(2**31), 2**31 - 1), before=st.binary(max_size=3))
def test_varints_round_trip(value: int, before: bytes) -> None:
    data = before + encode_varint(value)
    assert read_varint(data, len(before)) == (value, len(data))
    assert read_varint(data + b"\xff", len(before)) == (value, len(data))


@given(value=st.integers(-(2**63), 2**63 - 1))
def test_varlongs_round_trip(value: int) -> None:
    data = encode_varint(value)
    assert len(data) <= 10
    assert read_varlong(data, 0) == (value, len(data))


@given(value=st.integers(-(2**31), 2**31 - 1))
def test_a_truncated_varint_is_refused(value: int) -> None:
    data = encode_varint(value)
    for end in range(len(data)):
        for read in (read_varint, read_varlong):
            with pytest.raises(InvalidRecord, match="runs past"):
                read(data[:end], 0)


def test_a_varint_that_does_not_end_is_refused() -> None:
    with pytest.raises(InvalidRecord, match="does not end"):
        read_varint(b"\xff" * 20, 0)
    with pytest.raises(InvalidRecord, match="does not end"):
        read_varlong(b"\xff" * 20, 0)


def test_a_value_beyond_its_bits_is_refused() -> None:
    with pytest.raises(InvalidRecord, match="32 bits"):
        read_varint(b"\xff\xff\xff\xff\x1f", 0)
    with pytest.raises(InvalidRecord, match="64 bits"):
        read_varlong(b"\xff" * 9 + b"\x02", 0)
