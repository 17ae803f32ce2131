"""Topics with replicas on several brokers: creation, growth, and what metadata tells of them."""

from __future__ import annotations

from typing import Any

from tests.oracle.bodies import versions_of
from tests.oracle.cluster_scenarios._nodes import (
    ACTIVE,
    STANDBY,
    TIMEOUT,
    delete,
    leaders_become,
    listener,
    live_broker,
    placed_topic,
)
from tests.oracle.scenario import Run, Topic


def _assigned(*replicas: list[int], first: int = 0) -> list[dict[str, Any]]:
    return [
        {"partition_index": index, "broker_ids": each}
        for index, each in enumerate(replicas, start=first)
    ]


async def creation(run: Run) -> None:
    """CreateTopics by assignment and by number, at brokers and controllers."""
    fenced = await live_broker(run, 60)
    fenced.controller = await run.client(at=ACTIVE)
    await fenced.heartbeat(note="fenced", want_fence=True)
    for at in ("broker 2", ACTIVE):
        client = await run.client(at=at)
        where = at.replace(" ", "-")
        for version in versions_of("CreateTopics"):
            name = run.name(f"topic-{where}-{version}")
            by_number = {"name": name, "num_partitions": -1, "replication_factor": -1}
            for note, more in (
                ("assigned", {"assignments": _assigned([1, 2, 3], [2, 3, 1])}),
                ("one fenced", {"assignments": _assigned([60, 1], [1, 60])}),
                ("all fenced", {"assignments": _assigned([60])}),
                ("all fenced, and others", {"assignments": _assigned([1], [60])}),
                ("unequal", {"assignments": _assigned([1, 2], [3])}),
                ("twice", {"assignments": _assigned([1, 1])}),
                ("unknown", {"assignments": _assigned([1, 99])}),
                ("negative", {"assignments": _assigned([-1])}),
                ("nobody", {"assignments": _assigned([])}),
                ("a gap", {"assignments": _assigned([1], first=1)}),
                ("counted as well", {"assignments": _assigned([1, 2]), "num_partitions": 1}),
                (
                    "factor as well",
                    {"assignments": _assigned([1, 2]), "replication_factor": 2},
                ),
                ("factor 3", {"num_partitions": 2, "replication_factor": 3}),
                ("factor 4", {"num_partitions": 2, "replication_factor": 4}),
                ("factor 5", {"num_partitions": 2, "replication_factor": 5}),
                ("factor 0", {"num_partitions": 2, "replication_factor": 0}),
                ("factor -2", {"num_partitions": 2, "replication_factor": -2}),
                ("partitions -2", {"num_partitions": -2, "replication_factor": 1}),
            ):
                topics = [{**by_number, **more}]
                checked = {"validate_only": True}
                await client.send(
                    "CreateTopics", version, note=note, topics=topics, **TIMEOUT, **checked
                )
            topics = [{**by_number, "assignments": _assigned([1, 2, 3], [2, 3, 1])}]
            made = await client.send("CreateTopics", version, note="made", **TIMEOUT, topics=topics)
            if version >= 7:
                run.normal.name_topic(made.topics[0].topic_id, name)
            await client.send("CreateTopics", version, note="again", **TIMEOUT, topics=topics)
            both = [*topics, {**topics[0], "name": name + "x"}, {**topics[0], "name": name + "x"}]
            await client.send("CreateTopics", version, note="one twice", **TIMEOUT, topics=both)
    standby = await run.client(at=STANDBY)
    for version in versions_of("CreateTopics"):
        topics = [{"name": run.name("other"), "num_partitions": 1, "replication_factor": 3}]
        await standby.send("CreateTopics", version, **TIMEOUT, topics=topics)
    await _forget(run)
    await fenced.go()


async def _forget(run: Run) -> None:
    """Delete all that the run has made."""
    client = await run.client("setup", "broker 1")
    answer = await client.ask("Metadata", 12, topics=None)
    names = [each.name for each in answer.topics if run.is_mine(each.name or "")]
    topics = [{"name": each} for each in names]
    await client.ask("DeleteTopics", 6, **TIMEOUT, topics=topics)


