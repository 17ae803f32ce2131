"""``dohle doctor``: checks all that dohle needs, and says what to do about what is missing."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dohle.cli.options import (
    BOOTSTRAP_DEFAULT,
    Commands,
    add_client_options,
    add_command,
    add_data_option,
)

if TYPE_CHECKING:
    from dohle.cli.commands.doctor_checks import Check

_DESCRIPTION = """\
Check this machine: Python, the installed extras, the Java that Spark would use,
Spark itself (by starting it), ports of the loopback address, free space for the
data directory, the limit of open files, and the broker given with -b. Every
check that fails says what to do.
"""
_EXAMPLES = """\
examples:
  dohle doctor
  dohle doctor --no-spark --data /disk1/kafka
  dohle -b kafka-1:9092 doctor
  dohle doctor --json | jq -r 'select(.status == "failed") | .advice'

exit codes: 0 nothing needed is missing, 1 something is missing
"""


def add_parser(commands: Commands) -> None:
    """Declare the command."""
    parser = add_command(
        commands, "doctor", "check this machine and the broker", _DESCRIPTION, _EXAMPLES
    )
    add_data_option(parser)
    parser.add_argument(
        "--no-spark", action="store_true", help="do not start Spark, which takes some seconds"
    )
    add_client_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run all checks, then print the results."""
    from dohle.cli.commands import doctor_checks as checks
    from dohle.cli.commands.broker_check import check_broker

    found = [
        checks.check_python(),
        *checks.check_extras(),
        checks.check_java(),
        checks.check_spark(is_wanted=not args.no_spark),
        checks.check_loopback(),
        *(checks.check_disk(path) for path in args.data or ["./data"]),
        checks.check_open_files(),
        check_broker(args, is_needed=args.bootstrap != BOOTSTRAP_DEFAULT),
    ]
    _print(found, as_json=args.json)
    return 1 if any(one.status is checks.Status.FAILED for one in found) else 0


def _print(found: list[Check], *, as_json: bool) -> None:
    from dohle.cli.output import print_json, print_table

    if as_json:
        for one in found:
            print_json(one.as_fields())
        return
    rows = [one.as_fields() for one in found]
    for row in rows:
        del row["advice"]
    print_table(rows, if_empty="")
    for one in found:
        if one.advice:
            print(f"\n{one.name} ({one.status.value}): {one.advice}")
