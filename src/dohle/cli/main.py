"""The entry point of the ``dohle`` command: options, exit codes, and how a command may end.

- 0: done. 1: something failed, or a file is damaged. 2: the command line or a configuration is
  wrong.
- Ctrl-C ends with 130 and a closed pipe (``dohle ... | head``) with 141, as a shell reports the
  signals; both silently.
- Every failure is one line on stderr that begins with ``dohle: error:``.

Only argparse and the declarations of options are imported up front; a command imports what it
needs when it runs, so that ``--help`` and ``--version`` are quick.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from dohle import __version__
from dohle.cli.commands import (
    acl,
    cluster,
    configs,
    consume,
    doctor,
    group,
    log_dump,
    pipeline,
    produce,
    quota,
    start,
    storage,
    tier,
    topic,
    txn,
    user,
)
from dohle.cli.errors import CliError, describe_os_error, report_error
from dohle.cli.options import add_global_options
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
    parser = build_parser()
    if not (sys.argv[1:] if argv is None else argv):
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


def build_parser() -> argparse.ArgumentParser:
    """Return the parser with all commands."""
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
    start.add_parser(commands)
    topic.add_parser(commands)
    configs.add_parser(commands)
    produce.add_parser(commands)
    consume.add_parser(commands)
    group.add_parser(commands)
    txn.add_parser(commands)
    acl.add_parser(commands)
    user.add_parser(commands)
    quota.add_parser(commands)
    cluster.add_parser(commands)
    storage.add_parser(commands)
    tier.add_parser(commands)
    log_dump.add_parser(commands)
    pipeline.add_parser(commands)
    doctor.add_parser(commands)
    add_aliases(parser)
    return parser
