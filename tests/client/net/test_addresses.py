from __future__ import annotations

import pytest

from dohle.client.net.addresses import Address, parse_address, parse_bootstrap


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:9092", Address("localhost", 9092)),
        (" broker-1.example:1 ", Address("broker-1.example", 1)),
        ("localhost", Address("localhost", 9092)),
        ("[::1]:19092", Address("::1", 19092)),
        ("[::1]", Address("::1", 9092)),
    ],
)
def test_an_address_is_read(text: str, expected: Address) -> None:
    assert parse_address(text) == expected
    assert parse_address(str(expected)) == expected


@pytest.mark.parametrize(
    "text", ["", ":9092", "host:", "host:0", "host:65536", "host:x", "::1:9092", "[::1:9092", "h:²"]
)
def test_a_wrong_address_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ValueError, match="is not an address"):
        parse_address(text)


def test_a_bootstrap_list_may_have_commas_and_repeats() -> None:
    assert parse_bootstrap("a:1, b:2,,a:1") == (Address("a", 1), Address("b", 2))
    assert parse_bootstrap(["a:1", "b"]) == (Address("a", 1), Address("b", 9092))


def test_an_empty_bootstrap_list_is_refused() -> None:
    with pytest.raises(ValueError, match="no bootstrap server"):
        parse_bootstrap(" , ")
