"""The three forms of a dump: lines, tables on a terminal, JSON lines.

All write at once and keep nothing but a table's next rows. Problems go to stderr, each as one line
with the file and the position; JSON also has them among the rest.
"""

from __future__ import annotations

from typing import Protocol

from dohle.cli.dump.items import DumpedFile, Note, Problem, Row
from dohle.cli.errors import report_error
from dohle.cli.output import Fields, draw_table, print_json
from dohle.cli.values import to_text

#: The rows of a table; a longer dump becomes several tables.
TABLE_ROWS_MAX = 500


class Writer(Protocol):
    """Prints the files one after the other."""

    def begin(self, source: DumpedFile, size: int) -> None:
        """Start a file."""

    def row(self, row: Row) -> None:
        """Print a row."""

    def note(self, note: Note) -> None:
        """Print a note."""

    def problem(self, problem: Problem) -> None:
        """Print a problem."""

    def end(self) -> None:
        """End the file."""


class LineWriter:
    """One line per row: for pipes, for records, and for terminals too narrow for a table."""

    def __init__(self) -> None:
        self._path = ""
        self._is_empty = True

    def begin(self, source: DumpedFile, size: int) -> None:
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
        """Print what is wrong, and where."""
        self._is_empty = False
        report_error(f"{self._path}: {to_text(str(problem))}")

    def end(self) -> None:
        """Say so if there was nothing to show."""
        if self._is_empty:
            print("(nothing in it)")


class TableWriter(LineWriter):
    """Tables if the terminal is wide enough for every value, else lines."""

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
        """Print the problem below the rows before it."""
        self._flush()
        super().problem(problem)

    def end(self) -> None:
        """Print the remaining rows."""
        self._flush()
        super().end()

    def _flush(self) -> None:
        rows, self._rows = self._rows, []
        # A table of one row is harder to read than a line.
        if len(rows) < 2 or not self._print_table(rows):
            for row in rows:
                super().row(row)

    def _print_table(self, rows: list[Row]) -> bool:
        left_out = draw_table([row.fields for row in rows])
        if left_out is None:
            return False
        if left_out:
            print(f"(left out, as no row has any: {', '.join(left_out)})")
        self._is_empty = False
        return True


class JsonWriter:
    """One object per line, for programs."""

    def __init__(self) -> None:
        self._path = ""

    def begin(self, source: DumpedFile, size: int) -> None:
        """Print what the file is."""
        self._path = source.path.removeprefix("./")
        self._print("file", {"kind": source.kind, "size": size, "baseOffset": source.base_offset})

    def row(self, row: Row) -> None:
        """Print the row."""
        self._print(row.type, row.fields)

    def note(self, note: Note) -> None:
        """Print the note."""
        self._print("note", {"position": note.position, "message": note.message})

    def problem(self, problem: Problem) -> None:
        """Print the problem, on stderr as well."""
        self._print(
            "problem",
            {"position": problem.position, "line": problem.line, "message": problem.message},
        )
        report_error(f"{self._path}: {to_text(str(problem))}")

    def end(self) -> None:
        """Nothing is buffered."""

    def _print(self, type: str, fields: Fields) -> None:
        print_json({"file": self._path, "type": type, **fields})
