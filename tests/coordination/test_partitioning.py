from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis.strategies import text

from dohle.coordination.partitioning import java_hash, partition_for


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("\U0001f426", 0xD83D * 31 + 0xDC26),
        ("polygenelubricants", -(2**31)),
    ],
)
def test_the_hash_is_java_s(text: str, expected: int) -> None:
    assert java_hash(text) == expected


@given(text(max_size=600))
def test_the_hash_of_any_text_is_java_s(key: str) -> None:
    value = 0
    encoded = key.encode("utf-16-be")
    for at in range(0, len(encoded), 2):
        value = (31 * value + int.from_bytes(encoded[at : at + 2])) % 2**32
    assert java_hash(key) % 2**32 == value
    assert partition_for(key, 50) == abs(java_hash(key)) % 50


def test_a_hash_without_a_positive_counterpart_counts_as_zero() -> None:
    assert partition_for("polygenelubricants", 50) == 0


def test_negative_hashes_are_taken_positive() -> None:
    name = "zzzzzz"
    assert java_hash(name) < 0
    assert partition_for(name, 50) == -java_hash(name) % 50
