"""Fetch: bounds, limits, epochs, sessions."""

from __future__ import annotations

from typing import Any

from tests.oracle.bodies import versions_of
from tests.oracle.scenario import Client, Run, Topic
from tests.oracle.scenarios._records import batch, fetch, fetched, produce

UNKNOWN_ID = bytes(15) + b"\xee"


async def _filled(run: Run, what: str = "topic", partitions: int = 1, batches: int = 3) -> Topic:
    topic = await run.topic(what, partitions)
    client = await run.client("setup")
    for number in range(batches * partitions):
        data = {"index": number % partitions, "records": batch(b"%03d" % number * 30, b"more")}
        topics = [{**topic.both, "partition_data": [data]}]
        await client.ask("Produce", 9, acks=-1, timeout_ms=1000, topic_data=topics)
    return topic


async def every_version(run: Run) -> None:
    """Offsets in and out of range, and topics that are not there."""
    client = await run.client()
    topic = await _filled(run)
    unknown = Topic(run.name("unknown"), UNKNOWN_ID)
    for version in versions_of("Fetch"):
        for offset in (0, 1, 5, 6, 7, -1):
            await fetch(client, version, fetched(topic, offset), note=f"offset {offset}")
        await fetch(client, version, fetched(topic, partition=3), note="unknown partition")
        await fetch(client, version, fetched(unknown), note="unknown topic")
        await fetch(
            client, version, fetched(unknown), fetched(topic, 2), note="two", isolation_level=1
        )
        await fetch(client, version, note="nothing")
        for epoch in (0, 1, -1):
            asked = fetched(topic, 4, current_leader_epoch=epoch)
            await fetch(client, version, asked, note=f"epoch {epoch}")


async def limits(run: Run) -> None:
    """Sizes of responses and of partitions."""
    client = await run.client()
    topic = await _filled(run, partitions=3)

    def asked(partition_max: int, *partitions: int, offset: int = 0) -> dict[str, Any]:
        parts = [
            {"partition": each, "fetch_offset": offset, "partition_max_bytes": partition_max}
            for each in partitions
        ]
        return {"topic": topic.name, "topic_id": topic.id, "partitions": parts}

    for version in (4, 12, 17):
        for partition_max, response_max in (
            (1, 1 << 20),
            (1 << 20, 1),
            (0, 0),
            (1, 1),
            (200, 1 << 20),
            (1 << 20, 500),
            (400, 700),
            (1 << 20, 0),
            (-1, 1 << 20),
        ):
            await fetch(
                *(client, version, asked(partition_max, 2, 0, 1)),
                note=f"{partition_max} of {response_max}",
                max_bytes=response_max,
            )
        await fetch(client, version, asked(1 << 20, 0, 0), note="twice the same")
        await fetch(
            *(client, version, asked(1 << 20, 0, offset=6)),
            note="waits for more",
            max_wait_ms=50,
            min_bytes=1,
        )
        await fetch(
            *(client, version, asked(1 << 20, 0)),
            note="waits for much",
            max_wait_ms=50,
            min_bytes=1 << 19,
        )


async def waiting(run: Run) -> None:
    """A fetch that is answered when something is written."""
    topic = await run.topic(partitions=2)
    reader, writer = await run.client("reader"), await run.client("writer")
    for version in (12, 17):
        body: dict[str, Any] = {
            "max_wait_ms": 15_000,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "replica_id": -1,
        }
        offset = 0 if version == 12 else 1
        topics = [fetched(topic, offset, 1)]
        waiting = await reader.post("Fetch", version, note="waits", **body, topics=topics)
        await produce(writer, 9, topic, batch(b"not this"), partition=0)
        await produce(writer, 9, topic, batch(b"but this"), partition=1)
        await waiting.answer()


async def sessions(run: Run) -> None:
    """KIP-227: full and incremental fetches, with names and with ids."""
    for version in (7, 12, 13, 17):
        client = await run.client(f"v{version}")
        topic = await _filled(run, f"topic-{version}", 2, 1)

        async def get(
            note: str,
            session: int,
            epoch: int,
            *topics: Any,
            v: int = version,
            c: Client = client,
            **more: Any,
        ) -> Any:
            return await fetch(
                c, v, *topics, note=note, session_id=session, session_epoch=epoch, **more
            )

        both = fetched(topic)
        both["partitions"] = both["partitions"] + fetched(topic, partition=1)["partitions"]
        first = await get("full", 0, 0, both)
        session = first.session_id
        await get("nothing changed", session, 1)
        await get("one moves on", session, 2, fetched(topic, 2, 1))
        await get("the other alone", session, 3)
        await get("both up to date", session, 4, fetched(topic, 2))
        await get("nothing new", session, 5)
        await produce(client, 9, topic, batch(b"new"), partition=1)
        await get("something new", session, 6)
        await get("something new again", session, 7)
        await get("an unknown partition", session, 8, fetched(topic, 0, 9))
        await get("still unknown", session, 9)
        forget = [{"topic": topic.name, "topic_id": topic.id, "partitions": [9, 1]}]
        await get("forgotten", session, 10, forgotten_topics_data=forget)
        await get("the last forgotten", session, 11, fetched(topic, 0))
        await get("a wrong epoch", session, 20)
        await get("an old epoch", session, 5)
        await get("an unknown session", 12345, 1)
        await get("an unknown session to close", 12345, -1)
        await get("no session, epoch 5", 0, 5)
        again = await get("full again", session, 0, fetched(topic, 99))
        await get("out of range", again.session_id, 1)
        await get("the old one", session, 1)
        forget[0]["partitions"] = [0]
        await get("all forgotten", again.session_id, 2, forgotten_topics_data=forget)
        await get("then", again.session_id, 3)
        last = await get("full once more", 0, 0, both)
        await get("closed", last.session_id, -1, fetched(topic, 2))
        await get("after closing", last.session_id, 1)
        await get("sessionless", 0, -1, both)
        await get("full of nothing", 0, 0)


