"""Produce: what is refused, in which order, and what idempotent producers are told."""

from __future__ import annotations

from typing import Any

from dohle.records.builder import BatchBuilder
from dohle.records.compression.codecs import Codec
from tests.oracle.bodies import versions_of
from tests.oracle.scenario import Run, Topic
from tests.oracle.scenarios._records import CODECS, TIME_MS, batch, changed, fetch, fetched, produce


async def every_version(run: Run) -> None:
    """A good batch, one for a topic that is not there, and one that is broken."""
    client = await run.client()
    topic = await run.topic(partitions=2)
    unknown = Topic(run.name("unknown"), bytes(15) + b"\xee")
    for version in versions_of("Produce"):
        good = batch(b"value %d" % version, b"another")
        for acks in (-1, 1):
            await produce(client, version, topic, good, acks=acks, note=f"acks {acks}")
        await produce(client, version, topic, good, acks=2, note="acks 2")
        await produce(client, version, unknown, good, note="unknown topic")
        await produce(client, version, topic, good, partition=7, note="unknown partition")
        await produce(client, version, topic, b"", note="empty")
        await produce(client, version, topic, good + good, note="two batches")
        await produce(client, version, topic, good[:-1], note="cut")
        await produce(
            client, version, topic, changed(good, ">B", 65, 7, sealed=False), note="bad checksum"
        )
        records = [{"index": number, "records": good} for number in (1, 0, 3)]
        both = [
            {**unknown.both, "partition_data": records[:1]},
            {**topic.both, "partition_data": records},
        ]
        await client.send(
            "Produce", version, note="several", acks=-1, timeout_ms=1000, topic_data=both
        )
        await client.send("Produce", version, note="nothing", acks=-1, topic_data=[])
    await fetch(client, 12, fetched(topic), note="all")


async def broken_batches(run: Run) -> None:
    """One thing wrong at a time."""
    client = await run.client()
    topic = await run.topic(max_message_bytes="1000")
    compacted = await run.topic("compacted", cleanup_policy="compact")
    good = batch(b"a", b"b")

    async def send(note: str, records: bytes, to: Topic = topic, version: int = 12) -> None:
        await produce(client, version, to, records, note=note)

    await send("base offset 5", changed(good, ">q", 0, 5, sealed=False))
    await send("leader epoch 9", changed(good, ">i", 12, 9, sealed=False))
    await send("magic 1", changed(good, ">b", 16, 1, sealed=False))
    await send("magic 3", changed(good, ">b", 16, 3, sealed=False))
    await send("length too small", changed(good, ">i", 8, 10, sealed=False))
    await send("length negative", changed(good, ">i", 8, -1, sealed=False))
    await send("too large", batch(b"x" * 1000))
    await send("just fits", batch(b"x" * (1000 - 61 - 10)))
    await send("a count of 3", changed(good, ">i", 57, 3))
    await send("a count of 1", changed(good, ">i", 57, 1))
    await send("a count of 0", changed(good, ">i", 57, 0))
    await send("a count of -1", changed(good, ">i", 57, -1))
    await send("last offset delta 5", changed(good, ">i", 23, 5))
    await send("control batch", changed(good, ">h", 21, 0x20))
    await send("transactional without producer", changed(good, ">h", 21, 0x10))
    await send("append time", changed(good, ">h", 21, 0x08), await run.topic("append-time"))
    await send("delete horizon", changed(good, ">h", 21, 0x40))
    await send("codec 5", changed(good, ">h", 21, 5))
    await send("not compressed after all", changed(good, ">h", 21, int(Codec.GZIP)))
    await send("producer without sequence", changed(good, ">q", 43, 10**9))
    await send("no key", good, compacted)
    await send("one key of two", batch(b"v", key=b"k"), compacted)
    await send("max timestamp too low", changed(good, ">q", 35, TIME_MS - 5))
    await send("max timestamp too high", changed(good, ">q", 35, TIME_MS + 5000))
    body = bytearray(good)
    body[61] = 100
    await send("record length", changed(bytes(body), ">b", 61, 100))
    await send("record attributes", changed(good, ">b", 62, 1))
    await send("too large and bad checksum", changed(batch(b"x" * 1000), ">B", 70, 1, sealed=False))
    odd = changed(good, ">q", 0, 5, sealed=False)
    await send("base offset and bad checksum", changed(odd, ">B", 70, 1, sealed=False))
    empty = changed(good, ">i", 57, 0, sealed=False)
    await send("a count of 0 and bad checksum", empty)
    await fetch(client, 12, fetched(topic), note="all")
    await fetch(client, 12, fetched(compacted), note="compacted")


