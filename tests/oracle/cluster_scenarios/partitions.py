"""Who has a partition's replicas and who leads them: what leaders and administrators ask."""

from __future__ import annotations

from typing import Any

from tests.oracle.bodies import versions_of
from tests.oracle.cluster_scenarios._nodes import (
    ACTIVE,
    STANDBY,
    TIMEOUT,
    Broker,
    delete,
    in_sync,
    leaders_become,
    live_broker,
    placed_topic,
)
from tests.oracle.scenario import Client, Run, Topic

_RECOVERED, _RECOVERING = 0, 1


async def _alter(
    client: Client, version: int, leader: Broker, topic: Topic, note: str, **more: Any
) -> Any:
    """Ask for an ISR, as the leader of partition 0 in its first state, unless told."""
    who: dict[str, Any] = {
        key: more.pop(key) for key in ("broker_id", "broker_epoch") if key in more
    }
    topic_id = more.pop("topic_id", topic.id)
    isr = more.pop("isr")
    partition: dict[str, Any] = {
        "partition_index": 0,
        "new_isr": [each if isinstance(each, int) else each[0] for each in isr],
        "new_isr_with_epochs": [
            {"broker_id": each}
            if isinstance(each, int)
            else {"broker_id": each[0], "broker_epoch": each[1]}
            for each in isr
        ],
        **more,
    }
    topics = [{"topic_id": topic_id, "partitions": [partition]}]
    body: dict[str, Any] = {**leader.who, **who, "topics": topics}
    return await client.send("AlterPartition", version, note=note, **body)


async def in_sync_replicas(run: Run) -> None:
    """AlterPartition: each check by itself (C30), then what is done."""
    active, standby = await run.client(at=ACTIVE), await run.client(at=STANDBY)
    for version in versions_of("AlterPartition"):
        leader, follower = await live_broker(run, 40), await live_broker(run, 41)
        topic = await placed_topic(run, f"topic-{version}", [40, 41], [41, 40], [40, 1])

        async def ask(
            note: str,
            isr: list[Any],
            client: Client = active,
            v: int = version,
            who: Broker = leader,
            t: Topic = topic,
            **more: Any,
        ) -> None:
            await _alter(client, v, who, t, note, isr=isr, **more)

        both = [40, 41]
        refused: list[tuple[str, list[Any], dict[str, Any]]] = [
            ("older broker epoch", both, {"broker_epoch": leader.epoch - 1}),
            ("newer broker epoch", both, {"broker_epoch": leader.epoch + 1}),
            ("unknown broker", both, {"broker_id": 99}),
            ("unknown topic", both, {"topic_id": b"no such topic id"}),
            ("no topic", both, {"topic_id": bytes(16)}),
            ("unknown partition", both, {"partition_index": 9}),
            ("newer leader epoch", both, {"leader_epoch": 1}),
            ("newer partition epoch", both, {"partition_epoch": 1}),
            ("older leader epoch", both, {"leader_epoch": -1}),
            ("older partition epoch", both, {"partition_epoch": -1}),
            ("both older", both, {"leader_epoch": -1, "partition_epoch": -1}),
            ("older and newer", both, {"leader_epoch": -1, "partition_epoch": 1}),
            ("led by another", both, {"partition_index": 1}),
            ("nobody", [], {}),
            ("twice", [40, 40], {}),
            ("not a replica", [40, 1], {}),
            ("unknown replica", [40, 99], {}),
            ("without the leader", [41], {}),
            ("recovering, two", both, {"leader_recovery_state": _RECOVERING}),
            ("recovering, one", [40], {"leader_recovery_state": _RECOVERING}),
            ("older member", [40, (41, follower.epoch - 1)], {}),
            ("newer member", [40, (41, follower.epoch + 1)], {}),
        ]
        for note, isr, more in refused:
            await ask(note, isr, **more)
        await ask("as it is", both)
        await ask("standby", both, client=standby)
        await ask("one", [(40, leader.epoch)])
        await ask("one, again", [40])
        await ask("one, as it is", [40], partition_epoch=1)
        await ask("both again", [(40, leader.epoch), (41, follower.epoch)], partition_epoch=1)
        await ask("other order", [41, 40], partition_epoch=2)
        await ask("one more time", [40], partition_epoch=3)
        follower.controller = active
        await follower.heartbeat(note=f"v{version}: fenced", want_fence=True)
        await ask("fenced member", both, partition_epoch=4)
        await follower.heartbeat(note=f"v{version}: unfenced")
        await ask("unfenced member", both, partition_epoch=4)
        state = {"leader_epoch": 0, "partition_epoch": 0}
        parts = [
            {"partition_index": 2, "new_isr": [40], "new_isr_with_epochs": [{"broker_id": 40}]},
            {"partition_index": 8, "new_isr": [40], "new_isr_with_epochs": [{"broker_id": 40}]},
        ]
        topics = [
            {"topic_id": topic.id, "partitions": [{**state, **each} for each in parts]},
            {"topic_id": b"no such topic id", "partitions": [{**state, **parts[0]}]},
        ]
        body = {**leader.who, "topics": topics}
        await active.send("AlterPartition", version, note="several", **body)
        await active.send("AlterPartition", version, note="nothing", **leader.who, topics=[])
        await leaders_become(run, [40, 40, 40], f"v{version}", topic)
        await delete(run, topic)
        await leader.go()
        await follower.go()


