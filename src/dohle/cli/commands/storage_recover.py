"""``dohle storage recover-metadata``: topics back from their folders, shown first, then written."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dohle.cli.errors import CliError, describe_os_error
from dohle.cli.options import Commands, add_command, add_data_option, add_json_option, node_id

if TYPE_CHECKING:
    from dohle.metadata.recovery import RecoveredTopic
    from dohle.server.quorum.recovery import RecoveryPlan

_DESCRIPTION = """\
Rebuild a metadata log that is missing, cut or damaged, from what is left of it and
from the partition folders: names, topic ids and partitions. meta.properties is
rebuilt too. Without --apply it only shows what it would write. The old metadata
log is kept beside the new one, in a folder that ends in -stray.
"""
_EXAMPLES = """\
examples:
  dohle storage recover-metadata                       what can be had back?
  dohle storage recover-metadata --apply               write it; the broker must be stopped
  dohle storage recover-metadata --config server.properties --json

exit codes: 0 done, or there is nothing to recover; 1 failed
"""


def add_parser(family: Commands) -> None:
    """Declare the command."""
    parser = add_command(
        family,
        "recover-metadata",
        "rebuild a lost metadata log from the partition folders",
        _DESCRIPTION,
        _EXAMPLES,
    )
    parser.add_argument("-c", "--config", metavar="FILE", help="a server.properties")
    add_data_option(parser, "the file's, or ./data")
    parser.add_argument("--apply", action="store_true", help="write what is shown")
    parser.add_argument(
        "-t",
        "--cluster-id",
        metavar="ID",
        help="for directories without meta.properties (default: that of the other directories, or "
        "a new one)",
    )
    parser.add_argument(
        "--node-id",
        type=node_id,
        metavar="ID",
        help="default: that of the directories or of the metadata, or the file's, or 1",
    )
    add_json_option(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Show what can be rebuilt, and write it if that was asked for."""
    from dohle.cli.commands.node_properties import lay_over, load_config, read_properties
    from dohle.core.ids import BrokerId
    from dohle.core.seams import SystemClock, system_rng
    from dohle.server.quorum.recovery import plan_recovery
    from dohle.storage.directory.directory import LogDirectoryInUse
    from dohle.storage.files import OsFileSystem

    file = {} if args.config is None else read_properties(args.config)
    properties = lay_over(file, data=args.data)
    config, _ = load_config(properties)
    is_named = not properties.keys().isdisjoint(("node.id", "broker.id"))
    wanted = config.node_id if is_named and args.node_id is None else args.node_id
    fs, rng = OsFileSystem(), system_rng()
    try:
        plan = plan_recovery(
            fs,
            rng,
            config,
            config.log_dirs,
            config.metadata_log_dir,
            cluster_id=args.cluster_id,
            node_id=None if wanted is None else BrokerId(wanted),
        )
        if args.apply:
            plan.apply(fs, rng, SystemClock().now_ms())
    except LogDirectoryInUse as error:
        raise CliError(str(error)) from None
    except OSError as error:
        raise CliError(describe_os_error(error)) from None
    _show(plan, as_json=args.json, applied=args.apply)
    return 0


def _show(plan: RecoveryPlan, *, as_json: bool, applied: bool) -> None:
    from dohle.cli.output import print_json, print_table

    rows = [_row(topic) for topic in plan.metadata.topics] if plan.problem else []
    if as_json:
        print_json(
            {
                "problem": plan.problem,
                "applied": applied,
                "clusterId": plan.cluster_id,
                "nodeId": plan.node_id,
                "metaProperties": sorted(plan.unidentified),
                "topics": rows,
                "leftOut": [str(key) for key, _ in plan.metadata.left_out],
            }
        )
        return
    for line in _sentences(plan):
        print(line)
    if rows:
        print()
        print_table(rows, if_empty="")
        print()
    if plan.problem is None and not plan.unidentified:
        print("there is nothing to recover")
    elif applied:
        print("written: the broker can be started")
    else:
        print("nothing was changed: --apply writes this")


def _row(topic: RecoveredTopic) -> dict[str, object]:
    from dohle.core.uuid import uuid_to_text

    return {
        "topic": topic.name,
        "partitions": topic.partitions,
        "topicId": uuid_to_text(topic.id),
        "from": "metadata" if topic.was_known else "folders",
        "size": topic.size,
        "configs": "kept" if topic.has_configs else "lost",
        "empty": ",".join(map(str, topic.without_folder)),
    }


def _sentences(plan: RecoveryPlan) -> Iterator[str]:
    if plan.problem is not None:
        yield plan.problem
        if plan.skipped:
            yield f"{plan.skipped} records of the old metadata log could not be used"
        for key, why in plan.metadata.left_out:
            yield f"{key} stays out of it: {why}"
        if any(not topic.has_configs for topic in plan.metadata.topics):
            yield (
                "topics whose configs are lost keep their records for good (retention.ms=-1) until "
                "`dohle config alter` says otherwise"
            )
    for path in sorted(plan.unidentified):
        yield f"{path} gets a meta.properties: cluster {plan.cluster_id}, node {plan.node_id}"