async def claims_of_append_time(run: Run) -> None:
    """Batches whose header says that a broker has set their timestamps."""
    client = await run.client()
    topics = {
        "plain": await run.topic("plain"),
        "logged": await run.topic("logged", message_timestamp_type="LogAppendTime"),
        "gzip": await run.topic("gzip", compression_type="gzip"),
        "limited": await run.topic("limited", message_timestamp_before_max_ms="1000"),
    }
    for name, topic in topics.items():
        for codec in (Codec.NONE, Codec.GZIP):
            for note, max_timestamp in (
                ("claimed", TIME_MS + 1),
                ("claimed later", TIME_MS + 5),
                ("claimed, none", -1),
                ("claimed, too new", 4_000_000_000_000),
            ):
                records = changed(batch(b"a", b"b", codec=codec), ">q", 35, max_timestamp)
                records = changed(records, ">h", 21, 0x08 | int(codec))
                await produce(client, 12, topic, records, note=f"{note}, {codec.name} to {name}")
        await fetch(client, 12, fetched(topic), note=name)


async def timestamps(run: Run) -> None:
    """message.timestamp.type and its limits."""
    client = await run.client()
    future = 4_000_000_000_000
    topic = await run.topic(message_timestamp_before_max_ms="1000")
    logged = await run.topic("logged", message_timestamp_type="LogAppendTime")
    plain = await run.topic("plain")
    for version in (3, 7, 8, 12):
        await produce(client, version, topic, batch(b"a", b"b"), note="too old")
        await produce(client, version, plain, batch(b"a", timestamp=future), note="too new")
        await produce(client, version, topic, batch(b"a", timestamp=-1), note="none")
        await produce(client, version, logged, batch(b"a", timestamp=future), note="logged")
        await produce(client, version, logged, batch(b"a", codec=Codec.GZIP), note="logged, gzip")
    mixed = batch(b"a", b"b", timestamp=future)
    await produce(client, 12, plain, mixed, note="both too new")
    await fetch(client, 12, fetched(logged), note="logged")
    await fetch(client, 12, fetched(topic), note="none")


async def codecs(run: Run) -> None:
    """Every codec, kept, and changed by the broker."""
    client = await run.client()
    kept = await run.topic("kept")
    for codec in CODECS:
        records = batch(b"a" * 100, b"b" * 100, codec=codec)
        for version in (3, 6, 7, 9):
            await produce(client, version, kept, records, note=codec.name)
    await fetch(client, 12, fetched(kept), note="kept")
    for version in (4, 9, 10, 12):
        await fetch(client, version, fetched(kept), note="with zstd")
    for to in ("gzip", "lz4", "snappy", "zstd", "uncompressed"):
        topic = await run.topic(to, compression_type=to)
        for codec in (Codec.NONE, Codec.GZIP):
            await produce(
                client, 9, topic, batch(b"a" * 100, b"b", codec=codec), note=f"{codec.name} to {to}"
            )
        await fetch(client, 12, fetched(topic), note=to)


async def idempotence(run: Run) -> None:
    """Sequences and epochs of a producer."""
    client = await run.client()
    topic = await run.topic()
    for version in (3, 8, 12):
        init: dict[str, Any] = {"transactional_id": None, "transaction_timeout_ms": 1000}
        pid = (await client.send("InitProducerId", 4, **init)).producer_id

        async def send(
            note: str,
            sequence: int,
            epoch: int = 0,
            *values: bytes,
            producer_id: int = pid,
            v: int = version,
        ) -> Any:
            own: dict[str, Any] = {
                "producer_id": producer_id,
                "producer_epoch": epoch,
                "base_sequence": sequence,
            }
            return await produce(client, v, topic, batch(*(values or (b"x",)), **own), note=note)

        await send("first, not 0", 3)
        for number in range(4, 10):
            await send(f"sequence {number}", number)
        for number in range(3, 10):
            await send(f"again {number}", number)
        await send("a gap", 12)
        await send("other size", 9, 0, b"x", b"y")
        await send("an older epoch later", 10, 0)
        await send("next epoch, not 0", 5, 1)
        await send("next epoch", 0, 1)
        await send("older epoch", 11, 0)
        await send("older epoch again", 0, 0)
        await send("last sequence", 2**31 - 1, 2)
        await send("of another", 5, producer_id=10**9)
        await send("epoch 2", 0, 2, b"a", b"b")
        await send("epoch 2 again", 0, 2, b"a", b"b")
        await send("epoch 2 partly", 0, 2, b"a")
        await send("epoch 2 overlap", 1, 2, b"b", b"c")
        wrap = 10**9 + version
        await send("before the wrap", 2**31 - 2, 0, b"a", b"b", producer_id=wrap)
        await send("after the wrap", 0, 0, producer_id=wrap)
        await send("over the wrap", 2**31 - 1, 5, b"a", b"b", producer_id=wrap + 100)
        await send("behind it", 1, 5, producer_id=wrap + 100)
    names = [{"name": topic.name, "partition_indexes": [0]}]
    await client.send("DescribeProducers", 0, topics=names)


