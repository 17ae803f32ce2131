"""``dohle acl``: list, add and remove ACLs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dohle.cli import admin_parts
from dohle.cli.errors import UsageError
from dohle.cli.options import Commands, add_client_options, add_command, add_family
from dohle.cli.session import exit_code, report_failures, with_part

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dohle.client.admin.acls import AclAdmin
    from dohle.core.acls import Acl, AclFilter

_LIST = """\
List ACLs: all of them, or those of a principal, and those bound to the resources
that are named. With --match also those with a prefix, and those for any name (*),
that apply to a resource of this name.
"""
_LIST_EXAMPLES = """\
examples:
  dohle acl list
  dohle acl list --principal User:alice --json
  dohle acl list --topic orders-2024 --match
"""
_ADD = """\
Add ACLs: each principal may do each operation on each resource. An ACL that is
there already stays. A broker obeys ACLs if authorizer.class.name is set.
"""
_ADD_EXAMPLES = """\
examples:
  dohle acl add --principal User:alice --operation read --topic orders --group billing
  dohle acl add --principal User:bob --operation all --topic logs- --prefixed
  dohle acl add --principal User:eve --operation all --topic '*' --deny
  dohle acl add --principal User:app --producer --topic orders
  dohle acl add --principal User:app --consumer --topic orders --group billing
"""
_REMOVE = """\
Remove the ACLs that match, and show them. What is not given matches anything;
--all removes every ACL there is.
"""
_REMOVE_EXAMPLES = """\
examples:
  dohle acl remove --principal User:alice --topic orders
  dohle acl remove --topic logs- --prefixed --operation write
  dohle acl remove --all
"""

_OPERATIONS = (
    "all",
    "read",
    "write",
    "create",
    "delete",
    "alter",
    "describe",
    "cluster_action",
    "describe_configs",
    "alter_configs",
    "idempotent_write",
    "create_tokens",
    "describe_tokens",
    "two_phase_commit",
)
#: The options that name resources, and their types.
_RESOURCES = {
    "topic": "TOPIC",
    "group": "GROUP",
    "transactional_id": "TRANSACTIONAL_ID",
    "delegation_token": "DELEGATION_TOKEN",
    "user": "USER",
}
_PRODUCER = {
    "TOPIC": ("write", "describe", "create"),
    "TRANSACTIONAL_ID": ("write", "describe"),
}
_CONSUMER = {"TOPIC": ("read", "describe"), "GROUP": ("read",)}


def add_parser(commands: Commands) -> None:
    """Declare the ``acl`` family."""
    family = add_family(commands, "acl", "list, add and remove ACLs")
    parser = add_command(family, "list", "list ACLs", _LIST, _LIST_EXAMPLES)
    _add_resources(parser)
    _add_filters(parser)
    parser.add_argument(
        "--match", action="store_true", help="all that apply to the resource, by whatever pattern"
    )
    add_client_options(parser)
    parser.set_defaults(run=lambda args: with_part(args, admin_parts.acls, list_acls))

    parser = add_command(family, "add", "add ACLs", _ADD, _ADD_EXAMPLES)
    _add_resources(parser)
    parser.add_argument(
        "--principal",
        action="append",
        required=True,
        metavar="TYPE:NAME",
        help="whom it concerns; User:* is everybody; may be repeated",
    )
    parser.add_argument(
        "--host",
        action="append",
        metavar="ADDRESS",
        help="the address it comes from, as numbers; default: any",
    )
    parser.add_argument(
        "--operation",
        action="append",
        type=_operation,
        default=[],
        metavar="OPERATION",
        help=f"{', '.join(_OPERATIONS)}; may be repeated",
    )
    parser.add_argument("--producer", action="store_true", help="what a producer needs")
    parser.add_argument("--consumer", action="store_true", help="what a consumer needs")
    parser.add_argument("--deny", action="store_true", help="deny it, whatever else allows it")
    add_client_options(parser)
    parser.set_defaults(run=lambda args: with_part(args, admin_parts.acls, add_acls))

    parser = add_command(family, "remove", "remove ACLs", _REMOVE, _REMOVE_EXAMPLES)
    _add_resources(parser)
    _add_filters(parser)
    parser.add_argument("--all", action="store_true", help="every ACL there is")
    add_client_options(parser)
    parser.set_defaults(
        run=lambda args: with_part(args, admin_parts.acls, remove_acls), match=False
    )


def _operation(text: str) -> str:
    """Understand it as Kafka's tools write it, too: Read, IdempotentWrite, CLUSTER_ACTION."""
    wanted = text.replace("_", "").lower()
    for name in _OPERATIONS:
        if name.replace("_", "") == wanted:
            return name
    raise argparse.ArgumentTypeError(f"there is no {text}: choose from {', '.join(_OPERATIONS)}")


def _add_resources(parser: argparse.ArgumentParser) -> None:
    for name in _RESOURCES:
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, action="append", default=[], metavar="NAME")
    parser.add_argument("--cluster", action="store_true", help="the cluster itself")
    parser.add_argument("--prefixed", action="store_true", help="names are prefixes of names")


