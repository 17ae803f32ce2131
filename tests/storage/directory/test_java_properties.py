from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.storage.directory.java_properties import format_properties, java_date, parse_properties


# What java.util.Properties.load gave for the same bytes.
@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("a=b", {"a": "b"}),
        ("a = b", {"a": "b"}),
        ("a : = b", {"a": "= b"}),
        ("  a\\=b c\\\n   d", {"a=b": "cd"}),
        ("!x\n#y\na", {"a": ""}),
        ("a\\u0041=\\u00e9\\q", {"aA": "éq"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("x=1\r\ny=2\rz=3", {"x": "1", "y": "2", "z": "3"}),
        ("a=b \\\n\n c", {"a": "b ", "c": ""}),
        ("\\\n a=b", {"a": "b"}),
        ("a\\\n#b=c", {"a#b": "c"}),
        ("= v", {"": "v"}),
        (":", {"": ""}),
        ("a==b", {"a": "=b"}),
        ("a b=c", {"a": "b=c"}),
        ("tail\\", {"tail": ""}),
        ("a\f\t=\f\tb", {"a": "b"}),
        ("#c\\\na=b", {"a": "b"}),
        ("a=\\uD83D\\uDE00", {"a": "😀"}),
        ("é=ü", {"Ã©": "Ã¼"}),
        ("   \n \t\nq", {"q": ""}),
        ("a=1\na=2", {"a": "2"}),
        ("", {}),
    ],
)
def test_text_is_read_as_java_reads_it(text: str, properties: dict[str, str]) -> None:
    assert parse_properties(text.encode()) == properties


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u12g4", "\\u=b"])
def test_a_broken_unicode_escape_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="four hex digits"):
        parse_properties(text.encode())


def test_text_is_written_as_java_writes_it() -> None:
    properties = {"version": "1", "k e:y=": "", "cluster.id": " a b:=#!\\\t\n"}
    assert format_properties(properties, 1_700_000_000_000).decode() == (
        "#\n"
        "#Tue Nov 14 22:13:20 UTC 2023\n"
        "cluster.id=\\ a b\\:\\=\\#\\!\\\\\\t\\n\n"
        "k\\ e\\:y\\==\n"
        "version=1\n"
    )


@pytest.mark.parametrize(
    ("now_ms", "text"),
    [
        (0, "Thu Jan 01 00:00:00 UTC 1970"),
        (1_700_000_000_999, "Tue Nov 14 22:13:20 UTC 2023"),
        (1_709_164_800_000, "Thu Feb 29 00:00:00 UTC 2024"),
    ],
)
def test_dates_look_as_java_prints_them(now_ms: int, text: str) -> None:
    assert java_date(now_ms) == text


@given(st.dictionaries(st.text(), st.text()), st.integers(0, 1 << 42))
def test_what_was_written_is_read(properties: dict[str, str], now_ms: int) -> None:
    written = format_properties(properties, now_ms)
    assert written.isascii()
    assert parse_properties(written) == properties


@given(st.binary(max_size=80) | st.text("ab\\\n\r\t =:#!u04", max_size=40).map(str.encode))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        properties = parse_properties(data)
    except ValueError:
        return
    assert parse_properties(format_properties(properties, 0)) == properties
