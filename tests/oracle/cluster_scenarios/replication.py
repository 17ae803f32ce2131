"""A follower that the scenario plays copies from a real leader, at every version."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.oracle.bodies import versions_of
from tests.oracle.cluster_scenarios._nodes import (
    FAR,
    Broker,
    delete,
    leaders_become,
    live_broker,
    placed_topic,
)
from tests.oracle.scenario import DEADLINE_S, PAUSE_S, Client, Run, Topic
from tests.oracle.scenarios._records import batch, produce

_FOLLOWER = 50


def _fetch(broker: Broker, topic: Topic, **more: Any) -> dict[str, Any]:
    """Return a follower's fetch of partition 0 from its start, unless told."""
    partition = {
        "partition": 0,
        "current_leader_epoch": 0,
        "fetch_offset": 0,
        "log_start_offset": 0,
        "partition_max_bytes": 1 << 20,
        **more.pop("partition", {}),
    }
    topics = [{"topic": topic.name, "topic_id": topic.id, "partitions": [partition]}]
    replica, epoch = more.pop("replica_id", broker.id), more.pop("epoch", broker.epoch)
    return {
        "replica_id": replica,
        "replica_state": {"replica_id": replica, "replica_epoch": epoch},
        "max_wait_ms": 0,
        "max_bytes": 1 << 20,
        "topics": topics,
        **more,
    }


async def fetches(run: Run) -> None:
    """Fetch as a follower: what it is given, what is refused (G4)."""
    leader, other = await run.client(at="broker 1"), await run.client(at="broker 2")
    broker = await live_broker(run, _FOLLOWER)
    topic = await placed_topic(run, "topic", [1, 50], [50, 1], [2, 50], [1, 3])
    await produce(leader, 9, topic, batch(b"a", b"b"), acks=1)
    await produce(leader, 9, topic, batch(b"c"), acks=1)
    for version in versions_of("Fetch"):
        for note, more in (
            ("from the start", {}),
            ("beyond the end", {"partition": {"fetch_offset": 9}}),
            ("negative offset", {"partition": {"fetch_offset": -1}}),
            ("negative epoch", {"partition": {"current_leader_epoch": -2}}),
            ("newer epoch", {"partition": {"current_leader_epoch": 5}}),
            ("no epoch", {"partition": {"current_leader_epoch": -1}}),
            ("diverged", {"partition": {"fetch_offset": 3, "last_fetched_epoch": 7}}),
            ("older last epoch", {"partition": {"fetch_offset": 3, "last_fetched_epoch": 0}}),
            ("led by another", {"partition": {"partition": 1}}),
            ("not here", {"partition": {"partition": 2}}),
            ("not its replica", {"partition": {"partition": 3}}),
            (
                "not its replica, no epoch",
                {"partition": {"partition": 3, "current_leader_epoch": -1}},
            ),
            ("unknown partition", {"partition": {"partition": 9}}),
            ("unknown follower", {"replica_id": 99}),
            ("older broker epoch", {"epoch": broker.epoch - 1}),
            ("newer broker epoch", {"epoch": broker.epoch + FAR}),
            ("no broker epoch", {"epoch": -1}),
            ("a debugger", {"replica_id": -2}),
            ("a consumer", {"replica_id": -1}),
        ):
            await leader.send("Fetch", version, note=note, **_fetch(broker, topic, **more))
        await other.send("Fetch", version, note="not here", **_fetch(broker, topic))
        if version >= 13:
            nobody = Topic("", b"no such topic id")
            await leader.send("Fetch", version, note="unknown topic", **_fetch(broker, nobody))
    await delete(run, topic)
    await broker.go()


async def high_watermark(run: Run) -> None:
    """A follower's fetches commit what the leader has; it hears of that one fetch later (G5)."""
    leader = await run.client(at="broker 1")
    broker = await live_broker(run, _FOLLOWER + 1)
    for version in versions_of("Fetch"):
        topic = await placed_topic(run, f"topic-{version}", [1, broker.id])

        async def fetch(
            note: str, offset: int, c: Client = leader, v: int = version, t: Topic = topic
        ) -> None:
            body = _fetch(broker, t, partition={"fetch_offset": offset})
            await c.send("Fetch", v, note=note, **body)

        written = await produce(leader, 9, topic, batch(b"a", b"b"), acks=1, note=f"v{version}")
        assert not written.responses[0].partition_responses[0].error_code
        await fetch("nothing yet", 0)
        await fetch("the first batch is there", 2)
        await fetch("committed", 2)
        consumer = _fetch(broker, topic, replica_id=-1, epoch=-1)
        await leader.send("Fetch", version, note="a consumer", **consumer)
        await fetch("back to the start", 0)
        later = await leader.post(
            *("Produce", 9),
            note=f"v{version}: all",
            acks=-1,
            timeout_ms=20_000,
            topic_data=[{**topic.both, "partition_data": [{"index": 0, "records": batch(b"c")}]}],
        )
        follower = await run.client("follower", "broker 1")
        body = _fetch(broker, topic, partition={"fetch_offset": 2}, max_wait_ms=10_000, min_bytes=1)
        await follower.send("Fetch", version, note="more", **body)
        await follower.ask("Fetch", version, **_fetch(broker, topic, partition={"fetch_offset": 3}))
        await later.answer()
        await delete(run, topic)
    await broker.go()