async def duplicates_with_append_time(run: Run) -> None:
    """A duplicate is told when the first was appended."""
    client = await run.client()
    init: dict[str, Any] = {"transactional_id": None, "transaction_timeout_ms": 1000}
    pid = (await client.send("InitProducerId", 4, **init)).producer_id
    for kind in ("CreateTime", "LogAppendTime"):
        topic = await run.topic(kind, message_timestamp_type=kind)
        records = batch(b"a", b"b", producer_id=pid, producer_epoch=0, base_sequence=0)
        for note in ("first", "again"):
            await produce(client, 9, topic, records, note=f"{kind} {note}")


async def without_answers(run: Run) -> None:
    """acks=0: nothing is said, and a failure closes the connection."""
    topic = await run.topic()
    client = await run.client("quiet")
    for partition in (0, 5):
        data = {**topic.both, "partition_data": [{"index": partition, "records": batch(b"x")}]}
        await client.post("Produce", 9, acks=0, timeout_ms=1000, topic_data=[data])
        if partition:
            await client.send("ApiVersions", 0, note="after a failure")
        else:
            await client.send("FindCoordinator", 0, note="after a success", key="")
    reader = await run.client("reader")
    await fetch(reader, 12, fetched(topic))


async def internal_topics(run: Run) -> None:
    """Only an admin client may write to Kafka's own topics."""
    await run.group()
    internal = Topic("__consumer_offsets", bytes(16))
    for name in ("somebody", "__admin_client"):
        client = await run.client(name)
        bad = changed(batch(b"x"), ">B", 65, 7, sealed=False)
        await produce(client, 12, internal, bad, note=name)


async def small_segments(run: Run) -> None:
    """A batch that is larger than a segment may be."""
    client = await run.client()
    topic = await run.topic(segment_bytes="1048576", max_message_bytes="5000000")
    await produce(client, 9, topic, batch(b"x" * 1_048_577), note="larger than a segment")
    await produce(client, 9, topic, batch(b"x" * 10), note="small")


async def rich_records(run: Run) -> None:
    """Headers, nulls and empty values, in all codecs."""
    client = await run.client()
    topic = await run.topic()
    for codec in Codec:
        builder = BatchBuilder(codec=codec)
        builder.append(TIME_MS, b"key", b"value", [("h", b"1"), ("h", None), ("", b"")])
        builder.append(TIME_MS + 5, None, None)
        builder.append(TIME_MS - 5, b"", b"")
        await produce(client, 9, topic, bytes(builder.build()), note=codec.name)
    await fetch(client, 12, fetched(topic))
    for timestamp in (TIME_MS - 5, TIME_MS, TIME_MS + 1, -3):
        asked = [{"partition_index": 0, "timestamp": timestamp}]
        topics = [{"name": topic.name, "partitions": asked}]
        await client.send("ListOffsets", 8, note=f"{timestamp}", replica_id=-1, topics=topics)


async def odd_inner_offsets(run: Run) -> None:
    """Records whose offsets do not count up from 0."""
    client = await run.client()
    for codec in (Codec.NONE, Codec.GZIP):
        topic = await run.topic(codec.name)
        for note, offsets in (("a gap", (0, 2)), ("not from 0", (1, 2)), ("right", (0, 1))):
            builder = BatchBuilder(codec=codec)
            for offset in offsets:
                builder.append(TIME_MS, None, b"%d" % offset, offset=offset)
            await produce(client, 9, topic, bytes(builder.build()), note=f"{note}, {codec.name}")
        await fetch(client, 12, fetched(topic), note=codec.name)


async def limits_of_compressed_batches(run: Run) -> None:
    """max.message.bytes counts what is stored."""
    client = await run.client()
    for to in ("producer", "uncompressed", "gzip"):
        topic = await run.topic(to, max_message_bytes="500", compression_type=to)
        for codec in (Codec.NONE, Codec.GZIP):
            records = batch(b"a" * 1000, codec=codec)
            await produce(client, 9, topic, records, note=f"{codec.name} to {to}")
