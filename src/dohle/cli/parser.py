"""The parser of command lines: argparse, with what people expect beside it.

- A command that is not there is told with the nearest one that is.
- ``ls`` and ``rm`` stand for ``list`` and ``delete``.
- A command line without a command shows the help of where it stopped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from typing import Any, NoReturn

_ALIASES = {"ls": "list", "rm": "delete"}
_SIMILARITY_MIN = 0.6
_NO_COMMAND = "the following arguments are required: COMMAND"


class CommandParser(argparse.ArgumentParser):
    """The parser of ``dohle`` and of each of its commands."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with the command line, and end."""
        if message == _NO_COMMAND:
            self.print_help(sys.stderr)
            self.exit(2, f"\n{self.prog}: error: a command is missing\n")
        super().error(message)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            raise argparse.ArgumentError(None, _unknown(value, action.choices))
        super()._check_value(action, value)


def add_aliases(parser: argparse.ArgumentParser) -> None:
    """Let short names stand for commands, here and below."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in {id(each): each for each in action.choices.values()}.values():
                add_aliases(below)
            for alias, name in _ALIASES.items():
                if name in action.choices:
                    action.choices[alias] = action.choices[name]


def _unknown(name: str, commands: Iterable[str]) -> str:
    import difflib  # costs milliseconds, and names are rarely unknown

    known = [each for each in commands if each not in _ALIASES]
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=_SIMILARITY_MIN)
    hint = f"did you mean {nearest[0]}?" if nearest else f"choose from {', '.join(known)}"
    return f"there is no command {name}: {hint}"
