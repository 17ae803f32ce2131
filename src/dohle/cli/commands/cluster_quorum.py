"""``dohle cluster quorum``: who votes in the quorum of controllers, and how far each is."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dohle.cli import admin_parts
from dohle.cli.options import Commands, add_client_options, add_command
from dohle.cli.session import with_part

if TYPE_CHECKING:
    from dohle.client import QuorumDescription, QuorumReplica
    from dohle.client.admin.cluster import ClusterAdmin

_QUORUM = """\
Show who leads the quorum of controllers, who votes in it, who only reads its
log, and how far each is behind the leader.
"""
_QUORUM_EXAMPLES = """\
examples:
  dohle cluster quorum
  dohle cluster quorum --json | jq '.replicas[] | select(.lag > 0)'
"""


def add_parser(family: Commands) -> None:
    """Declare the command."""
    help = "show the controllers and how far they are"
    parser = add_command(family, "quorum", help, _QUORUM, _QUORUM_EXAMPLES)
    add_client_options(parser)
    parser.set_defaults(run=lambda args: with_part(args, admin_parts.cluster, _run))


async def _run(args: argparse.Namespace, admin: ClusterAdmin) -> int:
    from dohle.cli.output import print_fields, print_json, print_table

    quorum = await admin.describe_quorum()
    about = {
        "leaderId": quorum.leader_id,
        "leaderEpoch": quorum.leader_epoch,
        "highWatermark": quorum.high_watermark,
    }
    rows = [
        *(_row(quorum, one, is_voter=True) for one in quorum.voters),
        *(_row(quorum, one, is_voter=False) for one in quorum.observers),
    ]
    if args.json:
        print_json({**about, "replicas": rows})
        return 0
    print_fields(about)
    print()
    now_ms = max((one.last_fetch_ms for one in quorum.voters), default=-1)
    print_table([_for_people(row, now_ms) for row in rows], if_empty="none")
    return 0


def _for_people(row: dict[str, object], now_ms: int) -> dict[str, object]:
    """Show how long ago things happened; the leader tells its own time as that of its fetch."""
    shown: dict[str, object] = {}
    for name, value in row.items():
        if not name.endswith("Timestamp"):
            shown[name] = value
        elif isinstance(value, int):
            ago = None if value < 0 else f"{max(now_ms - value, 0)} ms ago"
            shown[name.removesuffix("Timestamp")] = ago
    return shown


def _row(quorum: QuorumDescription, one: QuorumReplica, *, is_voter: bool) -> dict[str, object]:
    from dohle.core.uuid import ZERO_UUID, uuid_to_text

    ends = [each.log_end_offset for each in quorum.voters if each.node_id == quorum.leader_id]
    leads = is_voter and one.node_id == quorum.leader_id
    return {
        "nodeId": one.node_id,
        "status": "Leader" if leads else "Follower" if is_voter else "Observer",
        "logEndOffset": one.log_end_offset,
        "lag": max(ends[0] - one.log_end_offset, 0) if ends and one.log_end_offset >= 0 else None,
        "lastFetchTimestamp": one.last_fetch_ms,
        "lastCaughtUpTimestamp": one.last_caught_up_ms,
        # Static voters are known by their ids alone.
        "directoryId": None if one.directory_id == ZERO_UUID else uuid_to_text(one.directory_id),
        "endpoints": ",".join(one.endpoints) or None,
    }
