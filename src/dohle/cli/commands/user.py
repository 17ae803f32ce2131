"""``dohle user``: users who log in by a password (SCRAM)."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from dohle.cli import admin_parts
from dohle.cli.errors import CliError, UsageError
from dohle.cli.options import Commands, add_client_options, add_command, add_family, positive
from dohle.cli.session import report_failures, with_part

if TYPE_CHECKING:
    from dohle.client.admin.users import UserAdmin
    from dohle.security.scram import ScramMechanism

#: Where the password of the user that is set comes from, if it is not asked for.
PASSWORD_VARIABLE = "DOHLE_USER_PASSWORD"
_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_LIST = """\
List the users that have a password, and for which mechanisms. Users of PLAIN are
in the configuration of the brokers, and not listed.
"""
_LIST_EXAMPLES = """\
examples:
  dohle user list
  dohle user list alice --json
"""
_SET = f"""\
Set the password of a user, who need not exist. The password is asked for, or in the
environment variable {PASSWORD_VARIABLE}; it does not leave this machine.
"""
_SET_EXAMPLES = """\
examples:
  dohle user set alice
  dohle user set alice --mechanism SCRAM-SHA-256 --iterations 8192
"""
_REMOVE = """\
Take the password of a user away. Who has logged in with it before stays so until
the connection or the session ends.
"""
_REMOVE_EXAMPLES = """\
examples:
  dohle user remove alice
"""


def add_parser(commands: Commands) -> None:
    """Declare the ``user`` family."""
    family = add_family(commands, "user", "list users, set and remove their passwords")
    parser = add_command(family, "list", "list users", _LIST, _LIST_EXAMPLES)
    parser.add_argument("users", nargs="*", metavar="USER", help="only these (default: all)")
    add_client_options(parser)
    parser.set_defaults(run=lambda args: with_part(args, admin_parts.users, _list))
    parser = add_command(family, "set", "set the password of a user", _SET, _SET_EXAMPLES)
    _add_mechanism(parser)
    parser.add_argument(
        "--iterations",
        type=positive,
        default=4096,
        help="how hard the password is to guess, from 4096 to 16384 (default: 4096)",
    )
    add_client_options(parser)
    parser.set_defaults(run=run_set)
    parser = add_command(
        family, "remove", "remove the password of a user", _REMOVE, _REMOVE_EXAMPLES
    )
    _add_mechanism(parser)
    add_client_options(parser)
    parser.set_defaults(run=lambda args: with_part(args, admin_parts.users, _remove))


def _add_mechanism(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("user", metavar="USER")
    parser.add_argument(
        "--mechanism",
        choices=_MECHANISMS,
        default="SCRAM-SHA-512",
        help="what the password is for (default: SCRAM-SHA-512)",
    )


def _mechanism(args: argparse.Namespace) -> ScramMechanism:
    from dohle.security.scram import MECHANISMS

    return MECHANISMS[args.mechanism]


async def _list(args: argparse.Namespace, admin: UserAdmin) -> int:
    from dohle.cli.output import print_rows

    results = await admin.describe_users(args.users)
    rows = [
        {"user": user, "mechanism": each.mechanism.sasl_name, "iterations": each.iterations}
        for user, passwords in sorted(report_failures(results).items())
        for each in passwords
    ]
    print_rows(rows, as_json=args.json, if_empty="no user has a password")
    return 1 if results.errors else 0


def run_set(args: argparse.Namespace) -> int:
    """Ask for the password before anybody is connected to."""
    from getpass import getpass

    password = os.environ.get(PASSWORD_VARIABLE)
    if password is None:
        password = getpass(f"New password of {args.user}: ")
        if getpass("The same again: ") != password:
            raise CliError("the two are not the same: nothing is changed")
    if not password:
        raise UsageError("the password is empty")
    given = password

    async def work(args: argparse.Namespace, admin: UserAdmin) -> int:
        await admin.set_password(args.user, _mechanism(args), given, args.iterations)
        return 0

    return with_part(args, admin_parts.users, work)


async def _remove(args: argparse.Namespace, admin: UserAdmin) -> int:
    await admin.remove_password(args.user, _mechanism(args))
    return 0
