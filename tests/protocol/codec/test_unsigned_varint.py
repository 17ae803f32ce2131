"""Unsigned varints: both directions, and the limits."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.protocol.codec.unsigned_varint import read_uvarint, uvarint
from dohle.protocol.errors import UnencodableMessage
from tests.protocol.reference_codec import varint


@given(st.integers(0, 2**31 - 1))
def test_varints_round_trip(value: int) -> None:
    encoded = uvarint(value)
    assert encoded == varint(value)
    assert read_uvarint(b"a" + encoded + b"b", 1) == (value, 1 + len(encoded))


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, b"\0"),
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (300, b"\xac\x02"),
        (16383, b"\xff\x7f"),
        (16384, b"\x80\x80\x01"),
        (2**31 - 1, b"\xff\xff\xff\xff\x07"),
        (2**32 - 1, b"\xff\xff\xff\xff\x0f"),
    ],
)
def test_known_varints(value: int, encoded: bytes) -> None:
    assert uvarint(value) == encoded


@pytest.mark.parametrize("value", [-1, 2**32])
def test_a_number_that_does_not_fit_is_refused(value: int) -> None:
    with pytest.raises(UnencodableMessage):
        uvarint(value)


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x80\x01"])
def test_a_varint_of_more_than_31_bits_is_refused(data: bytes) -> None:
    with pytest.raises(struct.error):
        read_uvarint(data, 0)


def test_a_longer_form_than_needed_is_read_as_kafka_reads_it() -> None:
    assert read_uvarint(b"\x81\x80\x00", 0) == (1, 3)