async def growth(run: Run) -> None:
    """CreatePartitions on several brokers."""
    fenced = await live_broker(run, 61)
    fenced.controller = await run.client(at=ACTIVE)
    await fenced.heartbeat(note="fenced", want_fence=True)
    for at in ("broker 2", ACTIVE):
        client = await run.client(at=at)
        for version in versions_of("CreatePartitions"):
            topic = await placed_topic(
                run, f"topic-{at.replace(' ', '-')}-{version}", [1, 2], [2, 3]
            )
            for note, count, given in (
                ("by number", 4, None),
                ("assigned", 4, [[3, 1], [1, 3]]),
                ("one fenced", 3, [[61, 1]]),
                ("all fenced", 3, [[61, 61]]),
                ("too few", 4, [[3, 1]]),
                ("too many", 3, [[3, 1], [1, 3]]),
                ("other factor", 3, [[1]]),
                ("larger factor", 3, [[1, 2, 3]]),
                ("unequal", 4, [[1, 2], [3]]),
                ("twice", 3, [[1, 1]]),
                ("unknown", 3, [[1, 99]]),
                ("nobody", 3, [[]]),
                ("no assignments", 3, []),
                ("fewer", 1, None),
                ("as many", 2, None),
            ):
                assigned = None if given is None else [{"broker_ids": each} for each in given]
                topics = [{"name": topic.name, "count": count, "assignments": assigned}]
                body = {**TIMEOUT, "topics": topics}
                await client.send(
                    "CreatePartitions", version, note=note, validate_only=True, **body
                )
            grown = [{"broker_ids": [3, 1]}, {"broker_ids": [1, 61]}]
            topics = [{"name": topic.name, "count": 4, "assignments": grown}]
            await client.send("CreatePartitions", version, note="grown", **TIMEOUT, topics=topics)
            await leaders_become(run, [1, 2, 3, 1], f"{at}, v{version}", topic)
            await delete(run, topic)
    standby = await run.client(at=STANDBY)
    for version in versions_of("CreatePartitions"):
        topics = [{"name": run.name("other"), "count": 4, "assignments": None}]
        await standby.send("CreatePartitions", version, **TIMEOUT, topics=topics)
    await fenced.go()


async def deletion(run: Run) -> None:
    """DeleteTopics at a broker, at the active controller and at a standby."""
    for at in ("broker 3", ACTIVE, STANDBY):
        client = await run.client(at=at)
        for version in versions_of("DeleteTopics"):
            topic = await placed_topic(run, f"topic-{at.replace(' ', '-')}-{version}", [1, 2, 3])
            body: dict[str, Any] = {"topic_names": [topic.name, run.name("unknown")]}
            if version >= 6:
                body = {"topics": [{"name": topic.name}, {"name": run.name("unknown")}]}
            await client.send("DeleteTopics", version, **TIMEOUT, **body)
            if at == STANDBY:
                await delete(run, topic)
            body = {"topic_names": [run.name("unknown")], "topics": [{"name": run.name("unknown")}]}
            body.pop("topic_names" if version >= 6 else "topics")
            await client.send("DeleteTopics", version, note="unknown", **TIMEOUT, **body)


def _any_controller(response: Any) -> Any:
    return response.replace(controller_id=-1)


async def metadata(run: Run) -> None:
    """Metadata of partitions with and without leaders, at two brokers."""
    dead = await live_broker(run, 62)
    topic = await placed_topic(run, "topic", [1, 2, 3], [2, 3, 62], [62, 3, 1])
    alone = await placed_topic(run, "topic-alone", [62])
    clients = [await run.client(at=f"broker {node}") for node in (1, 3)]

    async def see(note: str, *topics: Topic) -> None:
        for client in clients:
            for version in versions_of("Metadata"):
                await client.send(
                    *("Metadata", version),
                    note=note,
                    show=_any_controller,
                    topics=[{"name": each.name} for each in topics],
                    allow_auto_topic_creation=False,
                )

    await see("all are there", topic, alone)
    dead.controller = await run.client(at=ACTIVE)
    await dead.heartbeat(note="fenced", want_fence=True)
    await leaders_become(run, [1, 2, 3, -1], "fenced", topic, alone)
    third = await run.client("setup", "broker 3")
    await third.until_quietly(
        *("Metadata", 12, lambda r: r.topics[0].partitions[0].leader_id == -1),
        topics=[{"name": alone.name}],
    )
    await see("one is fenced", topic, alone)
    await dead.heartbeat(note="unfenced")
    await leaders_become(run, [1, 2, 3, 62], "unfenced", topic, alone)
    await delete(run, topic, alone)
    await dead.go()


async def other_listeners(run: Run) -> None:
    """A leader that has no listener of the client's name (LISTENER_NOT_FOUND)."""
    elsewhere = await live_broker(run, 63, listeners=[listener("OTHER")])
    topic = await placed_topic(run, "topic", [63, 1], [1, 63])
    client = await run.client(at="broker 1")
    for version in versions_of("Metadata"):
        await client.send(
            *("Metadata", version),
            show=_any_controller,
            topics=[{"name": topic.name}],
            allow_auto_topic_creation=False,
        )
    for version in versions_of("DescribeCluster"):
        await client.send("DescribeCluster", version, show=_any_controller)
    await delete(run, topic)
    await elsewhere.go()
