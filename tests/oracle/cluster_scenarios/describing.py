"""What nodes tell of the cluster: brokers, controllers, the quorum, topics."""

from __future__ import annotations

from typing import Any

from tests.oracle.bodies import versions_of
from tests.oracle.cluster_scenarios._nodes import ACTIVE, STANDBY
from tests.oracle.scenario import Run

_EVERYWHERE = ("broker 1", "broker 2", ACTIVE, STANDBY)


def any_controller(response: Any) -> Any:
    """Leave out which of them brokers take for the controller: any, in Kafka."""
    return response.replace(controller_id=-1)


async def cluster(run: Run) -> None:
    """DescribeCluster, at brokers and at controllers."""
    for at in _EVERYWHERE:
        client = await run.client(at=at)
        show = any_controller if at.startswith("broker") else None
        for version in versions_of("DescribeCluster"):
            await client.send("DescribeCluster", version, show=show, endpoint_type=1)
            for kind in (0, 1, 2, 3) if version else (1,):
                await client.send(
                    *("DescribeCluster", version),
                    note=f"endpoints of type {kind}",
                    show=show,
                    endpoint_type=kind,
                    include_cluster_authorized_operations=True,
                    include_fenced_brokers=True,
                )


async def quorum(run: Run) -> None:
    """DescribeQuorum: brokers send it on, and a standby refuses."""
    for at in _EVERYWHERE:
        client = await run.client(at=at)
        for version in versions_of("DescribeQuorum"):
            for note, name, indexes in (
                ("metadata", "__cluster_metadata", [0]),
                ("another partition", "__cluster_metadata", [1]),
                ("another topic", "other", [0]),
            ):
                parts = [{"partition_index": each} for each in indexes]
                topics = [{"topic_name": name, "partitions": parts}]
                await client.send("DescribeQuorum", version, note=note, topics=topics)