async def within_a_batch(run: Run) -> None:
    """No follower has a part of a batch; if one says so, what is committed then."""
    leader = await run.client(at="broker 1")
    broker = await live_broker(run, _FOLLOWER + 4)
    topic = await placed_topic(run, "topic", [1, broker.id])
    await produce(leader, 9, topic, batch(b"a", b"b", b"c"), acks=1)
    for offset in (1, 1, 3, 3):
        body = _fetch(broker, topic, partition={"fetch_offset": offset})
        await leader.send("Fetch", 17, note=f"from {offset}", **body)
    await delete(run, topic)
    await broker.go()


async def joining(run: Run) -> None:
    """A follower that has caught up joins the ISR; one that is fenced leaves it (G10)."""
    leader = await run.client(at="broker 1")
    broker = await live_broker(run, _FOLLOWER + 2)
    topic = await placed_topic(run, "topic", [1, broker.id], [broker.id, 1])
    await produce(leader, 9, topic, batch(b"a", b"b"), acks=1)
    await leaders_become(run, [1, broker.id], "at first", topic)
    await broker.heartbeat(note="fenced", want_fence=True)
    await leaders_become(run, [1, 1], "fenced", topic)
    await produce(leader, 9, topic, batch(b"c"), note="one is enough")
    at_end = {"fetch_offset": 3, "last_fetched_epoch": 0}
    await leader.send("Fetch", 17, note="fenced", **_fetch(broker, topic, partition=at_end))
    await broker.heartbeat(note="unfenced")

    second = {**at_end, "partition": 1, "fetch_offset": 0, "current_leader_epoch": 1}

    async def is_in_sync() -> bool:
        for each in (at_end, second):
            await leader.ask("Fetch", 17, **_fetch(broker, topic, partition=each))
        answer = await leader.ask(
            *("DescribeTopicPartitions", 0),
            topics=[{"name": topic.name}],
            response_partition_limit=9,
            cursor=None,
        )
        return all(broker.id in each.isr_nodes for each in answer.topics[0].partitions)

    async with asyncio.timeout(DEADLINE_S):
        while not await is_in_sync():
            await asyncio.sleep(PAUSE_S)
    await leaders_become(run, [1, 1], "in sync", topic)
    await delete(run, topic)
    await broker.go()


async def leader_epochs(run: Run) -> None:
    """OffsetForLeaderEpoch, and ListOffsets as a follower, after a change of leaders."""
    broker = await live_broker(run, _FOLLOWER + 3)
    leader, other = await run.client(at="broker 1"), await run.client(at="broker 2")
    topic = await placed_topic(run, "topic", [broker.id, 1], [1, broker.id])
    await broker.heartbeat(note="fenced", want_fence=True)
    await leaders_become(run, [1, 1], "fenced", topic)
    await _await_leader(leader, topic)
    await produce(leader, 9, topic, batch(b"a", b"b"), acks=1)
    for version in versions_of("OffsetForLeaderEpoch"):
        for replica in (broker.id, 99, -1, -2) if version >= 3 else (broker.id,):
            for note, changed in (
                ("this epoch", {"leader_epoch": 1}),
                ("the epoch before", {"leader_epoch": 0}),
                ("a later epoch", {"leader_epoch": 5}),
                ("no epoch", {"leader_epoch": -1}),
                ("older leader epoch", {"leader_epoch": 0, "current_leader_epoch": 0}),
                ("newer leader epoch", {"leader_epoch": 0, "current_leader_epoch": 5}),
                ("leader epoch not known", {"leader_epoch": 1, "current_leader_epoch": -1}),
                ("unknown partition", {"leader_epoch": 0, "partition": 9}),
            ):
                partition = {"partition": 0, "current_leader_epoch": 1, **changed}
                await leader.send(
                    *("OffsetForLeaderEpoch", version),
                    note=f"{note}, asked by {replica}",
                    replica_id=replica,
                    topics=[{"topic": topic.name, "partitions": [partition]}],
                )
        partition = {"partition": 0, "current_leader_epoch": 1, "leader_epoch": 1}
        for client, name in ((other, topic.name), (leader, run.name("unknown"))):
            await client.send(
                *("OffsetForLeaderEpoch", version),
                note="not here" if client is other else "unknown topic",
                replica_id=broker.id,
                topics=[{"topic": name, "partitions": [partition]}],
            )
    await broker.heartbeat(note="unfenced")
    for version in versions_of("Fetch"):
        for note, asked in (
            ("this epoch", {"current_leader_epoch": 1, "last_fetched_epoch": 1}),
            ("older epoch", {"current_leader_epoch": 0}),
            ("newer epoch", {"current_leader_epoch": 2}),
            ("an epoch without records", {"current_leader_epoch": 1, "last_fetched_epoch": 0}),
            (
                "beyond the end of an epoch",
                {"current_leader_epoch": 1, "last_fetched_epoch": 0, "fetch_offset": 2},
            ),
        ):
            body = _fetch(broker, topic, partition=asked)
            await leader.send("Fetch", version, note=note, **body)
    for version in versions_of("ListOffsets"):
        for replica in (broker.id, -1, -2):
            for timestamp in (-1, -2, -3, -4, -5):
                asked = {"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": 1}
                await leader.send(
                    *("ListOffsets", version),
                    note=f"{timestamp} asked by {replica}",
                    replica_id=replica,
                    topics=[{"name": topic.name, "partitions": [asked]}],
                )
    await delete(run, topic)
    await broker.go()


async def _await_leader(client: Client, topic: Topic) -> None:
    """Wait until the broker itself knows that it leads partition 0 in epoch 1."""
    asked = {"partition_index": 0, "timestamp": -2, "current_leader_epoch": 1}
    await client.until_quietly(
        *("ListOffsets", 8, lambda r: not r.topics[0].partitions[0].error_code),
        replica_id=-1,
        topics=[{"name": topic.name, "partitions": [asked]}],
    )
