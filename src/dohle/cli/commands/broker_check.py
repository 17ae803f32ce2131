"""The part of ``dohle doctor`` that checks the broker of ``-b``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dohle.cli.commands.doctor_checks import Check, Status
from dohle.cli.errors import CliError
from dohle.cli.session import with_cluster

if TYPE_CHECKING:
    from dohle.client import Cluster


def check_broker(args: argparse.Namespace, *, is_needed: bool) -> Check:
    """Connect and ask; without an explicit ``-b`` the broker may be missing."""
    import logging

    name = f"broker {args.bootstrap}"
    # That it cannot be reached is what the check tells.
    logger = logging.getLogger("dohle.client")
    level = logger.level
    logger.setLevel(logging.ERROR)
    found: list[Check] = []

    async def work(cluster: Cluster) -> int:
        found.append(await _ask(name, cluster))
        return 0

    try:
        with_cluster(args, work)
    except CliError as error:
        reason, _, hint = str(error).partition("; ")
        status = Status.FAILED if is_needed else Status.WARNING
        advice = hint or "pass its address with -b, or start one with `dohle start`"
        return Check(name, status, reason, advice)
    finally:
        logger.setLevel(level)
    return found[0]


async def _ask(name: str, cluster: Cluster) -> Check:
    from dohle.client import Admin
    from dohle.client.net.versions import BrokerVersions
    from dohle.protocol.apis import ApiKey, find_api
    from dohle.protocol.errors import UnsupportedVersion

    admin = Admin(cluster)
    described = await admin.describe_cluster()
    features = await admin.describe_features()
    answer = await (await cluster.any_connection()).ask_versions()
    level = features.finalized.get("metadata.version", (None, None))[1]
    brokers = ", ".join(f"{one.host}:{one.port}" for one in described.brokers)
    versions = BrokerVersions("it", answer.api_keys)
    chosen, missing = [], []
    # The APIs that producing, consuming and groups need.
    for key in (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_COMMIT):
        api = find_api(key)
        try:
            chosen.append(f"{api.name} v{versions.choose(api.request())}")
        except UnsupportedVersion as error:
            missing.append(str(error))
    if missing:
        advice = "it is too old or too new for this dohle: try `pip install --upgrade dohle`"
        return Check(name, Status.FAILED, "; ".join(missing), advice)
    said = f"cluster {described.cluster_id}, brokers {brokers}, metadata.version {level}"
    return Check(name, Status.OK, f"{said}, {', '.join(chosen)}")