def _add_filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--principal", metavar="TYPE:NAME", help="only those of a principal")
    parser.add_argument("--host", metavar="ADDRESS", help="only those of an address")
    parser.add_argument(
        "--operation",
        type=_operation,
        metavar="OPERATION",
        help=f"only those of an operation: {', '.join(_OPERATIONS)}",
    )
    parser.add_argument("--permission", choices=("allow", "deny"), help="only those that do so")


def _named(args: argparse.Namespace) -> list[tuple[str, str]]:
    """Return the resources that are named: their types and names."""
    from dohle.core.acls import CLUSTER_NAME

    found = [(kind, name) for option, kind in _RESOURCES.items() for name in getattr(args, option)]
    if args.cluster:
        found.append(("CLUSTER", CLUSTER_NAME))
    return found


# Listing


async def list_acls(args: argparse.Namespace, admin: AclAdmin) -> int:
    """Print one row per ACL."""
    acls: dict[Acl, None] = {}
    for wanted in _filters(args):
        acls.update(dict.fromkeys(await admin.describe_acls(wanted)))
    _print(args, acls, if_empty="no ACLs")
    return 0


def _filters(args: argparse.Namespace) -> list[AclFilter]:
    from dohle.core.acls import (
        AclFilter,
        AclOperation,
        AclPermission,
        AclResourceType,
        PatternType,
    )

    operation, permission = args.operation or "any", args.permission or "any"
    rest = (
        args.principal,
        args.host,
        AclOperation[operation.upper()],
        AclPermission[permission.upper()],
    )
    pattern = PatternType.PREFIXED if args.prefixed else PatternType.LITERAL
    if args.match:
        pattern = PatternType.MATCH
    named = _named(args)
    if not named:
        pattern = PatternType.PREFIXED if args.prefixed else PatternType.ANY
        return [AclFilter(AclResourceType.ANY, None, pattern, *rest)]
    return [AclFilter(AclResourceType[kind], name, pattern, *rest) for kind, name in named]


def _print(args: argparse.Namespace, acls: Iterable[Acl], *, if_empty: str) -> None:
    from dohle.cli.output import print_rows
    from dohle.core.acls import AclOperation, AclPermission, AclResourceType, PatternType

    rows: list[dict[str, object]] = [
        {
            "resourceType": AclResourceType(acl.resource_type).name,
            "resourceName": acl.resource_name,
            "patternType": PatternType(acl.pattern_type).name,
            "principal": acl.principal,
            "host": acl.host,
            "operation": AclOperation(acl.operation).name,
            "permissionType": AclPermission(acl.permission).name,
        }
        for acl in sorted(acls)
    ]
    print_rows(rows, as_json=args.json, if_empty=if_empty)


# Adding


async def add_acls(args: argparse.Namespace, admin: AclAdmin) -> int:
    """Add ACLs, and print those that are there now."""
    results = await admin.create_acls(_wanted(args))
    _print(args, report_failures(results), if_empty="nothing was added")
    return exit_code(results)


def _wanted(args: argparse.Namespace) -> list[Acl]:
    from dohle.core.acls import (
        ANY,
        Acl,
        AclOperation,
        AclPermission,
        AclResourceType,
        PatternType,
    )

    named = _named(args)
    if not named:
        raise UsageError("name a resource: --topic NAME, --group NAME, --cluster, ...")
    pattern = PatternType.PREFIXED if args.prefixed else PatternType.LITERAL
    permission = AclPermission.DENY if args.deny else AclPermission.ALLOW
    found: dict[Acl, None] = {}
    for kind, name in named:
        operations = dict.fromkeys(args.operation)
        if args.producer:
            operations.update(dict.fromkeys(_PRODUCER.get(kind, ())))
        if args.consumer:
            operations.update(dict.fromkeys(_CONSUMER.get(kind, ())))
        if not operations:
            raise UsageError(
                f"say what may be done to {kind.lower()} {name}: --operation, --producer or "
                "--consumer"
            )
        is_prefix = pattern if kind != "CLUSTER" else PatternType.LITERAL
        for principal in args.principal:
            for host in args.host or (ANY,):
                for operation in operations:
                    acl = Acl(
                        AclResourceType[kind],
                        name,
                        is_prefix,
                        principal,
                        host,
                        AclOperation[operation.upper()],
                        permission,
                    )
                    found[acl] = None
    return list(found)


# Removing


async def remove_acls(args: argparse.Namespace, admin: AclAdmin) -> int:
    """Remove ACLs, and print those that were there."""
    narrowing = (args.principal, args.host, args.operation, args.permission)
    if not args.all and not _named(args) and not any(narrowing):
        raise UsageError("say which ACLs are to be removed, or --all of them")
    results = await admin.delete_acls(_filters(args))
    removed = {acl: None for acls in report_failures(results).values() for acl in acls}
    _print(args, removed, if_empty="no ACL matches")
    return exit_code(results)
