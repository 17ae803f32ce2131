from __future__ import annotations

import pytest

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


def test_a_hash_without_a_positive_counterpart_counts_as_zero() -> None:
    assert partition_for("polygenelubricants", 50) == 0


def test_negative_hashes_are_taken_positive() -> None:
    name = "zzzzzz"
    assert java_hash(name) < 0
    assert partition_for(name, 50) == -java_hash(name) % 50
