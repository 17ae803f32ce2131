"""``dohle start``: open a node's data directories, and for now close them again.

There is no listener yet: the command formats, recovers and reports, and says so.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from dohle.cli.errors import CliError

if TYPE_CHECKING:
    from dohle.storage.log_manager import LogManager

_DEFAULT_NODE_ID = 1
_NODE_ID_MAX = (1 << 31) - 1
_DESCRIPTION = """\
Open the data directories of a node: format them if they are empty, recover
them if the last stop was not clean, and tell what is in them. This version
does not listen on the network yet: it closes the directories and ends.
"""
_EXAMPLES = """\
examples:
  dohle start
  dohle start --node-id 2 --data /disk1/dohle --data /disk2/dohle
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "start",
        help="open a node's data (no network yet)",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--data",
        action="append",
        metavar="DIR",
        help="a data directory (log.dirs in Kafka); give it more than once for several "
        "(default: ./data)",
    )
    parser.add_argument(
        "--node-id",
        type=_node_id,
        metavar="ID",
        help="this node's id; must be the one in meta.properties if the directory has one "
        f"(default: that one, or {_DEFAULT_NODE_ID})",
    )
    parser.set_defaults(run=run)


def _node_id(text: str) -> int:
    if not text.isdecimal() or int(text) > _NODE_ID_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to {_NODE_ID_MAX}")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Open, report, close."""
    import logging

    from dohle.core.errors import KafkaError
    from dohle.core.ids import BrokerId
    from dohle.core.seams import SystemClock, system_rng
    from dohle.core.uuid import random_uuid, uuid_to_text
    from dohle.storage.files import OsFileSystem
    from dohle.storage.log_directory import LogDirectoryInUse
    from dohle.storage.log_manager import Identity, LogManager
    from dohle.storage.meta_properties import InvalidMetaProperties, load_ensemble

    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stderr)
    paths: list[str] = args.data or ["./data"]
    fs, rng = OsFileSystem(), system_rng()
    found = load_ensemble(fs, paths)
    node_id = args.node_id if args.node_id is not None else found.node_id
    identity = Identity(
        found.cluster_id or uuid_to_text(random_uuid(rng)),
        BrokerId(_DEFAULT_NODE_ID if node_id is None else node_id),
    )
    manager = LogManager(fs, clock=SystemClock(), rng=rng)
    try:
        manager.open(paths, identity)
    except (InvalidMetaProperties, LogDirectoryInUse, KafkaError) as error:
        raise CliError(error.args[0]) from None
    directories = list(manager.directories)
    try:
        print(f"node id: {identity.node_id}\ncluster id: {identity.cluster_id}")
        _report(manager, new=found.empty_dirs)
    finally:
        manager.close()
    print("this version does not listen on the network yet: closed again", file=sys.stderr)
    return 1 if manager.offline or any(one.failure for one in directories) else 0


def _report(manager: LogManager, new: tuple[str, ...]) -> None:
    for directory in manager.online_directories:
        state = "was closed cleanly" if directory.had_clean_shutdown else "was not closed cleanly"
        state = "new" if directory.path in new else state
        print(f"data directory: {directory.path} ({state}), partitions: {len(directory.logs)}")
        for log in sorted(directory.logs.values(), key=lambda log: log.partition):
            print(
                f"  {log.partition}: start offset {log.log_start_offset}, "
                f"end offset {log.log_end_offset}, {log.size} bytes, segments: {len(log.segments)}"
            )