async def completion(run: Run) -> None:
    """AlterPartition that completes a reassignment, and takes the leader along (C32)."""
    active = await run.client(at=ACTIVE)
    for version in versions_of("AlterPartition"):
        old, new = await live_broker(run, 42), await live_broker(run, 43)
        topic = await placed_topic(run, f"topic-{version}", [42, 1], [42, 1])
        for partition, target in ((0, [43, 1]), (1, [42, 43])):
            await active.send(
                *("AlterPartitionReassignments", 1),
                note=f"v{version}: partition {partition}",
                **TIMEOUT,
                topics=_reassigned(topic, {partition: target}),
            )
        await _list(active, f"v{version}: begun", topic)
        epochs = {"partition_epoch": 1}
        await _alter(active, version, old, topic, "not all", isr=[42, 1], **epochs)
        await _alter(active, version, old, topic, "leader goes", isr=[42, 43, 1], **epochs)
        await _alter(active, version, old, topic, "late", isr=[42, 43, 1], **epochs)
        epochs["partition_index"] = 1
        await _alter(active, version, old, topic, "leader stays", isr=[42, 43, 1], **epochs)
        await _list(active, f"v{version}: done", topic)
        await leaders_become(run, [43, 42], f"v{version}", topic)
        await delete(run, topic)
        await old.go()
        await new.go()


def _reassigned(topic: Topic, targets: dict[int, list[int] | None]) -> list[dict[str, Any]]:
    parts = [{"partition_index": index, "replicas": each} for index, each in targets.items()]
    return [{"name": topic.name, "partitions": parts}]


async def _list(client: Client, note: str, *topics: Topic) -> None:
    """List what goes on, in partitions there are and in others."""
    asked = [{"name": each.name, "partition_indexes": [2, 1, 0, 7]} for each in topics]
    await client.send("ListPartitionReassignments", 0, note=note, **TIMEOUT, topics=asked)


async def reassignments(run: Run) -> None:
    """AlterPartitionReassignments to a broker that never catches up, at every listener."""
    target, fenced = await live_broker(run, 44), await live_broker(run, 45)
    fenced.controller = await run.client(at=ACTIVE)
    await fenced.heartbeat(note="fenced", want_fence=True)
    for number, at in enumerate(("broker 1", "broker 2", ACTIVE)):
        client = await run.client(at=at)
        for version in versions_of("AlterPartitionReassignments"):
            topic = await placed_topic(run, f"topic-{number}-{version}", [1, 2], [2, 3], [3, 1])

            async def ask(
                note: str,
                targets: dict[int, list[int] | None],
                c: Client = client,
                v: int = version,
                t: Topic = topic,
                **more: Any,
            ) -> None:
                await c.send(
                    *("AlterPartitionReassignments", v),
                    note=note,
                    **TIMEOUT,
                    topics=_reassigned(t, targets),
                    **more,
                )

            await ask("not begun, ended", {0: None})
            await ask("begun", {0: [1, 44]})
            await _list(client, f"v{version}: one", topic)
            await ask("other target", {0: [44, 2]})
            await _list(client, f"v{version}: other target", topic)
            await ask("more of them", {1: [44, 45, 2], 2: [44]})
            await _list(client, f"v{version}: more of them", topic)
            fixed: dict[str, Any] = {"allow_replication_factor_change": False}
            await ask("three instead of two", {0: [1, 2, 44]}, **fixed)
            await ask("two instead of three", {1: [44, 45]}, **fixed)
            await ask("three instead of three", {1: [44, 45, 3]}, **fixed)
            await ask("twice", {0: [1, 1]})
            await ask("nobody", {0: []})
            await ask("unknown broker", {0: [1, 99]})
            await ask("negative broker", {0: [1, -1]})
            await ask("unknown partition", {9: [1], 8: None})
            await ask("good and bad", {0: [99], 1: None, 2: None})
            await ask("ended again", {1: None})
            await ask("as it was", {0: [1, 2]})
            await _list(client, f"v{version}: ended", topic)
            await leaders_become(run, [1, 2, 3], f"{at}, v{version}", topic)
            await delete(run, topic)
        await client.send(*("ListPartitionReassignments", 0), note="all", **TIMEOUT, topics=None)
        unknown = [{"name": run.name("unknown"), "partition_indexes": [0]}]
        await client.send("ListPartitionReassignments", 0, note="unknown", topics=unknown)
    standby = await run.client(at=STANDBY)
    for version in versions_of("AlterPartitionReassignments"):
        body = {"topics": _reassigned(topic, {0: [1, 44]})}
        await standby.send("AlterPartitionReassignments", version, **TIMEOUT, **body)
    await standby.send("ListPartitionReassignments", 0, **TIMEOUT, topics=None)
    await target.go()
    await fenced.go()


