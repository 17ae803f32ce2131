from __future__ import annotations

import json
import logging

import pytest

from dohle.cli.log_lines import JsonFormatter, TextFormatter
from dohle.cli.output import print_fields, print_json, print_table
from tests.cli.running import Command, lines
from tests.cli.terminals import run_on_terminal

ROWS: list[dict[str, object]] = [
    {"name": "a", "offset": None, "isInternal": False},
    {"name": "longer", "offset": 12345, "isInternal": True},
]


def test_a_table_in_a_pipe_is_plain_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(ROWS, if_empty="none")
    assert capsys.readouterr().out == (
        "name    offset  isInternal\na            -  false\nlonger   12345  true\n"
    )


def test_no_rows_are_nothing_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([], if_empty="none")
    assert capsys.readouterr().out == ""


def test_fields_stand_below_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    print_fields({"id": 7, "longName": "esc\x1b"})
    assert capsys.readouterr().out == "id:       7\nlongName: esc\\u001b\n"


def test_json_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": (1, None), "b": {"c": b"\xff"}, "d": "x\ny"})
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert json.loads(out) == {"a": [1, None], "b": {"c": {"base64": "/w=="}}, "d": "x\ny"}


def test_a_terminal_gets_a_drawn_table(command: Command, bootstrap: str) -> None:
    command.out("topic", "create", "drawn-a", "drawn-b")
    shown = run_on_terminal(200, "-b", bootstrap, "topic", "list")
    assert shown[0].split() == ["replication", "topic", "is"]
    assert shown[1].split() == ["name", "partitions", "Factor", "Id", "Internal"]
    assert set(shown[2]) == {"─"}
    assert [line.split()[:2] for line in shown if "drawn" in line] == [
        ["drawn-a", "1"],
        ["drawn-b", "1"],
    ]


def test_a_person_who_types_records_is_told_how(command: Command, bootstrap: str) -> None:
    shown = run_on_terminal(80, "-b", bootstrap, "produce", "typing", typed=b"hello\n\x04")
    assert "each line is a record; Ctrl-D ends" in shown
    assert command.out("consume", "typing", "-e") == "hello\n"


def test_a_terminal_is_shown_the_records_and_no_progress(command: Command, bootstrap: str) -> None:
    command.out("produce", "quietly", stdin=lines("ab"))
    assert run_on_terminal(80, "-b", bootstrap, "consume", "quietly", "-e") == ["a", "b"]


def test_long_work_on_a_terminal_tells_how_much_it_was(bootstrap: str) -> None:
    shown = run_on_terminal(80, "-b", bootstrap, "produce", "nothing")
    assert shown == ["", "0 records, 0.0 MB\x1b[K"]


def record(
    message: str, *arguments: object, error: BaseException | None = None
) -> logging.LogRecord:
    trace = None if error is None else (type(error), error, error.__traceback__)
    found = logging.LogRecord("dohle.server", logging.WARNING, "", 0, message, arguments, trace)
    found.created = 1_700_000_000.0625
    return found


def test_a_log_line_has_time_level_part_and_message() -> None:
    line = TextFormatter().format(record("%s is %d", "it", 3))
    assert line == "2023-11-14T22:13:20.062Z WARNING server: it is 3"


def test_a_log_line_as_json_keeps_an_exception_on_the_line() -> None:
    try:
        raise ValueError("wrong\nindeed")
    except ValueError as error:
        line = JsonFormatter().format(record("failed", error=error))
    assert "\n" not in line
    found = json.loads(line)
    assert found.pop("exception").endswith("ValueError: wrong\nindeed")
    assert found == {
        "time": "2023-11-14T22:13:20.062Z",
        "level": "warning",
        "logger": "dohle.server",
        "message": "failed",
    }
