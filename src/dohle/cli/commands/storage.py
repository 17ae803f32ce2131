"""``dohle storage``: format data directories, inspect them, and recover what was lost."""

from __future__ import annotations

import argparse
from os.path import abspath
from typing import TYPE_CHECKING, NamedTuple

from dohle.cli.commands import storage_recover, storage_strays
from dohle.cli.errors import CliError, UsageError
from dohle.cli.options import (
    Commands,
    add_command,
    add_data_option,
    add_family,
    add_json_option,
    node_id,
)

if TYPE_CHECKING:
    from dohle.core.config.static import BrokerConfig
    from dohle.storage.directory.meta_properties import MetaPropertiesEnsemble

_FORMAT = """\
Give data directories their identity: the cluster and the node they belong to.
`dohle start` does so by itself; use this to choose the ids.
"""
_FORMAT_EXAMPLES = """\
examples:
  dohle storage format
  dohle storage format --data /disk1/kafka --data /disk2/kafka --node-id 3
  dohle storage format --config server.properties --cluster-id MkU3OEVBNTcwNTJENDM2Qg
  dohle storage format --standalone --release-version 4.2
  dohle storage format -c broker.properties -t MkU3OEVBNTcwNTJENDM2Qg
  dohle storage format -t MkU3OEVBNTcwNTJENDM2Qg -I 1@a:9093:JEXY6aqzQY-32P5TStzaFg
"""
_INFO = """\
Show the identity of data directories, their partitions and sizes, and whether
they were closed cleanly. It only reads, and can be used while a node runs.
"""
_BACKUP = """\
Copy the data directories of a node, also of one that runs: as they are at one
moment, with all that was acknowledged before. The copy is a data directory: to
restore it, copy it to where the node keeps its data, or start a node on it.
A running node is asked over its metrics port (metrics.listener).
"""
_BACKUP_EXAMPLES = """\
examples:
  dohle storage backup /backups/monday
  dohle storage backup /backups/monday --data /disk1/kafka --data /disk2/kafka
  dohle storage backup /backups/monday -c server.properties --node 127.0.0.1:9645
  dohle start --data /backups/monday --listener 127.0.0.1:9093
"""
_INFO_EXAMPLES = """\
examples:
  dohle storage info
  dohle storage info --config server.properties
  dohle storage info --data /disk1/kafka --json | jq .partitions
"""


def add_parser(commands: Commands) -> None:
    """Declare the ``storage`` family."""
    family = add_family(commands, "storage", "format, inspect and recover data directories")
    parser = add_command(
        family, "format", "give directories their identity", _FORMAT, _FORMAT_EXAMPLES
    )
    _add_where(parser)
    parser.add_argument(
        "-t", "--cluster-id", type=_cluster_id, metavar="ID", help="default: a new random one"
    )
    parser.add_argument(
        "--node-id", type=node_id, metavar="ID", help="default: the file's node.id, or 1"
    )
    parser.add_argument(
        "-g",
        "--ignore-formatted",
        action="store_true",
        help="skip directories that are already formatted",
    )
    _add_beginning(parser)
    add_json_option(parser)
    parser.set_defaults(run=run_format)
    help = "show identity, partitions and sizes"
    parser = add_command(family, "info", help, _INFO, _INFO_EXAMPLES)
    _add_where(parser)
    add_json_option(parser)
    parser.set_defaults(run=run_info)
    _add_backup(family)
    storage_recover.add_parser(family)
    storage_strays.add_parser(family)


def _add_beginning(parser: argparse.ArgumentParser) -> None:
    quorum = parser.add_mutually_exclusive_group()
    quorum.add_argument(
        "-s",
        "--standalone",
        action="store_true",
        help="keep the quorum's voters in the metadata log (kraft.version 1): this node",
    )
    quorum.add_argument(
        "-I",
        "--initial-controllers",
        metavar="ID@HOST:PORT:DIRECTORY,...",
        help="keep the quorum's voters in the metadata log: these, the same for all nodes; "
        "DIRECTORY is an id that the metadata directory of that node gets",
    )
    quorum.add_argument(
        "-N",
        "--no-initial-controllers",
        action="store_true",
        help="keep the quorum's voters in the metadata log: this node gets them from controllers "
        "that are there already",
    )
    parser.add_argument(
        "-r",
        "--release-version",
        metavar="VERSION",
        help="begin with the feature levels of this release of Kafka (default: the newest)",
    )
    parser.add_argument(
        "-f",
        "--feature",
        action="append",
        type=_feature,
        default=[],
        metavar="NAME=LEVEL",
        help="begin with this level of a feature; may be repeated",
    )
    parser.add_argument(
        "-S",
        "--add-scram",
        action="append",
        default=[],
        metavar="MECHANISM=[name=USER,password=PASSWORD]",
        help="begin with this user, who logs in by SCRAM-SHA-256 or -512; instead of the password "
        "iterations, salt and saltedpassword (base64) may be given; may be repeated",
    )