async def sessions_change_their_kind(run: Run) -> None:
    """A session that begins with names cannot go on with ids."""
    client = await run.client()
    topic = await _filled(run)
    first = await fetch(client, 12, fetched(topic), session_id=0, session_epoch=0)
    body: dict[str, Any] = {"session_id": first.session_id, "session_epoch": 1}
    await fetch(client, 13, fetched(topic, 2), note="ids", **body)
    first = await fetch(client, 13, fetched(topic), session_id=0, session_epoch=0)
    body["session_id"] = first.session_id
    await fetch(client, 12, fetched(topic, 2), note="names", **body)
    odd = Topic(run.name("odd"), UNKNOWN_ID)
    first = await fetch(
        client,
        15,
        fetched(odd),
        fetched(topic, 2),
        note="unknown id",
        session_id=0,
        session_epoch=0,
    )
    body["session_id"] = first.session_id
    await fetch(client, 15, note="unknown id again", **body)


async def diverging(run: Run) -> None:
    """last_fetched_epoch and OffsetForLeaderEpoch."""
    client = await run.client()
    topic = await _filled(run)
    for version in (12, 17):
        for epoch in (-1, 0, 1, 5):
            for offset in (0, 6, 7):
                asked = fetched(topic, offset, last_fetched_epoch=epoch)
                await fetch(client, version, asked, note=f"epoch {epoch} at {offset}")
    for version in versions_of("OffsetForLeaderEpoch"):
        for current, epoch in ((-1, 0), (0, 0), (1, 0), (-1, 1), (-1, -1), (-1, 7), (0, -5)):
            asked = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
            names = [topic.name, run.name("unknown")] if epoch == 0 else [topic.name]
            await client.send(
                *("OffsetForLeaderEpoch", version),
                note=f"{epoch} of {current}",
                replica_id=-1,
                topics=[{"topic": name, "partitions": [asked]} for name in names],
            )
        odd = {"partition": 9, "current_leader_epoch": -1, "leader_epoch": 0}
        body = [{"topic": topic.name, "partitions": [odd]}]
        await client.send(
            "OffsetForLeaderEpoch", version, note="unknown partition", replica_id=-1, topics=body
        )


async def followers(run: Run) -> None:
    """Fetches that claim to be of a replica."""
    client = await run.client()
    topic = await _filled(run)
    for version in (4, 11, 12, 14):
        for replica in (1, 2, -2):
            await fetch(
                client, version, fetched(topic), note=f"replica {replica}", replica_id=replica
            )
    for version in (15, 17):
        for replica in (1, 2):
            state = {"replica_id": replica, "replica_epoch": 5}
            await fetch(
                client, version, fetched(topic), note=f"replica {replica}", replica_state=state
            )
            for epoch in (0, 1):
                asked = fetched(topic, current_leader_epoch=epoch)
                note = f"replica {replica} in epoch {epoch}"
                await fetch(client, version, asked, note=note, replica_state=state)
    await fetch(client, 11, fetched(topic), note="a rack", rack_id="somewhere")


async def deleted_records(run: Run) -> None:
    """DeleteRecords moves the log's start."""
    client = await run.client()
    topic = await _filled(run, partitions=2)
    compacted = await run.topic("compacted", cleanup_policy="compact")
    for version in versions_of("DeleteRecords"):

        async def delete(note: str, *offsets: int, to: str = topic.name, v: int = version) -> None:
            parts = [
                {"partition_index": number, "offset": each} for number, each in enumerate(offsets)
            ]
            await client.send(
                *("DeleteRecords", v),
                note=note,
                topics=[{"name": to, "partitions": parts}],
                timeout_ms=5000,
            )

        await delete("one", version + 1)
        await delete("lower", 0)
        await delete("too high", 7)
        await delete("negative", -2)
        await delete("unknown partition", version, version, 0)
        await delete("unknown topic", 0, to=run.name("unknown"))
        await delete("compacted", 0, to=compacted.name)
        for offset in (0, version + 1):
            await fetch(client, 12, fetched(topic, offset), note=f"from {offset} after {version}")
    await delete("all", -1, -1)
    await fetch(client, 12, fetched(topic, 6), note="after all")
    await client.send("DeleteRecords", 2, note="nothing", topics=[], timeout_ms=5000)
