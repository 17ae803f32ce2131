"""``dohle cluster brokers``, ``unregister`` and ``elect``: brokers, and what they lead."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dohle.cli.errors import CliError, UsageError
from dohle.cli.options import (
    Commands,
    add_client_options,
    add_command,
    node_id,
    topic_partitions,
)
from dohle.cli.session import exit_code, find_partitions, report_failures, with_admin

if TYPE_CHECKING:
    from dohle.client import Admin
    from dohle.core.ids import TopicPartition

_BROKERS = """\
List the brokers of the cluster, also those that are fenced: registered, but not
serving.
"""
_BROKERS_EXAMPLES = """\
examples:
  dohle cluster brokers
  dohle cluster brokers --json | jq 'select(.isFenced).id'
"""
_UNREGISTER = """\
Have the cluster forget a broker that will not come back. One that is alive, or
has replicas, is refused: stop it, and move its replicas away first. With --force
it is forgotten all the same: its replicas stay assigned to it, and if it is alive
it is of no use until it is restarted.
"""
_UNREGISTER_EXAMPLES = """\
examples:
  dohle cluster reassign plan --remove 3 -o plan.json
  dohle cluster reassign execute plan.json --wait
  dohle cluster unregister 3
"""
_ELECT = """\
Have leaders elected: the preferred ones (each partition's first replica, if it
is in sync), or with --unclean any replica of a partition that has no leader and
none in sync, at the price of records that this replica does not have.
"""
_ELECT_EXAMPLES = """\
examples:
  dohle cluster elect --all
  dohle cluster elect orders payments:0,3
  dohle cluster elect --unclean orders:2
"""


def add_parsers(family: Commands) -> None:
    """Declare the commands."""
    parser = add_command(family, "brokers", "list the brokers", _BROKERS, _BROKERS_EXAMPLES)
    add_client_options(parser)
    parser.set_defaults(run=lambda args: with_admin(args, _list))

    help = "forget a broker that is gone"
    parser = add_command(family, "unregister", help, _UNREGISTER, _UNREGISTER_EXAMPLES)
    parser.add_argument("broker", type=node_id, metavar="ID", help="the broker's id")
    parser.add_argument(
        "--force", action="store_true", help="although it is alive, or has replicas"
    )
    add_client_options(parser)
    parser.set_defaults(run=lambda args: with_admin(args, _unregister))

    parser = add_command(family, "elect", "elect leaders", _ELECT, _ELECT_EXAMPLES)
    parser.add_argument(
        "partitions",
        type=topic_partitions,
        nargs="*",
        metavar="TOPIC[:0,1]",
        help="topics, or some of their partitions",
    )
    parser.add_argument("--all", action="store_true", help="all partitions of the cluster")
    parser.add_argument(
        "--unclean", action="store_true", help="elect replicas that are not in sync: loses records"
    )
    add_client_options(parser)
    parser.set_defaults(run=_run_elect)


async def _list(args: argparse.Namespace, admin: Admin) -> int:
    from dohle.cli.output import print_rows

    described = await admin.describe_cluster(include_fenced=True)
    rows = [
        {
            "id": one.node_id,
            "host": one.host,
            "port": one.port,
            "rack": one.rack,
            "isFenced": one.is_fenced,
        }
        for one in described.brokers
    ]
    print_rows(rows, as_json=args.json, if_empty="no brokers")
    return 0


async def _unregister(args: argparse.Namespace, admin: Admin) -> int:
    from dohle.cli.output import print_json

    if not args.force:
        await _check_is_gone(args.broker, admin)
    await admin.unregister_broker(args.broker)
    if args.json:
        print_json({"id": args.broker, "result": "unregistered"})
    else:
        print(f"broker {args.broker} is not a part of the cluster any more")
    return 0


async def _check_is_gone(broker: int, admin: Admin) -> None:
    """Refuse to forget a broker that is alive, or that partitions count on."""
    described = await admin.describe_cluster(include_fenced=True)
    known = [one for one in described.brokers if one.node_id == broker]
    if not known:
        return
    count = sum(
        broker in partition.replicas
        for topic in (await admin.list_topics()).values()
        for partition in topic.partitions.values()
    )
    reasons, advice = [], []
    if not known[0].is_fenced:
        reasons.append("is alive")
        advice.append("stop it")
    if count:
        reasons.append(f"has replicas of {count} partitions")
        advice.insert(0, f"move them (`dohle cluster reassign plan --remove {broker}`)")
    if reasons:
        raise CliError(
            f"broker {broker} {' and '.join(reasons)}: {' and '.join(advice)} first, or pass"
            " --force"
        )


def _run_elect(args: argparse.Namespace) -> int:
    if args.all == bool(args.partitions):
        raise UsageError("name the topics whose leaders are to be elected, or pass --all")
    return with_admin(args, _elect)


async def _elect(args: argparse.Namespace, admin: Admin) -> int:
    from dohle.cli.output import print_rows
    from dohle.client import ElectionType

    partitions: list[TopicPartition] | None = None
    if not args.all:
        partitions = []
        for topic, numbers in args.partitions:
            partitions += await find_partitions(admin, topic, numbers)
    kind = ElectionType.UNCLEAN if args.unclean else ElectionType.PREFERRED
    results = await admin.elect_leaders(kind, partitions)
    rows = [
        {
            "topic": key.topic,
            "partition": key.partition,
            "result": "elected" if needed else "not needed",
        }
        for key, needed in sorted(report_failures(results).items())
    ]
    print_rows(rows, as_json=args.json, if_empty="no partition needed an election")
    return exit_code(results)
