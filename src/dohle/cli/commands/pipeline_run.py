"""Watches the run of a pipeline: a process that emits events, and how they are shown.

On a terminal a table of the flows is redrawn as they progress; elsewhere each event is a line.
Spark's output goes to a file of the project, which is named if the run fails.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from dohle.cli.errors import report_error
from dohle.spark.pipelines.events import RunCounts

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from dohle.spark.pipelines.project import Project
    from dohle.spark.pipelines.runner import Order

_STOP_TIMEOUT_S = 30


class Screen(Protocol):
    """Where events are shown."""

    def show(self, event: Mapping[str, Any]) -> None:
        """Show what has happened."""


def watch_runner(project: Project, order: Order, *, as_json: bool) -> int:
    """Run the pipeline in a separate process, show its events, and return its exit code."""
    project.state.mkdir(parents=True, exist_ok=True)
    if as_json:
        return _watch(project, order, JsonLines())
    if not sys.stdout.isatty():
        return _watch(project, order, Lines())
    with LiveTable() as table:
        return _watch(project, order, table)


def _watch(project: Project, order: Order, screen: Screen) -> int:
    errors: list[str] = []
    with _runner(project, order) as process:
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "error":
                errors.append(event["message"])
            screen.show(event)
        code = process.wait()
    if code != 0:
        for message in errors or [f"the run ended with exit code {code}"]:
            report_error(message)
        report_error(f"Spark's output is in {project.log}")
        return 1
    return 0


@contextmanager
def _runner(project: Project, order: Order) -> Iterator[subprocess.Popen[str]]:
    """Start the process; whatever happens here, it ends when its stdin closes."""
    with project.log.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "dohle.spark.pipelines.runner", order.to_json()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            # Ctrl-C is handled here: Spark would print a traceback.
            start_new_session=True,
        )
    try:
        yield process
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.stdout.close()
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()


class JsonLines:
    """Events as JSON lines."""

    def show(self, event: Mapping[str, Any]) -> None:
        """Print it on one line."""
        from dohle.cli.output import print_json

        print_json(event)
        sys.stdout.flush()


class Lines:
    """Each event as a line, and at the end of a run all flows as a table."""

    def __init__(self) -> None:
        self._counts = RunCounts()

    def show(self, event: Mapping[str, Any]) -> None:
        """Print what is worth a line."""
        counts = self._counts.add(event)
        match event["event"]:
            case "session":
                print(f"Spark {event['spark']}, Java in {event['java']}")
            case "flow":
                print(f"{event['flow']}: {event['state']}")
            case "progress" if counts is not None:
                print(_progress(event))
            case "run":
                self._show_run(event)
        sys.stdout.flush()

    def _show_run(self, event: Mapping[str, Any]) -> None:
        if "elapsedMs" not in event:
            print(f"run {event['run']}")
            self._counts = RunCounts()
            return
        from dohle.cli.output import print_table

        print_table([one.as_fields() for one in self._counts.flows.values()], if_empty="no flows")
        print(_run_line(event))


class LiveTable:
    """A table that is redrawn as the flows progress."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        size = shutil.get_terminal_size()
        console = Console(file=sys.stdout, width=size.columns, height=size.lines)
        self._counts = RunCounts()
        self._title = "Spark is starting"
        self._live: Live = Live(console=console, refresh_per_second=4, get_renderable=self._table)

    def __enter__(self) -> LiveTable:
        self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def show(self, event: Mapping[str, Any]) -> None:
        """Update the table."""
        self._counts.add(event)
        match event["event"]:
            case "session":
                self._title = f"Spark {event['spark']} is up"
            case "run" if "elapsedMs" in event:
                self._title = _run_line(event)
            case "run":
                self._title = f"run {event['run']}"
                self._counts = RunCounts()
        self._live.refresh()

    def _table(self) -> Table:
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, show_edge=False, title=self._title, title_justify="left")
        for name in ("flow", "state"):
            table.add_column(name)
        for name in ("batches", "rows in", "rows out", "lag", "batch ms"):
            table.add_column(name, justify="right")
        for counts in self._counts.flows.values():
            cells = counts.as_fields().values()
            table.add_row(*("-" if cell is None else f"{cell}" for cell in cells))
        return table


def _progress(event: Mapping[str, Any]) -> str:
    out = "" if event["rowsOut"] is None else f", {event['rowsOut']} rows out"
    lag = "" if event["lag"] is None else f", lag {event['lag']}"
    return (
        f"{event['flow']}: batch {event['batchId']}, {event['rowsIn']} rows in{out}{lag}, "
        f"{event['batchMs']} ms"
    )


def _run_line(event: Mapping[str, Any]) -> str:
    return f"run {event['run']} {event['state']} in {event['elapsedMs'] / 1000:.1f} s"
