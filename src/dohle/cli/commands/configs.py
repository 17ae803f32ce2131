"""``dohle config``: describe and alter the configs of topics and brokers.

Which configs do nothing on a broker of dohle's is for that broker to say: its documentation of a
config begins with that.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dohle.cli.errors import UsageError
from dohle.cli.options import Commands, add_client_options, add_command, add_family, pair
from dohle.cli.session import with_cluster

if TYPE_CHECKING:
    from dohle.client import Cluster, ConfigEntry, ConfigResource

_DESCRIBE = """\
Show the configs that were set: for the topic, for the broker, for all brokers,
or in the broker's file. With --all also those with their default. What has no
effect is marked, and the reason is below the table.
"""
_DESCRIBE_EXAMPLES = """\
examples:
  dohle config describe topic orders
  dohle config describe topic orders --all --docs
  dohle config describe broker 1 --synonyms
  dohle config describe broker --default
"""
_ALTER = """\
Change configs of a topic, of one broker, or (broker --default) of all brokers.
All changes of one command are made together, or none. Other configs stay
unchanged.
"""
_ALTER_EXAMPLES = """\
examples:
  dohle config alter topic orders --set retention.ms=60000 --delete segment.bytes
  dohle config alter topic orders --append cleanup.policy=compact
  dohle config alter broker 1 --set max.connections=1000
  dohle config alter broker --default --delete max.connections
"""


def add_parser(commands: Commands) -> None:
    """Declare the ``config`` family."""
    family = add_family(commands, "config", "show and change configs of topics and brokers")
    parser = add_command(family, "describe", "show configs", _DESCRIBE, _DESCRIBE_EXAMPLES)
    _add_resource(parser)
    parser.add_argument("--all", action="store_true", help="also those with their default")
    parser.add_argument("--synonyms", action="store_true", help="show all sources of each value")
    parser.add_argument(
        "--docs", action="store_true", help=("show the documentation of each config")
    )
    add_client_options(parser)
    parser.set_defaults(run=_run_describe)
    parser = add_command(family, "alter", "change configs", _ALTER, _ALTER_EXAMPLES)
    _add_resource(parser)
    for option, metavar, help in (
        ("--set", "NAME=VALUE", "set a config"),
        ("--append", "NAME=VALUE", "append a value to a list config"),
        ("--subtract", "NAME=VALUE", "remove a value from a list config"),
    ):
        parser.add_argument(option, type=pair, action="append", metavar=metavar, help=help)
    parser.add_argument(
        "--delete", action="append", metavar="NAME", help="reset a config to its default"
    )
    parser.add_argument(
        "--validate-only", action="store_true", help="only check whether it would succeed"
    )
    add_client_options(parser)
    parser.set_defaults(run=_run_alter)


def _add_resource(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=("topic", "broker"))
    parser.add_argument("name", nargs="?", help="the topic's name, or the broker's id")
    parser.add_argument(
        "--default", action="store_true", help="for broker: the configs of all brokers"
    )


def _resource(args: argparse.Namespace) -> ConfigResource:
    from dohle.client import ConfigResource, ResourceType

    if args.kind == "topic":
        if args.name is None or args.default:
            raise UsageError("give the topic's name: topic NAME (only brokers have --default)")
        return ConfigResource(ResourceType.TOPIC, args.name)
    if (args.name is None) != args.default:
        raise UsageError("give one of them: broker ID, or broker --default")
    if args.name is not None and not args.name.isdecimal():
        raise UsageError(f"a broker's id is a number, not {args.name!r}")
    return ConfigResource(ResourceType.BROKER, args.name or "")


def _run_describe(args: argparse.Namespace) -> int:
    resource = _resource(args)

    async def work(cluster: Cluster) -> int:
        from dohle.client import Admin

        results = await Admin(cluster).describe_configs(
            [resource], include_synonyms=args.synonyms, include_documentation=True
        )
        entries = sorted(results.one(), key=lambda entry: entry.name)
        _print_entries(args, [one for one in entries if args.all or not one.is_default])
        return 0

    return with_cluster(args, work)


def _print_entries(args: argparse.Namespace, entries: list[ConfigEntry]) -> None:
    from dohle.cli.output import print_json, print_table

    if args.json:
        for entry in entries:
            print_json(_to_json(args, entry))
        return
    rows = [_to_row(args, entry) for entry in entries]
    print_table(rows, if_empty="nothing is set; --all shows the defaults")
    for reason, names in _without_effect(entries).items():
        print(f"\nno effect, because {reason}: {', '.join(names)}")
    if args.docs:
        for entry in entries:
            print(f"\n{entry.name}: {entry.documentation or 'no documentation'}")


def _without_effect(entries: list[ConfigEntry]) -> dict[str, list[str]]:
    """Return the configs that do nothing, by the reason."""
    found: dict[str, list[str]] = {}
    for entry in entries:
        reason = _no_effect(entry)
        if reason:
            found.setdefault(reason, []).append(entry.name)
    return found


def _no_effect(entry: ConfigEntry) -> str:
    from dohle.core.config.definition import NO_EFFECT

    beginning, _, rest = (entry.documentation or "").partition(": ")
    return rest.partition(". ")[0].removesuffix(".") if beginning == NO_EFFECT else ""


def _to_row(args: argparse.Namespace, entry: ConfigEntry) -> dict[str, object]:
    row: dict[str, object] = {
        "name": entry.name,
        "value": "(hidden)" if entry.is_sensitive else entry.value,
        "source": entry.source.name,
        "isReadOnly": entry.is_read_only,
        "hasEffect": not _no_effect(entry),
    }
    if args.synonyms:
        row["synonyms"] = ", ".join(
            f"{one.source.name}:{one.name}={one.value}" for one in entry.synonyms
        )
    return row


def _to_json(args: argparse.Namespace, entry: ConfigEntry) -> dict[str, object]:
    fields: dict[str, object] = {
        "name": entry.name,
        "value": entry.value,
        "source": entry.source.name,
        "type": entry.type.name,
        "isReadOnly": entry.is_read_only,
        "isSensitive": entry.is_sensitive,
        "hasEffect": not _no_effect(entry),
    }
    if args.synonyms:
        fields["synonyms"] = [
            {"name": one.name, "value": one.value, "source": one.source.name}
            for one in entry.synonyms
        ]
    if args.docs:
        fields["documentation"] = entry.documentation
    return fields


def _run_alter(args: argparse.Namespace) -> int:
    resource = _resource(args)
    if not (args.set or args.delete or args.append or args.subtract):
        raise UsageError("nothing to alter: give --set, --delete, --append or --subtract")

    async def work(cluster: Cluster) -> int:
        from dohle.cli.output import print_json
        from dohle.client import Admin, AlterOp, ConfigChange

        changes = [ConfigChange(name, AlterOp.DELETE) for name in args.delete or ()]
        for op, pairs in (
            (AlterOp.SET, args.set),
            (AlterOp.APPEND, args.append),
            (AlterOp.SUBTRACT, args.subtract),
        ):
            changes += [ConfigChange(name, op, value) for name, value in pairs or ()]
        results = await Admin(cluster).incremental_alter_configs(
            {resource: changes}, validate_only=args.validate_only
        )
        results.ok()
        result = "valid" if args.validate_only else "altered"
        if args.json:
            print_json({"kind": args.kind, "name": resource.name, "result": result})
        else:
            print(f"{args.kind} {resource.name or '(default)'}: {result}")
        return 0

    return with_cluster(args, work)
