"""AlterClientQuotas at controllers, and at brokers that pass it on."""

from __future__ import annotations

from tests.oracle.bodies import versions_of
from tests.oracle.cluster_scenarios._nodes import ACTIVE, STANDBY
from tests.oracle.scenario import Run
from tests.oracle.scenarios import client_quotas as of_one_node
from tests.oracle.scenarios._quotas import PRODUCE, entry, keep_quotas, op


async def quotas(run: Run) -> None:
    """At both kinds of controllers, and seen at brokers."""
    run.here = ACTIVE
    await of_one_node.refused_quotas(run)
    standby = await run.client(at=STANDBY)
    for version in versions_of("AlterClientQuotas"):
        good = entry({"user": run.name("eve")}, op(PRODUCE, 1000))
        await standby.send("AlterClientQuotas", version, note="good", entries=[good])
    await keep_quotas(run, ACTIVE, "broker 1")
    await keep_quotas(run, "broker 2", "broker 1")
