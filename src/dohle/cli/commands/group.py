"""``dohle group``: list, describe and delete groups, and reset their offsets."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dohle.cli import admin_parts
from dohle.cli.commands.group_reset import add_reset_offsets
from dohle.cli.errors import report_error
from dohle.cli.options import Commands, add_client_options, add_command, add_family
from dohle.cli.session import describe_kafka_error, exit_code, with_admin, with_part

if TYPE_CHECKING:
    from dohle.client import Admin
    from dohle.client.admin.groups import GroupAdmin
    from dohle.core.errors import KafkaError

_LIST = """\
List all groups: those of the classic and of the consumer protocol, and groups
without members that have committed offsets.
"""
_LIST_EXAMPLES = """\
examples:
  dohle group list
  dohle group list --state Stable --state Empty
  dohle group list --type consumer --json | jq -r .groupId
"""
_DESCRIBE = """\
Show groups: for each partition the committed offset, the end of the log, the lag
between them and the member that reads it. With --members or --state show those
instead; JSON has everything.
"""
_DESCRIBE_EXAMPLES = """\
examples:
  dohle group describe billing
  dohle group describe billing --members
  dohle group describe --state
  dohle group describe billing --json | jq '[.partitions[].lag] | add'
"""
_DELETE = """\
Delete groups and their committed offsets. A group that has members is refused.
"""
_DELETE_EXAMPLES = """\
examples:
  dohle group delete billing
  dohle group delete billing shipping --if-exists
"""


def add_parser(commands: Commands) -> None:
    """Declare the ``group`` family."""
    family = add_family(commands, "group", "list, describe and delete groups, reset their offsets")
    parser = add_command(family, "list", "list all groups", _LIST, _LIST_EXAMPLES)
    parser.add_argument(
        "--state",
        action="append",
        default=[],
        metavar="STATE",
        help="only groups in this state (Stable, Empty, ...); may be repeated",
    )
    parser.add_argument(
        "--type",
        action="append",
        default=[],
        choices=("classic", "consumer"),
        help="only groups with this protocol",
    )
    add_client_options(parser)
    parser.set_defaults(run=lambda args: with_part(args, admin_parts.groups, list_groups))
    help = "show offsets, lag and members"
    parser = add_command(family, "describe", help, _DESCRIBE, _DESCRIBE_EXAMPLES)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help="default: all groups")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--members", action="store_true", help="members and their assignments")
    what.add_argument("--state", action="store_true", help="state, coordinator and assignor")
    add_client_options(parser)
    parser.set_defaults(run=lambda args: with_admin(args, describe_groups))
    help = "delete groups and their offsets"
    parser = add_command(family, "delete", help, _DELETE, _DELETE_EXAMPLES)
    parser.add_argument("groups", nargs="+", metavar="GROUP")
    parser.add_argument(
        "--if-exists", action="store_true", help=("ignore groups that do not exist")
    )
    add_client_options(parser)
    parser.set_defaults(run=lambda args: with_part(args, admin_parts.groups, delete_groups))
    add_reset_offsets(family)


async def list_groups(args: argparse.Namespace, admin: GroupAdmin) -> int:
    """Print one row per group."""
    from dohle.cli.output import print_rows

    groups = await admin.list_groups(states=args.state, types=args.type)
    rows: list[dict[str, object]] = [
        {
            "groupId": group.group_id,
            "type": group.type,
            "state": group.state,
            "protocolType": group.protocol_type,
            "coordinator": group.coordinator_id,
        }
        for group in groups
    ]
    if_empty = "there are no groups; `dohle consume TOPIC --group G` creates one"
    print_rows(rows, as_json=args.json, if_empty=if_empty)
    return 0


async def describe_groups(args: argparse.Namespace, admin: Admin) -> int:
    """Print all details of groups."""
    from dohle.cli.commands.group_description import describe, print_descriptions

    names = args.groups or [group.group_id for group in await admin.list_groups()]
    results = await admin.describe_groups(names)
    found = [results.done[name] for name in names if name in results.done]
    descriptions = await describe(admin, found)
    print_descriptions(args, descriptions)
    for name, error in results.errors.items():
        report_error(_describe_error(name, error))
    return exit_code(results)


async def delete_groups(args: argparse.Namespace, admin: GroupAdmin) -> int:
    """Delete groups by name."""
    from dohle.core.errors import ErrorCode

    results = await admin.delete_groups(args.groups)
    failures = 0
    for name in args.groups:
        error = results.errors.get(name)
        if error is None:
            _tell(args, name, "deleted", "deleted")
        elif args.if_exists and error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            _tell(args, name, "missing", "does not exist")
        else:
            failures += 1
            report_error(_describe_error(name, error))
    return 1 if failures else 0


def _describe_error(name: str, error: KafkaError) -> str:
    from dohle.core.errors import ErrorCode

    if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
        return f"group {name} does not exist; `dohle group list` shows all groups"
    if error.code is ErrorCode.NON_EMPTY_GROUP:
        return f"group {name} has members: stop its consumers first ({error.code.name})"
    return describe_kafka_error(error)


def _tell(args: argparse.Namespace, name: str, result: str, text: str) -> None:
    from dohle.cli.output import print_json

    if args.json:
        print_json({"groupId": name, "result": result})
    else:
        print(f"{name}: {text}")
