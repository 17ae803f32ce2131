"""How commands print results: JSON lines for programs, tables for people.

Names are Kafka's, in both. On a terminal that is wide enough, rich draws a table; otherwise it is
plain columns, which suit pipes.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Literal

from dohle.cli.values import to_json, to_text

Fields = Mapping[str, object]

#: Characters between two columns.
_GAP = 2

_WORD_START = re.compile(r"(?<=[a-z])(?=[A-Z])")


def json_line(fields: Fields) -> str:
    """Return one object as one line."""
    return json.dumps(to_json(fields)) + "\n"


def print_json(fields: Fields) -> None:
    """Print one object on one line."""
    sys.stdout.write(json_line(fields))


def print_fields(fields: Fields) -> None:
    """Print one thing, a line for each of its fields."""
    width = max(map(len, fields)) + 1
    for name, value in fields.items():
        print(f"{f'{name}:':<{width}} {to_text(value)}")


def print_rows(rows: Sequence[Fields], *, as_json: bool, if_empty: str) -> None:
    """Print rows that have the same fields, for programs or for people."""
    if as_json:
        for row in rows:
            print_json(row)
    else:
        print_table(rows, if_empty=if_empty)


def print_table(rows: Sequence[Fields], *, if_empty: str) -> None:
    """Print rows that have the same fields; on a terminal, say so if there are none."""
    if not rows:
        if sys.stdout.isatty():
            print(if_empty)
    elif not sys.stdout.isatty() or draw_table(rows) is None:
        _print_columns(rows)


def _cell(value: object) -> str:
    """Return the text of a table cell; a dash for nothing, as in Kafka's tools."""
    return "-" if value is None else to_text(value)


def draw_table(rows: Sequence[Fields]) -> list[str] | None:
    """Draw a table on the terminal; return None if that is too narrow.

    If that makes it fit, empty columns are left out; their names are returned.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    terminal = shutil.get_terminal_size()
    names = list(rows[0])
    if _table_width(names, rows) > terminal.columns:
        names = [name for name in names if any(_says_something(row[name]) for row in rows)]
        if not names or _table_width(names, rows) > terminal.columns:
            return None
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, collapse_padding=True, pad_edge=False)
    for name in names:
        justify: Literal["right", "left"] = "right" if _is_numeric(rows, name) else "left"
        table.add_column(Text(_heading(name)), justify=justify, no_wrap=True)
    for row in rows:
        table.add_row(*(Text(_cell(row[name])) for name in names))
    # Given both, Console uses them even for a terminal that it knows nothing about.
    Console(file=sys.stdout, width=terminal.columns, height=terminal.lines).print(table)
    return [name for name in rows[0] if name not in names]


def _print_columns(rows: Sequence[Fields]) -> None:
    lines = [list(rows[0]), *([_cell(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    to_right = [_is_numeric(rows, name) for name in rows[0]]
    for line in lines:
        cells = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, to_right, strict=True)
        )
        print((" " * _GAP).join(cells).rstrip())


def _is_numeric(rows: Sequence[Fields], name: str) -> bool:
    values = [row[name] for row in rows if row[name] is not None]
    return bool(values) and all(type(value) is int for value in values)


def _says_something(value: object) -> bool:
    # 0 is a valid offset, though Python treats it as False.
    return value is not None and value is not False and value != -1


def _heading(name: str) -> str:
    return _WORD_START.sub("\n", name)


def _table_width(names: Sequence[str], rows: Sequence[Fields]) -> int:
    from rich.cells import cell_len

    widths = [
        max(
            max(map(cell_len, _heading(name).split("\n"))),
            max(cell_len(_cell(row[name])) for row in rows),
        )
        for name in names
    ]
    return sum(widths) + _GAP * (len(widths) - 1)
