from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dohle.cli.commands.consume import OffsetArgument, parse_place
from dohle.cli.commands.record_format import compile_format
from dohle.cli.commands.record_lines import LineFormat, read_lines
from dohle.cli.options import unescape
from dohle.client import ConsumedRecord
from dohle.core.ids import TopicName
from dohle.records.record import Record, TimestampType

RECORD = ConsumedRecord(
    TopicName("orders"),
    3,
    Record(42, 1_700_000_000_000, b"key", b"value", (("a", b"1"), ("b", None))),
    7,
    TimestampType.CREATE_TIME,
)
NULLS = RECORD._replace(record=Record(43, -1, None, None))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", b""),
        ("%t[%p]@%o", b"orders[3]@42"),
        ("%k=%s\\n", b"key=value\n"),
        ("%K %S %T", b"3 5 1700000000000"),
        ("%R%s", b"\0\0\0\x05value"),
        ("%h", b"a=1,b=NULL"),
        ("100%%\\t\\x41\\\\%%s", b"100%\tA\\%s"),
        ("sn\xf6", "sn\xf6".encode()),
    ],
)
def test_a_format_shows_what_kcat_shows(text: str, shown: bytes) -> None:
    assert compile_format(text)(RECORD) == shown


def test_nulls_are_nothing_or_what_is_asked_for() -> None:
    assert compile_format("%k|%s|%K|%S|%h")(NULLS) == b"||-1|-1|"
    assert compile_format("%R")(NULLS) == b"\xff\xff\xff\xff"
    assert compile_format("%k|%s", null=b"NULL")(NULLS) == b"NULL|NULL"


@pytest.mark.parametrize("text", ["%", "%x", "100%", "\\", "\\q", "\\x4", "%s\\"])
def test_what_is_not_known_in_a_format_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not known|is no escape"):
        compile_format(text)


@settings(max_examples=100)
@given(text=st.text().filter(lambda text: "\\" not in text and "%" not in text))
def test_other_text_is_shown_as_it_is(text: str) -> None:
    assert unescape(text) == os.fsencode(text)
    assert compile_format(text)(RECORD) == os.fsencode(text)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("beginning", OffsetArgument("beginning")),
        ("end", OffsetArgument("end")),
        ("0", OffsetArgument("at", 0)),
        ("-5", OffsetArgument("tail", 5)),
        ("s@1700000000000", OffsetArgument("s@", 1_700_000_000_000)),
        ("e@0", OffsetArgument("e@", 0)),
    ],
)
def test_places_are_read(text: str, place: OffsetArgument) -> None:
    assert parse_place(text) == place
    assert place.is_stop == text.startswith("e@")


@pytest.mark.parametrize(
    ("format", "line", "pair"),
    [
        (LineFormat(), b"a:b", (None, b"a:b")),
        (LineFormat(), b"", (None, b"")),
        (LineFormat(b":"), b"a:b:c", (b"a", b"b:c")),
        (LineFormat(b"::"), b"a::", (b"a", b"")),
        (LineFormat(b":"), b"none", (None, b"none")),
        (LineFormat(b":", empty_is_null=True), b"a:", (b"a", None)),
        (LineFormat(b":", empty_is_null=True), b":b", (None, b"b")),
        (LineFormat(empty_is_null=True), b"", (None, None)),
    ],
)
def test_a_line_is_parted_into_key_and_value(
    format: LineFormat, line: bytes, pair: tuple[bytes | None, bytes | None]
) -> None:
    assert format.split(line) == pair


async def all_lines(descriptor: int) -> list[bytes]:
    return [line async for lines in read_lines(descriptor) for line in lines]


@settings(max_examples=50)
@given(content=st.lists(st.sampled_from([b"\n", b"x", b"\r", b"y" * 70_000])).map(b"".join))
def test_lines_of_a_file_are_what_lies_between_line_feeds(
    content: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("lines") / "input"
    path.write_bytes(content)
    with path.open("rb") as file:
        found = asyncio.run(all_lines(file.fileno()))
    expected = content.split(b"\n")
    assert found == (expected[:-1] if expected[-1] == b"" else expected)


def test_lines_of_a_pipe_come_as_they_are_written(tmp_path: Path) -> None:
    async def talk() -> list[list[bytes]]:
        ours, theirs = os.pipe()
        try:
            lines = read_lines(ours)
            os.write(theirs, b"one\ntw")
            found = [await anext(lines)]
            os.write(theirs, b"o\n")
            found.append(await anext(lines))
            os.write(theirs, b"rest")
            os.close(theirs)
            return [*found, *[some async for some in lines]]
        finally:
            os.close(ours)

    assert asyncio.run(talk()) == [[b"one"], [b"two"], [b"rest"]]
