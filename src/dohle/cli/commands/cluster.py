"""``dohle cluster``: what it is, and its commands; here ``dohle cluster info``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dohle.cli.commands import (
    cluster_brokers,
    cluster_controllers,
    cluster_features,
    cluster_quorum,
    cluster_reassign,
)
from dohle.cli.options import Commands, add_client_options, add_command, add_family
from dohle.cli.session import with_cluster

if TYPE_CHECKING:
    from dohle.client import Admin, Cluster, QuorumDescription

_INFO = """\
Show the cluster's id, its active controller, its brokers and its features; with -v
also which requests the broker answers, in which versions.
"""
_INFO_EXAMPLES = """\
examples:
  dohle cluster info
  dohle -b kafka-1:9092,kafka-2:9092 cluster info -v
  dohle cluster info --json | jq -r .clusterId
"""


def add_parser(commands: Commands) -> None:
    """Declare the ``cluster`` family."""
    family = add_family(commands, "cluster", "look at a cluster and change it")
    parser = add_command(
        family, "info", "show id, controller, brokers and features", _INFO, _INFO_EXAMPLES
    )
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help=("also show the APIs and versions that the broker serves"),
    )
    add_client_options(parser)
    parser.set_defaults(run=run)
    cluster_quorum.add_parser(family)
    cluster_controllers.add_parsers(family)
    cluster_brokers.add_parsers(family)
    cluster_reassign.add_parser(family)
    cluster_features.add_parser(family)


def run(args: argparse.Namespace) -> int:
    """Ask and print."""

    async def work(cluster: Cluster) -> int:
        _print(await _collect(cluster, verbose=args.verbose), as_json=args.json)
        return 0

    return with_cluster(args, work)


async def _collect(cluster: Cluster, *, verbose: bool) -> dict[str, list[dict[str, object]]]:
    """Return the tables to show, by name; the first has one row about the whole cluster."""
    from dohle.client import Admin

    admin = Admin(cluster)
    described = await admin.describe_cluster(include_fenced=True)
    found: dict[str, list[dict[str, object]]] = {
        "cluster": [
            {"clusterId": described.cluster_id, "controllerId": await _active_controller(admin)}
        ],
        "brokers": [
            {
                "id": one.node_id,
                "host": one.host,
                "port": one.port,
                "rack": one.rack,
                "isFenced": one.is_fenced,
            }
            for one in described.brokers
        ],
        "features": await cluster_features.feature_rows(admin),
    }
    if verbose:
        found["apis"] = await _api_versions(cluster)
    return found


async def _active_controller(admin: Admin) -> int | None:
    """Return who leads the quorum: what brokers call their controller is any of them."""
    from dohle.cli import soon

    unknown: QuorumDescription | None = None
    found = await soon.wait("no active controller is known", admin.describe_quorum(), unknown)
    return None if found is None or found.leader_id < 0 else found.leader_id


async def _api_versions(cluster: Cluster) -> list[dict[str, object]]:
    from dohle.protocol.apis import APIS

    answer = await (await cluster.any_connection()).ask_versions()
    return [
        {
            "key": one.api_key,
            "api": APIS[one.api_key].name if one.api_key in APIS else None,
            "minVersion": one.min_version,
            "maxVersion": one.max_version,
        }
        for one in sorted(answer.api_keys, key=lambda one: one.api_key)
    ]


def _print(found: dict[str, list[dict[str, object]]], *, as_json: bool) -> None:
    from dohle.cli.output import print_fields, print_json, print_table

    (about,) = found.pop("cluster")
    if as_json:
        print_json({**about, **found})
        return
    print_fields(about)
    for name, rows in found.items():
        print(f"\n{name}")
        print_table(rows, if_empty="none")
