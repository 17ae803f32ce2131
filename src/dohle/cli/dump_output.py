"""The three ways to show a dump: lines, tables on a terminal, JSON lines.

All write as they are told and keep nothing but a table's next rows. Problems go to stderr, each as
one line with the file and the position; JSON has them among the rest as well.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from typing import Literal, Protocol

from dohle.cli.dump_items import Note, Problem, Row, Source
from dohle.cli.dump_values import Json, to_json, to_text
from dohle.cli.errors import report_error

#: How many rows a table has; a longer dump is several tables.
TABLE_ROWS_MAX = 500

#: Characters between two columns.
_GAP = 2

_WORD_START = re.compile(r"(?<=[a-z])(?=[A-Z])")


class Writer(Protocol):
    """Shows the files one after the other."""

    def begin(self, source: Source, size: int) -> None:
        """Open a file."""

    def row(self, row: Row) -> None:
        """Show a row."""

    def note(self, note: Note) -> None:
        """Show a note."""

    def problem(self, problem: Problem) -> None:
        """Show what is wrong."""

    def end(self) -> None:
        """Close the file."""


class LineWriter:
    """One line a row: for pipes, for records, and for terminals too narrow for a table."""

    def __init__(self) -> None:
        self._path = ""
        self._is_empty = True

    def begin(self, source: Source, size: int) -> None:
        """Name the file."""
        self._path = to_text(source.path.removeprefix("./"))
        self._is_empty = True
        offset = "" if source.base_offset is None else f", offset {source.base_offset}"
        print(f"Dumping {self._path} ({source.kind}{offset}, {size} bytes)")

    def row(self, row: Row) -> None:
        """Print a line."""
        self._is_empty = False
        fields = [f"{name}: {to_text(value)}" for name, value in row.fields.items()]
        print("| " if row.nested else "", " ".join(fields), sep="")

    def note(self, note: Note) -> None:
        """Print the note."""
        self._is_empty = False
        place = "" if note.position is None else f"position {note.position}: "
        print(f"note: {place}{note.message}")

    def problem(self, problem: Problem) -> None:
        """Tell what is wrong, and where."""
        self._is_empty = False
        report_error(f"{self._path}: {to_text(str(problem))}")

    def end(self) -> None:
        """Say so if there was nothing to show."""
        if self._is_empty:
            print("(nothing in it)")


class TableWriter(LineWriter):
    """Tables where the terminal is wide enough for every value, lines where it is not."""

    def __init__(self) -> None:
        super().__init__()
        self._rows: list[Row] = []

    def row(self, row: Row) -> None:
        """Keep the row until its table is full."""
        if self._rows and self._rows[0].fields.keys() != row.fields.keys():
            self._flush()
        self._rows.append(row)
        if len(self._rows) == TABLE_ROWS_MAX:
            self._flush()

    def note(self, note: Note) -> None:
        """Print the note below the rows before it."""
        self._flush()
        super().note(note)

    def problem(self, problem: Problem) -> None:
        """Tell what is wrong below the rows before it."""
        self._flush()
        super().problem(problem)

    def end(self) -> None:
        """Show the rest."""
        self._flush()
        super().end()

    def _flush(self) -> None:
        rows, self._rows = self._rows, []
        # A table of one row is harder to read than a line.
        if len(rows) < 2 or not self._print_table(rows):
            for row in rows:
                super().row(row)

    def _print_table(self, rows: list[Row]) -> bool:
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        terminal = shutil.get_terminal_size()
        names = list(rows[0].fields)
        if _table_width(names, rows) > terminal.columns:
            names = [
                name for name in names if any(_says_something(row.fields[name]) for row in rows)
            ]
            if not names or _table_width(names, rows) > terminal.columns:
                return False
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, collapse_padding=True, pad_edge=False)
        for name in names:
            value = rows[0].fields[name]
            is_number = isinstance(value, int) and not isinstance(value, bool)
            justify: Literal["right", "left"] = "right" if is_number else "left"
            table.add_column(Text(_heading(name)), justify=justify, no_wrap=True)
        for row in rows:
            table.add_row(*(Text(to_text(row.fields[name])) for name in names))
        # Given both, Console believes them for a terminal that it knows nothing of, too.
        Console(file=sys.stdout, width=terminal.columns, height=terminal.lines).print(table)
        left_out = ", ".join(name for name in rows[0].fields if name not in names)
        if left_out:
            print(f"(left out, as no row has any: {left_out})")
        self._is_empty = False
        return True


def _says_something(value: object) -> bool:
    # 0 is an offset like any other, though Python takes it for False.
    return value is not None and value is not False and value != -1


def _heading(name: str) -> str:
    return _WORD_START.sub("\n", name)


def _table_width(names: list[str], rows: list[Row]) -> int:
    from rich.cells import cell_len

    widths = [
        max(
            max(map(cell_len, _heading(name).split("\n"))),
            max(cell_len(to_text(row.fields[name])) for row in rows),
        )
        for name in names
    ]
    return sum(widths) + _GAP * (len(widths) - 1)


class JsonWriter:
    """One object on each line, for programs."""

    def __init__(self) -> None:
        self._path = ""

    def begin(self, source: Source, size: int) -> None:
        """Print what the file is."""
        self._path = source.path.removeprefix("./")
        self._print("file", {"kind": source.kind, "size": size, "baseOffset": source.base_offset})

    def row(self, row: Row) -> None:
        """Print the row."""
        self._print(row.type, {name: to_json(value) for name, value in row.fields.items()})

    def note(self, note: Note) -> None:
        """Print the note."""
        self._print("note", {"position": note.position, "message": note.message})

    def problem(self, problem: Problem) -> None:
        """Print the problem, on stderr as well."""
        place: dict[str, Json] = {"position": problem.position, "line": problem.line}
        self._print("problem", {**place, "message": problem.message})
        report_error(f"{self._path}: {to_text(str(problem))}")

    def end(self) -> None:
        """Nothing is kept back."""

    def _print(self, type: str, fields: dict[str, Json]) -> None:
        print(json.dumps({"file": self._path, "type": type, **fields}))
