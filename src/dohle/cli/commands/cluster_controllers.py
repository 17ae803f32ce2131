"""``dohle cluster add-controller`` and ``remove-controller``: who votes in the quorum (KIP-853)."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, NamedTuple

from dohle.cli import admin_parts
from dohle.cli.errors import CliError, UsageError
from dohle.cli.options import Commands, add_client_options, add_command, node_id
from dohle.cli.session import with_part

if TYPE_CHECKING:
    from dohle.client import VoterKey
    from dohle.client.admin.cluster import ClusterAdmin
    from dohle.client.net.addresses import Address
    from dohle.core.ids import Uuid

_ADD = """\
Let a controller vote in the quorum. It must run, formatted with
--no-initial-controllers, and have read the log of the quorum; the voters must be
in the metadata log (kraft.version 1).
"""
_ADD_EXAMPLES = """\
examples:
  dohle cluster add-controller --config controller.properties
  dohle cluster add-controller 4@10.0.0.4:9093:JEXY6aqzQY-32P5TStzaFg
"""
_REMOVE = """\
Let a controller not vote any more, whether it runs or not. The voters must be in
the metadata log (kraft.version 1).
"""
_REMOVE_EXAMPLES = """\
examples:
  dohle cluster remove-controller 4
  dohle cluster remove-controller 4 --directory-id JEXY6aqzQY-32P5TStzaFg
"""
_LISTENER_DEFAULT = "CONTROLLER"


class _Added(NamedTuple):
    key: VoterKey
    endpoints: dict[str, Address]


def add_parsers(family: Commands) -> None:
    """Declare the commands."""
    help = "let a controller vote in the quorum"
    parser = add_command(family, "add-controller", help, _ADD, _ADD_EXAMPLES)
    parser.add_argument(
        "controller",
        nargs="?",
        metavar="ID@HOST:PORT:DIRECTORY",
        help="the controller, its address, and the directory.id of its metadata log",
    )
    parser.add_argument(
        "-c", "--config", metavar="FILE", help="take that from its configuration and its directory"
    )
    parser.add_argument(
        "--listener-name",
        metavar="NAME",
        help=f"the listener of the address (default: {_LISTENER_DEFAULT})",
    )
    add_client_options(parser)
    parser.set_defaults(run=_run_add)

    help = "take a controller out of the quorum"
    parser = add_command(family, "remove-controller", help, _REMOVE, _REMOVE_EXAMPLES)
    parser.add_argument("controller", type=node_id, metavar="ID", help="the controller's id")
    parser.add_argument(
        "--directory-id",
        type=_directory_id,
        metavar="DIRECTORY",
        help="the directory.id of its metadata log (default: that of the voter with this id)",
    )
    add_client_options(parser)
    parser.set_defaults(run=lambda args: with_part(args, admin_parts.cluster, _remove))


def _directory_id(text: str) -> Uuid:
    from dohle.core.uuid import uuid_from_text

    try:
        return uuid_from_text(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _run_add(args: argparse.Namespace) -> int:
    if (args.controller is None) == (args.config is None):
        raise UsageError("name the controller as ID@HOST:PORT:DIRECTORY, or pass its --config")
    if args.config is not None and args.listener_name is not None:
        raise UsageError("the --config has the names of its listeners: leave out --listener-name")
    added = _from_file(args.config) if args.config else _named(args.controller, args.listener_name)

    async def add(args: argparse.Namespace, admin: ClusterAdmin) -> int:
        await admin.add_voter(added.key, added.endpoints)
        _print(args, added.key, "added")
        return 0

    return with_part(args, admin_parts.cluster, add)


def _named(text: str, listener: str | None) -> _Added:
    from dohle.cli.commands.storage_quorum import parse_voter
    from dohle.client import VoterKey
    from dohle.client.net.addresses import Address

    try:
        voter = parse_voter(text, listener or _LISTENER_DEFAULT)
    except ValueError as error:
        raise UsageError(f"{text}: {error}") from None
    endpoints = {name: Address(host, port) for name, host, port in voter.endpoints}
    return _Added(VoterKey(voter.id, voter.directory_id), endpoints)


def _from_file(path: str) -> _Added:
    from dohle.cli.commands.node_properties import load_config, read_properties
    from dohle.client import VoterKey
    from dohle.client.net.addresses import Address
    from dohle.storage.directory.meta_properties import InvalidMetaProperties, read_meta_properties
    from dohle.storage.files import OsFileSystem

    config, _ = load_config(read_properties(path))
    listeners = config.placement.advertised_controller_listeners
    if not listeners:
        raise UsageError(f"{path}: this node is not a controller that others can reach")
    try:
        found = read_meta_properties(OsFileSystem(), config.metadata_log_dir)
    except FileNotFoundError:
        raise CliError(f"{config.metadata_log_dir} is not formatted: format it first") from None
    except InvalidMetaProperties as error:
        raise CliError(str(error)) from None
    if found.directory_id is None:
        raise CliError(f"{config.metadata_log_dir} has no directory.id: start the node first")
    endpoints = {one.name: Address(one.host or "localhost", one.port) for one in listeners}
    return _Added(VoterKey(config.node_id, found.directory_id), endpoints)


async def _remove(args: argparse.Namespace, admin: ClusterAdmin) -> int:
    from dohle.client import VoterKey
    from dohle.core.ids import BrokerId
    from dohle.core.uuid import ZERO_UUID

    directory = args.directory_id
    if directory is None:
        voters = (await admin.describe_quorum()).voters
        found = [one.directory_id for one in voters if one.node_id == args.controller]
        if not found:
            raise CliError(f"there is no voter {args.controller}; `dohle cluster quorum` shows all")
        directory = found[0]
        if directory == ZERO_UUID:
            raise CliError(
                "the voters of this quorum are in the configuration of its nodes "
                "(controller.quorum.voters), and stay: `dohle cluster features --upgrade "
                "kraft.version=1` takes them into the metadata log"
            )
    key = VoterKey(BrokerId(args.controller), directory)
    await admin.remove_voter(key)
    _print(args, key, "removed")
    return 0


def _print(args: argparse.Namespace, key: VoterKey, result: str) -> None:
    from dohle.cli.output import print_json
    from dohle.core.uuid import uuid_to_text

    directory = uuid_to_text(key.directory_id)
    if args.json:
        print_json({"nodeId": key.node_id, "directoryId": directory, "result": result})
    else:
        print(f"controller {key.node_id} with directory {directory}: {result}")
