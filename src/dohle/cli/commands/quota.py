"""``dohle quota``: list, set and remove client quotas."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dohle.cli import admin_parts
from dohle.cli.errors import UsageError
from dohle.cli.options import Commands, add_client_options, add_command, add_family
from dohle.cli.session import exit_code, report_failures, with_part

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dohle.client.admin.quotas import QuotaAdmin, QuotaEntity, QuotaFilter

_LIST = """\
List quotas: all of them, or those of a user, a client id, both, or an address. Of
several that apply to a client, that of its user and client id counts, then that of
its user, then that of its client id; a name before the default.
"""
_LIST_EXAMPLES = """\
examples:
  dohle quota list
  dohle quota list --user alice --json
  dohle quota list --default-client-id
"""
_SET = """\
Set quotas. producer_byte_rate and consumer_byte_rate are bytes a second that a broker
takes from, or gives to, all clients together that share the quota. Who exceeds them
is slowed down, and told so. request_percentage is the time that a broker works for
them, in percent of its loop; controller_mutation_rate is partitions a second that they
may have created and deleted; connection_creation_rate is connections a second that an
address may make to a broker. A default is for each that has no quota of its own.
"""
_SET_EXAMPLES = """\
examples:
  dohle quota set producer_byte_rate=1048576 --user alice
  dohle quota set consumer_byte_rate=2097152 --user alice --client-id reports
  dohle quota set producer_byte_rate=1048576 consumer_byte_rate=1048576 --default-user
  dohle quota set connection_creation_rate=20 --default-ip
"""
_REMOVE = """\
Remove quotas: those that are named, or all of the user, client id, both, or address.
"""
_REMOVE_EXAMPLES = """\
examples:
  dohle quota remove --user alice
  dohle quota remove producer_byte_rate --default-user
"""

_DEFAULT = "<default>"
#: The options that name whom a quota concerns, their types, and the columns of tables.
_TYPES = {"user": "user", "client_id": "client-id", "ip": "ip"}
_COLUMNS = {"user": "user", "client-id": "clientId", "ip": "ip"}


def add_parser(commands: Commands) -> None:
    """Declare the ``quota`` family."""
    family = add_family(commands, "quota", "list, set and remove client quotas")
    parser = add_command(family, "list", "list quotas", _LIST, _LIST_EXAMPLES)
    _add_entity(parser)
    add_client_options(parser)
    parser.set_defaults(run=lambda args: with_part(args, admin_parts.quotas, list_quotas))

    parser = add_command(family, "set", "set quotas", _SET, _SET_EXAMPLES)
    parser.add_argument("quotas", nargs="+", metavar="KEY=VALUE")
    _add_entity(parser)
    add_client_options(parser)
    parser.set_defaults(run=lambda args: with_part(args, admin_parts.quotas, set_quotas))

    parser = add_command(family, "remove", "remove quotas", _REMOVE, _REMOVE_EXAMPLES)
    parser.add_argument("keys", nargs="*", metavar="KEY", help="only these (default: all)")
    _add_entity(parser)
    add_client_options(parser)
    parser.set_defaults(run=lambda args: with_part(args, admin_parts.quotas, remove_quotas))


def _add_entity(parser: argparse.ArgumentParser) -> None:
    for option, kind in _TYPES.items():
        group = parser.add_mutually_exclusive_group()
        group.add_argument(f"--{kind}", dest=option, metavar="NAME", help=f"the {kind}")
        group.add_argument(
            f"--default-{kind}",
            action="store_true",
            help=f"every {kind} without a quota of its own",
        )


def _entity(args: argparse.Namespace) -> QuotaEntity:
    """Return whom the command line names; the parts are in the order of their types."""
    found: dict[str, str | None] = {}
    for option, kind in _TYPES.items():
        name = getattr(args, option)
        if name is not None:
            found[kind] = name
        elif getattr(args, f"default_{option}"):
            found[kind] = None
    return tuple(sorted(found.items(), key=lambda part: part[0]))


def _named(args: argparse.Namespace) -> QuotaEntity:
    entity = _entity(args)
    if not entity:
        raise UsageError(
            "say whose quotas: --user NAME, --client-id NAME, both, --ip ADDRESS, or defaults"
        )
    return entity


# Listing


async def list_quotas(args: argparse.Namespace, admin: QuotaAdmin) -> int:
    """Print one row per quota."""
    found = await admin.describe_client_quotas(_filters(args))
    _print(
        args,
        ((entity, key, value) for entity, keys in found.items() for key, value in keys.items()),
        if_empty="no quotas",
    )
    return 0


def _filters(args: argparse.Namespace) -> list[QuotaFilter]:
    from dohle.client.admin.quotas import QuotaFilter

    return [QuotaFilter(kind, name) for kind, name in _entity(args)]


def _print(
    args: argparse.Namespace,
    quotas: Iterable[tuple[QuotaEntity, str, float]],
    *,
    if_empty: str,
) -> None:
    from dohle.cli.output import print_rows

    rows: list[dict[str, object]] = []
    for entity, key, value in sorted(quotas, key=str):
        row: dict[str, object] = dict.fromkeys(_COLUMNS.values(), "")
        row |= {_COLUMNS[kind]: _DEFAULT if name is None else name for kind, name in entity}
        # Rates of bytes are whole numbers, and as such they are read.
        shown = int(value) if value == int(value) else value
        rows.append({**row, "key": key, "value": shown})
    print_rows(rows, as_json=args.json, if_empty=if_empty)


# Changing


async def set_quotas(args: argparse.Namespace, admin: QuotaAdmin) -> int:
    """Set quotas, and print those that are set."""
    entity = _named(args)
    values = dict(map(_value, args.quotas))
    results = await admin.alter_client_quotas({entity: values})
    done = report_failures(results)
    _print(
        args,
        ((each, key, value) for each in done for key, value in values.items()),
        if_empty="nothing was set",
    )
    return exit_code(results)


def _value(text: str) -> tuple[str, float]:
    key, separator, value = text.partition("=")
    try:
        number = float(value)
    except ValueError:
        separator = ""
    if not key or not separator:
        raise UsageError(f"{text!r} is not KEY=NUMBER, such as producer_byte_rate=1048576")
    return key, number


async def remove_quotas(args: argparse.Namespace, admin: QuotaAdmin) -> int:
    """Remove quotas, and print those that were there."""
    entity = _named(args)
    there = (await admin.describe_client_quotas(_filters(args), strict=True)).get(entity, {})
    gone = {key: value for key, value in there.items() if not args.keys or key in args.keys}
    results = await admin.alter_client_quotas({entity: dict.fromkeys(gone)} if gone else {})
    report_failures(results)
    kept = results.errors.keys()
    _print(
        args,
        ((entity, key, value) for key, value in gone.items() if entity not in kept),
        if_empty="there are no such quotas",
    )
    return exit_code(results)
