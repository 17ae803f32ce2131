"""Through real pipes: a reader who does not read, and what comes out when he does."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import select
from collections.abc import Iterator
from typing import Any

import pytest

from dohle.cli.log_handler import LogHandler
from dohle.cli.log_limits import LogLimits
from dohle.cli.log_lines import JsonFormatter, TextFormatter
from tests.cli.running import DEADLINE_S


class Pipe:
    """A pipe of one page, which holds few lines."""

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()
        self.size = fcntl.fcntl(self.write_end, fcntl.F_SETPIPE_SZ, 4096)
        self._said = b""

    def line(self) -> str:
        """Return the next line that was written, without its time."""
        while b"\n" not in self._said:
            ready, _, _ = select.select([self.read_end], [], [], DEADLINE_S)
            assert ready, "nothing more was written"
            self._said += os.read(self.read_end, 4096)
        line, _, self._said = self._said.partition(b"\n")
        return line.decode().partition(" ")[2]

    def close(self) -> None:
        for end in (self.read_end, self.write_end):
            if end >= 0:
                os.close(end)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close()


def handler_of(pipe: Pipe, **options: Any) -> LogHandler:
    return LogHandler(pipe.write_end, TextFormatter(), **options)


def log(handler: LogHandler, message: str, *arguments: object, **options: Any) -> None:
    level = options.pop("level", logging.WARNING)
    exc_info = options.pop("exc_info", None)
    place = options.pop("place", 1)
    handler.handle(
        logging.LogRecord("dohle.test", level, "test.py", place, message, arguments, exc_info)
    )


def test_lines_come_out_in_order(pipe: Pipe) -> None:
    handler = handler_of(pipe)
    for number in range(50):
        log(handler, "line %d", number)
    assert [pipe.line() for _ in range(50)] == [f"WARNING test: line {n}" for n in range(50)]
    assert handler.finish()


def test_what_does_not_fit_while_nobody_reads_is_dropped_and_its_number_told(pipe: Pipe) -> None:
    handler = handler_of(pipe, queued_bytes_max=10_000)
    for number in range(1000):
        log(handler, "%d %s", number, "x" * 60, level=logging.DEBUG)
    assert not handler.finish(), "nobody has read anything"
    shown = []
    while "dropped" not in (line := pipe.line()):
        shown.append(int(line.split()[2]))
    assert shown == list(range(len(shown))), "the first ones are kept"
    assert 50 < len(shown) < 500
    assert line == (
        f"WARNING log: {1000 - len(shown)} lines were dropped here: "
        "they were not read, or could not be written"
    )
    log(handler, "after")
    assert pipe.line() == "WARNING test: after"


def test_a_pipe_that_nobody_will_read_again_does_no_harm(pipe: Pipe) -> None:
    handler = handler_of(pipe)
    os.close(pipe.read_end)
    pipe.read_end = -1
    for _ in range(10):
        log(handler, "to nobody")
    assert handler.finish()


def test_more_of_one_kind_than_allowed_become_one_line_with_their_number(pipe: Pipe) -> None:
    now = 0.0
    limits = LogLimits(lines_max=2, interval_s=10)
    handler = handler_of(pipe, limits=limits, clock=lambda: now)
    for number in range(7):
        log(handler, "refusing %d", number)
    log(handler, "another", place=2)
    assert [pipe.line() for _ in range(3)] == [
        "WARNING test: refusing 0",
        "WARNING test: refusing 1",
        "WARNING test: another",
    ]
    now = 10.0
    # Told though nothing else is logged.
    assert pipe.line() == "WARNING log: 5 more lines of dohle.test like this one: refusing %d"


def test_what_was_left_out_is_told_at_the_end_at_the_latest(pipe: Pipe) -> None:
    handler = handler_of(pipe, limits=LogLimits(lines_max=1, interval_s=1e9))
    for _ in range(3):
        log(handler, "again")
    assert handler.finish()
    assert pipe.line() == "WARNING test: again"
    assert pipe.line() == "WARNING log: 2 more lines of dohle.test like this one: again"


def test_a_critical_message_is_written_before_anything_goes_on(pipe: Pipe) -> None:
    handler = handler_of(pipe)
    log(handler, "stopping", level=logging.CRITICAL)
    assert select.select([pipe.read_end], [], [], 0)[0]
    assert pipe.line() == "CRITICAL test: stopping"


def test_a_message_that_cannot_be_shown_is_told_of(pipe: Pipe) -> None:
    handler = handler_of(pipe)
    log(handler, "%d partitions", "no number")
    assert pipe.line().startswith("ERROR log: a message of test.py:1 cannot be shown: TypeError(")


HOSTILE = "a\n2026-01-01T00:00:00.000Z INFO server: all is well\x1b[2J\r\u2028\udcff"


def raised(text: str) -> Any:
    try:
        raise ValueError(text)
    except ValueError as error:
        return (type(error), error, error.__traceback__)


def test_no_name_makes_a_second_line(pipe: Pipe) -> None:
    handler = handler_of(pipe)
    log(handler, "%s cannot be moved", HOSTILE)
    log(handler, "next")
    assert pipe.line() == (
        r"WARNING test: a\n2026-01-01T00:00:00.000Z INFO server: all is well"
        r"\x1b[2J\r\u2028\udcff cannot be moved"
    )
    assert pipe.line() == "WARNING test: next"


def test_lines_of_a_traceback_cannot_be_taken_for_messages() -> None:
    record = logging.LogRecord("dohle.x", 40, "x.py", 1, "failed", (), raised(HOSTILE))
    first, *trace = TextFormatter().format(record).split("\n")
    assert first.endswith("ERROR x: failed")
    assert trace[0] == "  Traceback (most recent call last):"
    assert all(line.startswith("  ") and line.isprintable() for line in trace)


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_a_line_is_short_whatever_it_quotes(formatter: logging.Formatter) -> None:
    long = "x" * 1_000_000
    record = logging.LogRecord("dohle.x", 40, "x.py", 1, "no %s", (long,), raised(long))
    assert len(formatter.format(record)) < 50_000


def test_json_lines_hold_the_names_as_they_were() -> None:
    record = logging.LogRecord("dohle.x", 40, "x.py", 1, "no %s", (HOSTILE,), None)
    line = JsonFormatter().format(record)
    assert line.isprintable()
    assert json.loads(line)["message"] == f"no {HOSTILE}"