async def moves(run: Run) -> None:
    """Reassignments that real brokers complete, and those that need nobody's help."""
    client = await run.client(at="broker 2")
    topic = await placed_topic(run, "topic", [1, 2], [1, 2], [1, 2])

    async def ask(note: str, targets: dict[int, list[int] | None]) -> None:
        await client.send(
            *("AlterPartitionReassignments", 1),
            note=note,
            **TIMEOUT,
            topics=_reassigned(topic, targets),
        )
        await client.until_quietly(
            *("ListPartitionReassignments", 0, lambda r: not r.topics),
            topics=[{"name": topic.name, "partition_indexes": [0, 1, 2]}],
        )
        await in_sync(run, note, topic)

    await ask("other order", {0: [2, 1]})
    await ask("fewer", {1: [1]})
    await ask("without the leader", {0: [2]})
    await ask("elsewhere", {2: [3]})
    await ask("more", {0: [2, 3, 1]})
    await delete(run, topic)


async def elections(run: Run) -> None:
    """ElectLeaders: preferred and unclean ones, where they are needed and where not."""
    active = await run.client(at=ACTIVE)
    for version in versions_of("ElectLeaders"):
        for at in ("broker 1", ACTIVE):
            await _elections(run, active, await run.client(at=at), version)
    standby = await run.client(at=STANDBY)
    for version in versions_of("ElectLeaders"):
        await standby.send("ElectLeaders", version, **TIMEOUT, topic_partitions=None)


async def _elections(run: Run, active: Client, client: Client, version: int) -> None:
    first, second = await live_broker(run, 46), await live_broker(run, 47)
    first.controller = second.controller = active
    what = f"{client.at.replace(' ', '-')}-{version}"
    topic = await placed_topic(run, f"topic-{what}", [46, 47], [47, 46], [46, 47])
    alone = await placed_topic(run, f"topic-{what}-alone", [46])

    async def elect(note: str, kind: int, **more: Any) -> None:
        def mine(response: Any) -> Any:
            results = response.replica_election_results
            found = tuple(each for each in results if run.is_mine(each.topic))
            return response.replace(replica_election_results=found)

        asked = [
            {"topic": topic.name, "partitions": [0, 1, 2, 9]},
            {"topic": alone.name, "partitions": [0]},
            {"topic": run.name("unknown"), "partitions": [0]},
        ]
        body = {"topic_partitions": asked, "election_type": kind, **more}
        label = f"{note}, {'unclean' if kind else 'preferred'}"
        await client.send("ElectLeaders", version, note=label, show=mine, **TIMEOUT, **body)

    kinds = (0, 1) if version else (0,)
    for kind in kinds:
        await elect("at first", kind)
    await _alter(active, 3, first, topic, f"{what}: one of two", isr=[46], partition_index=2)
    await first.heartbeat(note=f"{what}: fenced", want_fence=True)
    await leaders_become(run, [47, 47, -1, -1], f"{what}: fenced", topic, alone)
    for kind in kinds:
        await elect("first is fenced", kind)
    await first.heartbeat(note=f"{what}: unfenced")
    for kind in kinds:
        await elect("first is back", kind)
    back = {"leader_epoch": 1, "partition_epoch": 1}
    await _alter(active, 3, second, topic, f"{what}: both again", isr=[46, 47], **back)
    for kind in kinds:
        await elect("first is in sync", kind)
        await elect("again", kind)
        await elect("all", kind, topic_partitions=None)
    if version:
        await elect("odd kind", 7)
    await leaders_become(run, [46, 47, 47 if version else 46, 46], f"{what}: at last", topic, alone)
    await delete(run, topic, alone)
    await first.go()
    await second.go()
