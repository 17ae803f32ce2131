"""Reassignments, elections and brokers that leave, on one node."""

from __future__ import annotations

from typing import Any

from tests.oracle.bodies import versions_of
from tests.oracle.scenario import Run


async def reassignments(run: Run) -> None:
    """AlterPartitionReassignments to the brokers there are, and to others."""
    client = await run.client()
    topic = await run.topic(partitions=2)
    unknown = run.name("unknown")
    for version in versions_of("AlterPartitionReassignments"):
        for note, name, index, replicas in (
            ("to where it is", topic.name, 0, [1]),
            ("to an unknown broker", topic.name, 0, [7]),
            ("to one more", topic.name, 1, [1, 7]),
            ("twice", topic.name, 1, [1, 1]),
            ("to nobody", topic.name, 1, []),
            ("ended", topic.name, 1, None),
            ("unknown partition", topic.name, 7, [1]),
            ("unknown topic", unknown, 0, [1]),
            ("unknown topic, ended", unknown, 0, None),
        ):
            partitions = [{"partition_index": index, "replicas": replicas}]
            await client.send(
                "AlterPartitionReassignments",
                version,
                note=note,
                timeout_ms=5000,
                topics=[{"name": name, "partitions": partitions}],
            )
        await client.send(
            "AlterPartitionReassignments",
            version,
            note="number of replicas must stay",
            timeout_ms=5000,
            allow_replication_factor_change=False,
            topics=[
                {
                    "name": topic.name,
                    "partitions": [
                        {"partition_index": 0, "replicas": [1]},
                        {"partition_index": 1, "replicas": []},
                    ],
                }
            ],
        )
        await client.send("AlterPartitionReassignments", version, note="nothing", topics=[])


async def list_of_reassignments(run: Run) -> None:
    """ListPartitionReassignments, of which there are none."""
    client = await run.client()
    topic = await run.topic(partitions=2)
    for version in versions_of("ListPartitionReassignments"):
        for note, topics in (
            ("all", None),
            ("one", [{"name": topic.name, "partition_indexes": [0, 1, 7]}]),
            ("unknown", [{"name": run.name("unknown"), "partition_indexes": [0]}]),
            ("nothing", []),
        ):
            await client.send("ListPartitionReassignments", version, note=note, topics=topics)


async def elections(run: Run) -> None:
    """ElectLeaders where everybody has the leader that they want."""
    client = await run.client()
    topic = await run.topic(partitions=2)

    def mine(response: Any) -> Any:
        found = tuple(each for each in response.replica_election_results if run.is_mine(each.topic))
        return response.replace(replica_election_results=found)

    for version in versions_of("ElectLeaders"):
        for kind in (0, 1, 2) if version else (0,):
            for note, topics in (
                ("both", [{"topic": topic.name, "partitions": [0, 1]}]),
                ("unknown partition", [{"topic": topic.name, "partitions": [7]}]),
                ("unknown topic", [{"topic": run.name("unknown"), "partitions": [0]}]),
                ("nothing", []),
                ("all", None),
            ):
                await client.send(
                    "ElectLeaders",
                    version,
                    note=f"{note}, of kind {kind}",
                    show=mine,
                    election_type=kind,
                    timeout_ms=5000,
                    topic_partitions=topics,
                )


async def unregistering(run: Run) -> None:
    """UnregisterBroker for brokers that are not there."""
    client = await run.client()
    for version in versions_of("UnregisterBroker"):
        for broker_id in (7, -1):
            await client.send(
                "UnregisterBroker", version, note=f"broker {broker_id}", broker_id=broker_id
            )
