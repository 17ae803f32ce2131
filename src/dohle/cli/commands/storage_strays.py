"""``dohle storage strays``: list, restore or delete the folders that a start has set aside."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from typing import TYPE_CHECKING

from dohle.cli.errors import CliError, UsageError, describe_os_error
from dohle.cli.options import Commands, add_command, add_data_option, add_json_option

if TYPE_CHECKING:
    from dohle.core.config.static import BrokerConfig
    from dohle.core.ids import TopicName, Uuid
    from dohle.storage.directory.strays import Stray
    from dohle.storage.files import FileSystem

_DESCRIPTION = """\
Folders whose name ends in -stray: logs that the metadata did not know when a broker
started. They are kept and not served. Without an action they are listed. `restore`
gives a folder its name back (the broker must be stopped), `delete` removes it for
good.
"""
_EXAMPLES = """\
examples:
  dohle storage strays
  dohle storage strays restore orders-0.4f8c2d1a9b3e47f0a1c5d6e7f8091a2b-stray
  dohle storage strays restore --all
  dohle storage strays delete --all --data /disk1/kafka
"""


def add_parser(family: Commands) -> None:
    """Declare the command."""
    parser = add_command(
        family, "strays", "list, restore or delete folders set aside", _DESCRIPTION, _EXAMPLES
    )
    parser.add_argument("action", nargs="?", choices=("list", "restore", "delete"), default="list")
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help="names of stray folders")
    parser.add_argument("--all", action="store_true", help="all of them")
    parser.add_argument("-c", "--config", metavar="FILE", help="a server.properties")
    add_data_option(parser, "the file's, or ./data")
    add_json_option(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """List the folders, or do what is asked for with some of them."""
    from dohle.cli.commands.node_properties import lay_over, load_config, read_properties
    from dohle.storage.directory.strays import list_strays
    from dohle.storage.files import OsFileSystem

    file = {} if args.config is None else read_properties(args.config)
    config, _ = load_config(lay_over(file, data=args.data))
    directories = list(dict.fromkeys([*config.log_dirs, config.metadata_log_dir]))
    fs = OsFileSystem()
    try:
        strays = list_strays(fs, directories)
        if args.action == "list":
            _list(strays, as_json=args.json)
            return 0
        chosen = _chosen(args, strays)
        if args.action == "delete":
            for stray in chosen:
                fs.remove_tree(stray.path)
                print(f"{stray.path}: deleted")
        else:
            _restore(fs, config, directories, chosen)
    except OSError as error:
        raise CliError(describe_os_error(error)) from None
    return 0


def _list(strays: list[Stray], *, as_json: bool) -> None:
    from dohle.cli.output import print_rows
    from dohle.core.uuid import uuid_to_text

    rows: list[dict[str, object]] = [
        {
            "directory": stray.directory,
            "folder": stray.name,
            "topic": stray.partition.topic,
            "partition": stray.partition.partition,
            "topicId": None if stray.topic_id is None else uuid_to_text(stray.topic_id),
            "size": stray.size,
        }
        for stray in strays
    ]
    print_rows(rows, as_json=as_json, if_empty="there are no stray folders")


def _chosen(args: argparse.Namespace, strays: list[Stray]) -> list[Stray]:
    if args.all == bool(args.folders):
        raise UsageError(f"{args.action} needs the names of folders, or --all")
    if args.all:
        return strays
    names = [folder.rstrip("/").rpartition("/")[2] for folder in args.folders]
    unknown = [name for name in names if name not in {stray.name for stray in strays}]
    if unknown:
        raise CliError(f"{', '.join(unknown)}: there is no such stray folder")
    return [stray for stray in strays if stray.name in names]


def _restore(
    fs: FileSystem, config: BrokerConfig, directories: list[str], chosen: list[Stray]
) -> None:
    from dohle.core.seams import system_rng
    from dohle.core.uuid import random_uuid
    from dohle.server.quorum.metadata_log import METADATA_PARTITION
    from dohle.server.quorum.survey import read_surviving, survey
    from dohle.storage.directory.partition_dirs import partition_dir_name
    from dohle.storage.directory.strays import NotRestorable, ensure_restorable, restore
    from dohle.storage.files import join

    with ExitStack() as locks:
        for path in directories:
            try:
                locks.callback(fs.lock(join(path, ".lock")).release)
            except BlockingIOError:
                raise CliError(f"{path} is in use: stop the broker first") from None
        try:
            ensure_restorable(fs, chosen, directories)
        except NotRestorable as error:
            raise CliError(str(error)) from None
        log = survey(fs, join(config.metadata_log_dir, partition_dir_name(METADATA_PARTITION)))
        metadata = read_surviving(fs, log)
        rng, are_known = system_rng(), True
        new_ids: dict[TopicName, Uuid] = {}
        for stray in chosen:
            topic = metadata.image.topic(stray.partition.topic)
            are_known &= topic is not None and topic.id == stray.topic_id
            new_id = None
            if metadata.removed.has(stray.topic_id, stray.partition.topic):
                # The topic of that id was deleted, and ids are not used again.
                new_id = new_ids.setdefault(stray.partition.topic, random_uuid(rng))
            print(f"{stray.path}: restored as {restore(fs, stray, new_id)}")
    if chosen and not are_known:
        print(
            "The metadata log does not know of all of them: `dohle storage recover-metadata` shows "
            "how it would take them in, and does so with --apply."
        )
