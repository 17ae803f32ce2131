"""ListOffsets: times, specials, and what is refused."""

from __future__ import annotations

from typing import Any

from dohle.records.compression.codecs import Codec
from tests.oracle.bodies import versions_of
from tests.oracle.scenario import Run
from tests.oracle.scenarios._records import TIME_MS, batch, produce

SPECIALS = (-1, -2, -3, -4, -5, -6, -7, -100)


async def every_version(run: Run) -> None:
    """All specials, and times before, between and after the records."""
    client = await run.client()
    topic, empty = await run.topic(partitions=2), await run.topic("empty")
    await produce(client, 9, topic, batch(b"a", b"b"))
    await produce(client, 9, topic, batch(b"c", timestamp=TIME_MS + 100))
    await produce(client, 9, topic, batch(b"late", timestamp=TIME_MS + 50))
    packed = batch(b"d", b"e", b"f", timestamp=TIME_MS + 200, codec=Codec.GZIP)
    await produce(client, 9, topic, packed)
    times = [TIME_MS + each for each in (-1, 0, 1, 2, 60, 100, 201, 203)]

    async def ask(version: int, note: str, name: str, timestamp: int, **more: Any) -> None:
        part = {"partition_index": 0, "timestamp": timestamp, **more}
        await client.send(
            *("ListOffsets", version),
            note=note,
            replica_id=-1,
            topics=[{"name": name, "partitions": [part]}],
            timeout_ms=1000,
        )

    for version in versions_of("ListOffsets"):
        for timestamp in SPECIALS:
            await ask(version, f"special {timestamp}", topic.name, timestamp)
            await ask(version, f"special {timestamp} of nothing", empty.name, timestamp)
        for timestamp in times:
            await ask(version, f"time {timestamp - TIME_MS}", topic.name, timestamp)
        await ask(version, "unknown topic", run.name("unknown"), -1)
        for epoch in (-1, 0, 1):
            await ask(version, f"epoch {epoch}", topic.name, -1, current_leader_epoch=epoch)
        parts = [{"partition_index": each, "timestamp": -1} for each in (0, 1, 9, 1)]
        for replica in (-1, -2, 1, 2):
            await client.send(
                *("ListOffsets", version),
                note=f"several by {replica}",
                replica_id=replica,
                topics=[{"name": topic.name, "partitions": parts}],
            )
        await client.send("ListOffsets", version, note="nothing", replica_id=-1, topics=[])


async def after_deletion(run: Run) -> None:
    """Times of records that are gone."""
    client = await run.client()
    topic = await run.topic()
    for number in range(3):
        await produce(client, 9, topic, batch(b"x", timestamp=TIME_MS + number * 10))
    parts = [{"partition_index": 0, "offset": 2}]
    body = [{"name": topic.name, "partitions": parts}]
    await client.send("DeleteRecords", 2, topics=body, timeout_ms=5000)
    for timestamp in (-1, -2, -3, -4, TIME_MS, TIME_MS + 15, TIME_MS + 25):
        asked = [{"partition_index": 0, "timestamp": timestamp}]
        await client.send(
            *("ListOffsets", 8),
            replica_id=-1,
            topics=[{"name": topic.name, "partitions": asked}],
        )