def _feature(text: str) -> tuple[str, int]:
    name, _, level = text.partition("=")
    if not name or not (level.isascii() and level.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form name=level")
    return name, int(level)


def _add_backup(family: Commands) -> None:
    help = "copy the directories of a node, also of one that runs"
    parser = add_command(family, "backup", help, _BACKUP, _BACKUP_EXAMPLES)
    parser.add_argument(
        "target",
        metavar="TO",
        help="a folder that is empty or not there yet; with several directories, each gets one "
        "in it: 1, 2, ...",
    )
    _add_where(parser)
    parser.add_argument(
        "--node",
        metavar="HOST:PORT",
        default="127.0.0.1:9644",
        help="the metrics.listener of the node, if it runs (default: %(default)s)",
    )
    parser.set_defaults(run=run_backup)


def run_backup(args: argparse.Namespace) -> int:
    """Copy the directories."""
    from dohle.cli.commands.storage_backup import back_up

    back_up(_directories(args).paths, args.target, args.node)
    return 0


def _add_where(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-c", "--config", metavar="FILE", help="a server.properties")
    add_data_option(parser, "the file's, or ./data")


def _cluster_id(text: str) -> str:
    if not text or text != text.strip() or not text.isprintable():
        raise argparse.ArgumentTypeError(f"{text!r} is not a cluster id")
    return text


class _Directories(NamedTuple):
    paths: list[str]
    #: The directory of the metadata log, which is one of them.
    metadata_path: str
    #: The id in the file, if there is one.
    node_id: int | None
    config: BrokerConfig | None = None


def _directories(args: argparse.Namespace) -> _Directories:
    """Return the directories that the command applies to."""
    from dohle.cli.commands.node_properties import (
        DATA_DEFAULT,
        lay_over,
        load_config,
        read_properties,
    )

    if args.config is None:
        paths = args.data or [DATA_DEFAULT]
        return _Directories(paths, paths[0], None)
    properties = lay_over(read_properties(args.config), data=args.data)
    config, _ = load_config(properties)
    is_named = not properties.keys().isdisjoint(("node.id", "broker.id"))
    paths = list(config.log_dirs)
    same = [each for each in paths if abspath(each) == abspath(config.metadata_log_dir)]
    if not same:
        same = [config.metadata_log_dir]
        paths += same
    return _Directories(paths, same[0], config.node_id if is_named else None, config)


def run_format(args: argparse.Namespace) -> int:
    """Format the directories that are not formatted."""
    from dohle.cli.commands.storage_format import NODE_ID_DEFAULT, Formatter, beginning
    from dohle.cli.commands.storage_quorum import AskedFor, plan_quorum
    from dohle.cli.output import print_json
    from dohle.core.ids import BrokerId
    from dohle.storage.directory.meta_properties import InvalidMetaProperties, load_ensemble
    from dohle.storage.files import OsFileSystem

    paths, metadata_path, file_node_id, config = _directories(args)
    if len(set(paths)) < len(paths):
        raise UsageError("a directory is given twice")
    fs = OsFileSystem()
    found = load_ensemble(fs, paths)
    _refuse_unreadable(found)
    if found.properties and not args.ignore_formatted:
        first = next(iter(found.properties))
        raise CliError(
            f"Log directory {first} is already formatted. Use --ignore-formatted to ignore this "
            "directory and format the others."
        )
    wanted = file_node_id if args.node_id is None else args.node_id
    node = found.node_id if wanted is None else BrokerId(wanted)
    asked = AskedFor(args.standalone, args.initial_controllers, args.no_initial_controllers)
    node = NODE_ID_DEFAULT if node is None else node
    plan = plan_quorum(asked, node, None if config is None else config.placement)
    begin = beginning(args.release_version, args.feature, plan)
    if args.add_scram:
        from dohle.cli.commands.storage_scram import scram_records

        records = (*begin.bootstrap, *scram_records(args.add_scram))
        begin = begin._replace(bootstrap=records)
    cluster_id = args.cluster_id or found.cluster_id
    if cluster_id is None and _joins_others(args, config):
        raise UsageError(
            "You must specify the cluster id (--cluster-id): all nodes of a cluster have the same"
        )
    formatter = Formatter(fs, cluster_id, node, begin)
    try:
        found.verify(formatter.cluster_id, formatter.node_id)
    except InvalidMetaProperties as error:
        raise CliError(str(error)) from None
    for path in paths:
        is_new = path in found.empty_dirs
        if is_new:
            formatter.format(path, has_metadata=path == metadata_path)
        fields = {
            "directory": path,
            "result": "formatted" if is_new else "left as it was",
            "clusterId": formatter.cluster_id,
            "nodeId": formatter.node_id,
        }
        if args.json:
            print_json(fields)
        else:
            print(
                f"{path}: {fields['result']} (cluster {formatter.cluster_id}, "
                f"node {formatter.node_id})"
            )
    return 0


def _joins_others(args: argparse.Namespace, config: BrokerConfig | None) -> bool:
    """Tell whether the node is to be one of several."""
    if args.initial_controllers is not None or args.no_initial_controllers:
        return True
    return config is not None and not config.placement.is_alone


def _refuse_unreadable(found: MetaPropertiesEnsemble) -> None:
    for path, error in found.failed_dirs.items():
        reason = error.strerror if isinstance(error, OSError) else None
        raise CliError(f"{path}: {reason}" if reason else str(error))


def run_info(args: argparse.Namespace) -> int:
    """Show each directory."""
    from dohle.cli.commands.storage_info import describe_directory, print_directory

    paths = _directories(args).paths
    in_order = True
    for number, path in enumerate(paths):
        found = describe_directory(path)
        in_order &= found["problem"] is None
        print_directory(found, as_json=args.json, is_first=number == 0)
    return 0 if in_order else 1
