"""What readers see of transactions: LSO, aborted transactions, offsets by time."""

from __future__ import annotations

from typing import Any

from tests.oracle.bodies import versions_of
from tests.oracle.scenario import Run, Topic
from tests.oracle.scenarios._classic_members import stable
from tests.oracle.scenarios._records import TIME_MS, batch, fetch, fetched, produce
from tests.oracle.scenarios._transactional import committed, partitions, producer, see


async def _offsets(run: Run, topic: Topic, note: str) -> None:
    client = await run.client("reader")
    for timestamp in (-1, -2, -3, TIME_MS, TIME_MS + 1):
        for level in (0, 1):
            asked = [{"partition_index": 0, "timestamp": timestamp}]
            await client.send(
                *("ListOffsets", 8),
                note=f"{note}, {timestamp} at {level}",
                replica_id=-1,
                isolation_level=level,
                topics=[{"name": topic.name, "partitions": asked}],
            )


async def open_transactions(run: Run) -> None:
    """Two transactions and plain records, one over the other."""
    topic = await run.topic()
    one, two = await producer(run, "one"), await producer(run, "two")
    client = await run.client()
    await produce(client, 9, topic, batch(b"before"))
    await one.produce(12, topic, one.batch(b"1a"))
    await produce(client, 9, topic, batch(b"between"))
    await two.produce(12, topic, two.batch(b"2a"))
    await see(run, topic, "both open")
    await _offsets(run, topic, "both open")
    await two.end(5, commit=False)
    await two.is_over("CompleteAbort")
    await see(run, topic, "the second is aborted")
    await _offsets(run, topic, "the second is aborted")
    await one.produce(12, topic, one.batch(b"1b", sequence=1))
    await one.end(5, commit=True)
    await one.is_over("CompleteCommit")
    await see(run, topic, "none open")
    await _offsets(run, topic, "none open")
    for version in versions_of("Fetch"):
        for offset in (3, 5, 7):
            await fetch(
                client, version, fetched(topic, offset), note=f"from {offset}", isolation_level=1
            )
    describe = [{"name": topic.name, "partition_indexes": [0]}]
    await client.send("DescribeProducers", 0, topics=describe)


async def many_aborted(run: Run) -> None:
    """The list of aborted transactions holds those of what is read alone."""
    topic = await run.topic()
    one = await producer(run, "one")
    client = await run.client()
    for number in range(4):
        await one.produce(12, topic, one.batch(b"%d" % number), note=f"{number}")
        await one.end(5, commit=number == 1, note=f"{number}")
        await one.is_over("CompleteCommit" if number == 1 else "CompleteAbort", note=f"{number}")
    for offset in range(8):
        for size in (1, 200, 1 << 20):
            asked = fetched(topic, offset, partition_max_bytes=size)
            note = f"{size} from {offset}"
            await fetch(client, 12, asked, note=note, isolation_level=1)


async def waiting_for_the_end(run: Run) -> None:
    """A reader of what is committed waits for a transaction to end."""
    topic = await run.topic()
    one = await producer(run, "one")
    await one.produce(12, topic, one.batch(b"value"))
    reader = await run.client("waiting")
    body: dict[str, Any] = {"max_wait_ms": 15_000, "min_bytes": 1, "max_bytes": 1 << 20}
    waiting = await reader.post(
        *("Fetch", 12),
        note="waits",
        **body,
        replica_id=-1,
        isolation_level=1,
        topics=[fetched(topic)],
    )
    await one.end(5, commit=True)
    await waiting.answer()


async def deleted_under_a_transaction(run: Run) -> None:
    """DeleteRecords of what an open transaction has written."""
    topic = await run.topic()
    one = await producer(run, "one")
    client = await run.client()
    await one.produce(12, topic, one.batch(b"a", b"b"))
    parts = [{"partition_index": 0, "offset": 1}]
    body = [{"name": topic.name, "partitions": parts}]
    await client.send("DeleteRecords", 2, topics=body, timeout_ms=5000)
    await see(run, topic, "deleted")
    await fetch(client, 12, fetched(topic, 1), note="from 1", isolation_level=1)
    await one.end(5, commit=False)
    await one.is_over("CompleteAbort")
    await fetch(client, 12, fetched(topic, 1), note="from 1, aborted", isolation_level=1)


async def offsets_of_members(run: Run) -> None:
    """TxnOffsetCommit by a member of a group, and by nobody."""
    topic, group = await run.topic(), await run.group()
    member = await stable(run, group, "a", group_instance_id="i")
    for version in (3, 4, 5):
        one = await producer(run, f"one-{version}")
        await one.client.send("AddOffsetsToTxn", 3, **one.who, group_id=group)
        for note, generation, member_id, instance in (
            ("a member", 1, member.id, "i"),
            ("a member without its instance id", 1, member.id, None),
            ("another generation", 2, member.id, "i"),
            ("another instance", 1, member.id, "j"),
            ("an old member of the instance", 1, "nobody", "i"),
            ("unknown", 1, "nobody", None),
            ("nobody", -1, "", None),
        ):
            await one.client.send(
                *("TxnOffsetCommit", version),
                note=note,
                **one.who,
                group_id=group,
                generation_id=generation,
                member_id=member_id,
                group_instance_id=instance,
                topics=committed(topic.name, 3),
            )
        await one.end(3, commit=version == 4)
        await one.is_over("CompleteCommit" if version == 4 else "CompleteAbort")
        fetched_offsets = {"groups": [{"group_id": group, "topics": None}], "require_stable": True}
        await one.client.send("OffsetFetch", 9, note=f"after {version}", **fetched_offsets)
    await one.client.send("DeleteGroups", 2, note="not empty", groups_names=[group])


async def several_partitions(run: Run) -> None:
    """One request for partitions that are part of a transaction, and one that is not."""
    topic = await run.topic(partitions=3)
    for version in (11, 12):
        one = await producer(run, f"one-{version}")
        await one.add(3, partitions(topic, 0, 1))
        data = [{"index": each, "records": one.batch(b"x")} for each in (0, 1, 2)]
        await one.client.send(
            *("Produce", version),
            transactional_id=one.name,
            acks=-1,
            timeout_ms=5000,
            topic_data=[{**topic.both, "partition_data": data}],
        )
        await one.client.send("DescribeTransactions", 0, transactional_ids=[one.name])
        await one.end(3, commit=True)
        await one.is_over("CompleteCommit")
