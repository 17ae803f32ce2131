from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dohle.cli.dump.files import find_kind
from dohle.cli.values import RecordHeaders, bytes_to_json, bytes_to_text, to_json, to_text
from tests.cli.dump.files import SEGMENT, batch, orders, write_segment
from tests.cli.terminals import run_on_terminal


def dump_on_terminal(columns: int, *arguments: str | Path) -> list[str]:
    """Run a dump on a terminal of a given width and return what it shows, line by line."""
    return run_on_terminal(columns, "log", "dump", *arguments)


def test_a_terminal_that_is_wide_enough_gets_a_table(tmp_path: Path) -> None:
    path = orders(tmp_path) / f"{SEGMENT}.log"
    lines = dump_on_terminal(250, path)
    assert lines[0].startswith("Dumping")
    assert "baseOffset:" not in "".join(lines)
    rows = [line.split() for line in lines if "CreateTime" in line]
    assert [row[:2] for row in rows] == [["0", "0"], ["1", "1"], ["2", "2"]]
    assert all(row[-1] == "true" for row in rows)
    assert {len(row) for row in rows} == {19}


def test_a_narrower_terminal_gets_a_table_without_the_columns_that_say_nothing(
    tmp_path: Path,
) -> None:
    path = orders(tmp_path) / f"{SEGMENT}.log"
    lines = dump_on_terminal(120, path)
    rows = [line.split() for line in lines if "CreateTime" in line]
    assert {len(row) for row in rows} == {12}
    assert max(map(len, lines[1:-1])) <= 120
    assert lines[-1] == (
        "(left out, as no row has any: baseSequence, lastSequence, producerId, producerEpoch, "
        "isTransactional, isControl, deleteHorizonMs)"
    )


def test_a_column_of_zeros_is_not_left_out(tmp_path: Path) -> None:
    path = tmp_path / "quota-offset-checkpoint"
    path.write_text(f"0\n2\n{'t' * 60} 0 -1\n{'u' * 60} 0 -1\n")
    lines = dump_on_terminal(75, path)
    assert lines[1].split() == ["topic", "partition"]
    assert lines[-1] == "(left out, as no row has any: offset)"


def test_a_terminal_that_is_too_narrow_gets_lines_and_loses_no_value(tmp_path: Path) -> None:
    path = orders(tmp_path) / f"{SEGMENT}.log"
    lines = dump_on_terminal(80, path)
    assert sum(line.startswith("baseOffset: ") for line in lines) == 3
    assert sum(line.endswith("isvalid: true") for line in lines) == 3


def test_small_files_fit_into_a_narrow_terminal(tmp_path: Path) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    path.write_text("0\n2\norders 0 3\npayments 11 1000\n")
    lines = dump_on_terminal(80, path)
    assert lines[1:] == [
        "topic     partition  offset",
        "───────────────────────────",
        "orders            0       3",
        "payments         11    1000",
    ]


def test_a_single_row_is_a_line_even_where_a_table_would_fit(tmp_path: Path) -> None:
    path = orders(tmp_path) / "leader-epoch-checkpoint"
    assert dump_on_terminal(80, path)[1:] == ["epoch: 4 startOffset: 0"]


def test_a_problem_stands_below_the_rows_before_it(tmp_path: Path) -> None:
    path = write_segment(
        tmp_path, batch(b"good"), batch(b"too", base_offset=1), b"nonsense" + bytes(12) + b"\x01"
    )
    lines = [line for line in dump_on_terminal(250, path) if line.strip()]
    assert "CreateTime" in lines[-2]
    assert lines[-1].startswith(f"dohle: error: {path}: position ")


def test_records_on_a_terminal_are_lines(tmp_path: Path) -> None:
    path = orders(tmp_path) / f"{SEGMENT}.log"
    lines = dump_on_terminal(250, "--records", path)
    assert sum(line.startswith("baseOffset: ") for line in lines) == 3
    assert sum(line.startswith("| offset: ") for line in lines) == 3


def test_a_long_dump_on_a_terminal_is_several_tables(tmp_path: Path) -> None:
    path = write_segment(tmp_path, *(batch(b"x", base_offset=offset) for offset in range(1200)))
    lines = dump_on_terminal(250, path)
    assert sum("CreateTime" in line for line in lines) == 1200
    assert sum("compresscodec" in line for line in lines) == 3


def test_an_empty_file_on_a_terminal_is_said_to_be_empty(tmp_path: Path) -> None:
    assert dump_on_terminal(80, write_segment(tmp_path))[-1] == "(nothing in it)"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (f"{SEGMENT}.log", "log segment"),
        (f"{SEGMENT}.log.cleaned", "log segment"),
        (f"{SEGMENT}.index.swap", "offset index"),
        (f"{SEGMENT}.snapshot.deleted", "producer snapshot"),
        (f"{SEGMENT}-0000000001.checkpoint", "metadata snapshot"),
        (f"{SEGMENT}-0000000001-123.checkpoint.part", "metadata snapshot"),
        ("bootstrap.checkpoint", "metadata snapshot"),
        ("recovery-point-offset-checkpoint", "offset checkpoint"),
        ("leader-epoch-checkpoint", "leader epochs"),
        ("meta.properties", "meta properties"),
        ("my-meta.properties", None),
        ("leader-epoch-checkpoint.tmp", None),
        (".lock", None),
        ("quorum-state.bak", None),
        ("", None),
    ],
)
def test_a_file_is_known_by_its_name(name: str, kind: str | None) -> None:
    found = find_kind(name)
    assert (None if found is None else found.name) == kind


@settings(max_examples=200)
@given(value=st.binary(max_size=40) | st.text(max_size=20).map(lambda text: text.encode()))
def test_any_bytes_are_one_printable_line_and_come_back_from_json(value: bytes) -> None:
    assert bytes_to_text(value).isprintable()
    shown = json.loads(json.dumps(bytes_to_json(value)))
    if "utf8" in shown:
        assert shown["utf8"].encode() == value
    else:
        import base64

        assert base64.b64decode(shown["base64"]) == value


def test_values_are_shown_plainly() -> None:
    assert [to_text(value) for value in (None, True, False, 7, "plain", b'quo"ted')] == [
        "null",
        "true",
        "false",
        "7",
        "plain",
        '"quo\\"ted"',
    ]
    assert to_text(RecordHeaders((("a\x1b", b"x"), ("b", None)))) == '["a\\u001b": "x", "b": null]'
    assert to_text("esc\x1b[0m") == "esc\\u001b[0m"
    assert to_json((1, [b"\xff"])) == [1, [{"base64": "/w=="}]]
    with pytest.raises(TypeError):
        to_json(object())
