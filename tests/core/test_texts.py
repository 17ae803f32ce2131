from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.core.texts import printable, shorten


@given(st.text(st.characters(), max_size=300))
def test_what_was_made_printable_can_be_printed_on_one_line_and_encoded(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert len(shown.splitlines()) <= 1
    shown.encode()
    assert printable(shown) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("orders", "orders"),
        ("prüfung 日本", "prüfung 日本"),
        ("a\nb\r\0", r"a\nb\r\x00"),
        ("\x1b[2J\x9b1m", r"\x1b[2J\x9b1m"),
        ("\u2028\u202e", r"\u2028\u202e"),
        ("\udc80", r"\udc80"),
    ],
)
def test_what_could_pass_for_something_else_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text(max_size=100), st.integers(1, 50))
def test_a_shortened_text_keeps_both_ends(text: str, limit: int) -> None:
    shown = shorten(text, limit)
    if len(text) <= limit:
        assert shown == text
    else:
        assert shown.startswith(text[: limit // 2])
        assert shown.endswith(text[len(text) - limit // 2 :])
        assert f"({len(text) - limit} more characters)" in shown
        assert len(shown) <= limit + 40
