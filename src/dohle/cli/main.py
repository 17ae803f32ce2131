"""The entry point of the ``dohle`` command: options, exit codes, and how a command may end.

- 0: done. 1: something failed, or a file is damaged. 2: the command line or a configuration is
  wrong.
- Ctrl-C ends with 130 and a closed pipe (``dohle ... | head``) with 141, as a shell reports the
  signals; both silently.
- Every failure is one line on stderr that begins with ``dohle: error:``.

A command line loads as little as it can: the options of the command that it names, and what that
command needs when it runs. Only help and slips need the options of all commands.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module

from dohle import __version__
from dohle.cli.errors import CliError, describe_os_error, report_error
from dohle.cli.options import VALUE_OPTIONS, add_global_options
from dohle.cli.parser import CommandParser, add_aliases

EXIT_FAILURE = 1
EXIT_INTERRUPTED = 130
EXIT_CLOSED_PIPE = 141

_EXAMPLES = """\
examples:
  dohle start                                  a broker on 127.0.0.1:9092, data in ./data
  dohle topic create orders --partitions 3
  echo 'ann:3 apples' | dohle produce orders -K:
  dohle consume orders -e -f '%p %o %k=%s\\n'
  dohle topic describe orders
  dohle consume orders --group billing         share a topic with others, commit what was read
  dohle group describe billing                 committed offsets, lag and members
  dohle log dump --records data/orders-0       what is in the files of a partition
  dohle doctor                                 is everything here that is needed?
  dohle COMMAND --help                         all options of a command

exit codes: 0 done, 1 failed or a damaged file, 2 wrong command line or configuration
"""


#: The module of each command, in the order of the help.
MODULES = {
    "start": "start",
    "topic": "topic",
    "config": "configs",
    "produce": "produce",
    "consume": "consume",
    "group": "group",
    "txn": "txn",
    "acl": "acl",
    "user": "user",
    "quota": "quota",
    "cluster": "cluster",
    "storage": "storage",
    "tier": "tier",
    "log": "log_dump",
    "pipeline": "pipeline",
    "doctor": "doctor",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    if reconfigure := getattr(sys.stdout, "reconfigure", None):
        # A character that the terminal's encoding lacks must not end a dump.
        reconfigure(errors="backslashreplace")
    try:
        code = _run(argv)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more at exit, and needs a stdout that accepts it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_CLOSED_PIPE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return code


def _run(argv: Sequence[str] | None) -> int:
    words = sys.argv[1:] if argv is None else argv
    named = command_of(words)
    parser = build_parser(MODULES if named is None else (named,))
    if not words:
        parser.print_help()
        return 0
    try:
        args = parser.parse_args(argv)
    except SystemExit as exit:
        # argparse has printed its help or its error; 0 and 2 are its codes.
        return exit.code if isinstance(exit.code, int) else EXIT_FAILURE
    try:
        code: int = args.run(args)
    except BrokenPipeError:
        raise
    except CliError as error:
        for line in str(error).splitlines():
            report_error(line)
        return error.exit_code
    except OSError as error:
        report_error(describe_os_error(error))
        return EXIT_FAILURE
    return code


def command_of(words: Sequence[str]) -> str | None:
    """Return the command that a command line names, or None if it takes argparse to tell.

    Before the command there are only global options, of which all but ``--json`` have a value.
    """
    left = iter(words)
    for word in left:
        if not word.startswith("-"):
            return word if word in MODULES else None
        if word in VALUE_OPTIONS:
            next(left, None)
        elif word != "--json" and word.partition("=")[0] not in VALUE_OPTIONS:
            return None
    return None


def build_parser(names: Iterable[str] = tuple(MODULES)) -> argparse.ArgumentParser:
    """Return the parser with these commands, by default with all."""
    parser: argparse.ArgumentParser = CommandParser(
        prog="dohle",
        description="dohle is Kafka in Python: a durable, partitioned commit log that speaks "
        "Kafka's protocol and keeps Kafka's files.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"dohle {__version__}")
    add_global_options(parser)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in names:
        import_module(f"dohle.cli.commands.{MODULES[name]}").add_parser(commands)
    add_aliases(parser)
    return parser
