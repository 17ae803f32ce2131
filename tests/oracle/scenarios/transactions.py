"""Transactions of both versions: ids, epochs, partitions, offsets, ends, and what readers see."""

from __future__ import annotations

from typing import Any

from tests.oracle.bodies import versions_of
from tests.oracle.scenario import Run
from tests.oracle.scenarios._transactional import (
    Producer,
    committed,
    partitions,
    producer,
    see,
)
from tests.oracle.scenarios.offsets import fetch_body

#: Added to a producer id, an id of nobody.
FAR = 10**9


async def initialising(run: Run) -> None:
    """InitProducerId at every version, with and without a transactional id."""
    client = await run.client()
    for version in versions_of("InitProducerId"):
        body: dict[str, Any] = {"transaction_timeout_ms": 1000}
        await client.send(
            "InitProducerId", version, note="idempotent", **body, transactional_id=None
        )
        await client.send("InitProducerId", version, note="empty id", **body, transactional_id="")
        name = await run.transactional_id(f"init-{version}")
        for timeout in (0, -1, 900_001, 900_000):
            await client.send(
                *("InitProducerId", version),
                note=f"timeout of {timeout}",
                transactional_id=name,
                transaction_timeout_ms=timeout,
            )
        answer = await client.send(
            "InitProducerId", version, note="again", **body, transactional_id=name
        )
        if version < 3:
            continue
        known, epoch = answer.producer_id, answer.producer_epoch
        for note, pid, number in (
            ("its own epoch", known, epoch),
            ("the epoch before", known, epoch),
            ("a future epoch", known, epoch + 7),
            ("an old epoch", known, 0),
            ("another producer", known + FAR, epoch),
            ("a producer without epoch", known, -1),
            ("an epoch without producer", -1, epoch),
        ):
            await client.send(
                *("InitProducerId", version),
                note=note,
                **body,
                transactional_id=name,
                producer_id=pid,
                producer_epoch=number,
            )
        fresh = await run.transactional_id(f"fresh-{version}")
        await client.send(
            *("InitProducerId", version),
            note="a producer of a fresh id",
            **body,
            transactional_id=fresh,
            producer_id=known,
            producer_epoch=epoch,
        )
        await client.send(
            *("InitProducerId", version),
            note="a producer without transactional id",
            **body,
            transactional_id=None,
            producer_id=known,
            producer_epoch=epoch,
        )


async def first_version(run: Run) -> None:
    """Transactions as clients before KIP-890 make them, at every version of their requests."""
    topic = await run.topic(partitions=2)
    group = await run.group()
    for version in range(5):
        one = await producer(run, f"old-{version}", version)
        add = min(version, 3)
        await one.add(add, partitions(topic, 0, 1))
        await one.add(add, partitions(topic, 0), note="again")
        await one.produce(3 + version, topic, one.batch(b"a%d" % version))
        await one.client.send("AddOffsetsToTxn", min(version, 3), **one.who, group_id=group)
        await one.client.send(
            *("TxnOffsetCommit", version),
            **one.who,
            group_id=group,
            topics=committed(topic.name, version),
        )
        for fetch in (7, 9):
            for stable in (False, True):
                await one.client.send(
                    *("OffsetFetch", fetch),
                    note="open, stable" if stable else "open",
                    **fetch_body(fetch, group, topic),
                    require_stable=stable,
                )
        await one.client.send("DescribeTransactions", 0, transactional_ids=[one.name])
        end = min(version, 4)
        await one.end(end, commit=version % 2 == 0)
        await one.is_over("CompleteCommit" if version % 2 == 0 else "CompleteAbort")
        await one.end(end, commit=version % 2 == 0, note="again")
        await one.end(end, commit=version % 2 == 1, note="otherwise")
        await one.client.send("OffsetFetch", 9, note="over", **fetch_body(9, group, topic))
    await see(run, topic, "all")


async def second_version(run: Run) -> None:
    """Transactions by KIP-890: no partitions are added, and each end gives a new epoch."""
    topic = await run.topic(partitions=2)
    group = await run.group()
    one = await producer(run, "new")
    for number, commit in enumerate((True, False, True)):
        await one.produce(12 + number % 2, topic, one.batch(b"v%d" % number), note=f"{number}")
        await one.produce(12, topic, one.batch(b"w", sequence=1), note=f"more {number}")
        await one.client.send(
            *("TxnOffsetCommit", 5),
            **one.who,
            group_id=group,
            topics=committed(topic.name, number),
        )
        await one.client.send("DescribeTransactions", 0, transactional_ids=[one.name])
        await see(run, topic, "open")
        who = dict(one.who)
        await one.end(5, commit=commit)
        state = "CompleteCommit" if commit else "CompleteAbort"
        await one.is_over(state)
        await one.client.send("EndTxn", 5, note="again", **who, committed=commit)
        await one.client.send("EndTxn", 5, note="otherwise", **who, committed=not commit)
        await one.client.send(
            *("DescribeProducers", 0), topics=[{"name": topic.name, "partition_indexes": [0]}]
        )
    await one.client.send("OffsetFetch", 9, note="over", **fetch_body(9, group, topic))
    await see(run, topic, "all")
    await one.end(5, commit=True, note="commit of nothing")
    await one.end(5, commit=False, note="abort of nothing")
    await one.is_over("CompleteAbort")
    await one.end(5, commit=False, note="abort of nothing again")
    await one.is_over("CompleteAbort")


async def empty_ends(run: Run) -> None:
    """EndTxn before anything was written."""
    for version in versions_of("EndTxn"):
        for commit in (True, False):
            one = await producer(run, f"empty-{version}-{commit}")
            await one.end(version, commit=commit, note=f"commit {commit}")
            await one.client.until(
                *(
                    "DescribeTransactions",
                    0,
                    lambda r: not r.transaction_states[0].transaction_state.startswith("Prepare"),
                ),
                transactional_ids=[one.name],
            )


async def refused_ends(run: Run) -> None:
    """EndTxn of somebody else."""
    topic = await run.topic()
    client = await run.client()
    for version in versions_of("EndTxn"):
        unknown = await run.transactional_id(f"unknown-{version}")
        body: dict[str, Any] = {"producer_id": FAR, "producer_epoch": 0, "committed": True}
        await client.send("EndTxn", version, note="unknown id", transactional_id=unknown, **body)
        await client.send("EndTxn", version, note="empty id", transactional_id="", **body)
        one = await producer(run, f"known-{version}")
        one = await producer(run, f"known-{version}")
        await one.add(3, partitions(topic, 0))
        await one.end(version, commit=True, note="another producer", producer_id=one.id + FAR)
        await one.end(version, commit=True, note="a later epoch", producer_epoch=one.epoch + 1)
        await one.end(version, commit=True, note="an older epoch", producer_epoch=one.epoch - 1)
        await one.end(version, commit=False)
        await one.is_over("CompleteAbort")


async def refused_additions(run: Run) -> None:
    """AddPartitionsToTxn and AddOffsetsToTxn that are not accepted."""
    topic = await run.topic()
    group = await run.group()
    client = await run.client()
    for version in versions_of("AddPartitionsToTxn"):
        unknown = Producer(client, await run.transactional_id(f"unknown-{version}"), FAR, 0)
        await unknown.add(version, partitions(topic, 0), note="unknown id")
        one = await producer(run, f"known-{version}")
        one = await producer(run, f"known-{version}")
        odd = {"name": run.name("odd"), "partitions": [0]}
        await one.add(version, partitions(topic, 0), odd, note="an unknown topic")
        await one.add(version, partitions(topic, 0, 9), note="an unknown partition")
        await one.add(version, note="no topics")
        for note, pid, epoch in (
            ("another producer", one.id + FAR, one.epoch),
            ("a later epoch", one.id, one.epoch + 1),
            ("an older epoch", one.id, one.epoch - 1),
        ):
            other = Producer(client, one.name, pid, epoch)
            await other.add(version, partitions(topic, 0), note=note)
        empty = Producer(client, "", one.id, one.epoch)
        await empty.add(version, partitions(topic, 0), note="empty id")
        if version >= 4:
            await one.add(version, partitions(topic, 0), note="only verify", verify_only=True)
            await one.add(version, partitions(topic, 0))
            await one.add(version, partitions(topic, 0), note="only verify now", verify_only=True)
            both = [{**each.who, "topics": [partitions(topic, 0)]} for each in (one, unknown)]
            await client.send("AddPartitionsToTxn", version, note="two", transactions=both)
    for version in versions_of("AddOffsetsToTxn"):
        unknown = Producer(client, await run.transactional_id(f"un-{version}"), FAR, 0)
        one = await producer(run, f"offsets-{version}")
        for note, who in (
            ("unknown id", unknown.who),
            ("empty id", {**one.who, "transactional_id": ""}),
            ("another producer", {**one.who, "producer_id": one.id + FAR}),
            ("a later epoch", {**one.who, "producer_epoch": one.epoch + 1}),
            ("accepted", one.who),
            ("again", one.who),
        ):
            await client.send("AddOffsetsToTxn", version, note=note, **who, group_id=group)
        await client.send("AddOffsetsToTxn", version, note="no group id", **one.who, group_id="")


async def refused_offset_commits(run: Run) -> None:
    """TxnOffsetCommit that is not accepted."""
    topic = await run.topic()
    group = await run.group()
    client = await run.client()
    for version in versions_of("TxnOffsetCommit"):
        one = await producer(run, f"one-{version}")
        topics = committed(topic.name, 4)

        async def commit(note: str, v: int = version, **body: Any) -> None:
            await client.send("TxnOffsetCommit", v, note=note, **body)

        who: dict[str, Any] = {**one.who, "group_id": group, "topics": topics}
        await commit("nothing added", **who)
        await commit("unknown id", **{**who, "transactional_id": run.name("unknown")})
        await commit("another producer", **{**who, "producer_id": one.id + FAR})
        await commit("another epoch", **{**who, "producer_epoch": one.epoch + 1})
        await commit("no group id", **{**who, "group_id": ""})
        await client.send("AddOffsetsToTxn", 3, **one.who, group_id=group)
        await commit("accepted", **who)
        await commit("an unknown topic", **{**who, "topics": committed(run.name("x"), 1)})
        long = committed(topic.name, 4, committed_metadata="m" * 4097)
        await commit("long metadata", **{**who, "topics": long})
        await commit("no topics", **{**who, "topics": []})
        await commit("unknown member", **who, generation_id=1, member_id="nobody")
        await commit("a generation", **who, generation_id=1)
        await commit("a member", **who, member_id="nobody")
        await commit("an instance", **who, group_instance_id="i")
        await one.end(3, commit=False)
        await one.is_over("CompleteAbort")


async def refused_writes(run: Run) -> None:
    """Produce that is not part of a transaction, or of an old one."""
    topic = await run.topic()
    for version in versions_of("Produce"):
        one = await producer(run, f"one-{version}")
        two = await producer(run, f"one-{version}")
        records = two.batch(b"x")
        await one.produce(version, topic, one.batch(b"x"), note="an older epoch")
        await two.produce(version, topic, records, note="nothing added")
        later = Producer(two.client, two.name, two.id, two.epoch + 1)
        await later.produce(version, topic, later.batch(b"x"), note="a later epoch")
        unnamed = {
            "acks": -1,
            "topic_data": [{**topic.both, "partition_data": [{"index": 0, "records": records}]}],
        }
        await two.client.send("Produce", version, note="no transactional id", **unnamed)
        other = Producer(two.client, run.name("other"), two.id, two.epoch)
        await other.produce(version, topic, other.batch(b"x"), note="another transactional id")
        await two.add(3, partitions(topic, 0))
        await two.produce(version, topic, two.batch(b"y", sequence=5), note="a later sequence")
        await two.produce(version, topic, two.batch(b"z"), note="added")
        plain = two.batch(b"n", sequence=1, is_transactional=False)
        await two.produce(version, topic, plain, note="not transactional")
        await two.produce(version, topic, two.batch(b"z"), note="once more")
        await two.end(3, commit=True)
        await two.is_over("CompleteCommit")
        await two.produce(version, topic, two.batch(b"z", sequence=1), note="after its end")
    await see(run, topic, "all")


async def fencing(run: Run) -> None:
    """A second producer of the same id ends what the first has begun."""
    topic = await run.topic()
    one = await producer(run, "one")
    await one.produce(12, topic, one.batch(b"old"))
    two = await producer(run, "one")
    await one.produce(12, topic, one.batch(b"late", sequence=1), note="fenced")
    await one.end(5, commit=True, note="fenced")
    await two.client.send("DescribeTransactions", 0, transactional_ids=[two.name])
    await two.produce(12, topic, two.batch(b"new"))
    await two.end(5, commit=True)
    await two.is_over("CompleteCommit")
    await see(run, topic, "all")


async def timing_out(run: Run) -> None:
    """A transaction that takes too long is aborted, and its producer is fenced."""
    topic = await run.topic()
    for version in (3, 5):
        one = await producer(run, f"slow-{version}", timeout_ms=1000)
        if version < 5:
            await one.add(3, partitions(topic, 0))
        await one.produce(12 if version == 5 else 11, topic, one.batch(b"slow"))
        await one.is_over("CompleteAbort")
        await one.produce(
            12 if version == 5 else 11, topic, one.batch(b"s", sequence=1), note="late"
        )
        await one.end(version, commit=True, note="late")
        await one.client.send(
            *("InitProducerId", 5),
            note="goes on",
            transactional_id=one.name,
            transaction_timeout_ms=1000,
            producer_id=one.id,
            producer_epoch=one.epoch,
        )
    await see(run, topic, "all")


async def listing(run: Run) -> None:
    """DescribeTransactions and ListTransactions."""
    topic = await run.topic(partitions=2)
    client = await run.client()
    one, two = await producer(run, "one"), await producer(run, "two")
    await one.add(3, partitions(topic, 1, 0))
    names = [two.name, one.name, run.name("unknown"), ""]
    await client.send("DescribeTransactions", 0, transactional_ids=names)

    def mine(response: Any) -> Any:
        states = tuple(s for s in response.transaction_states if run.is_mine(s.transactional_id))
        return response.replace(transaction_states=states)

    for version in versions_of("ListTransactions"):
        await client.send("ListTransactions", version, show=mine)
        for states in (["Ongoing"], ["Empty", "odd"], ["odd"], ["ongoing"]):
            await client.send(
                *("ListTransactions", version),
                note=" ".join(states),
                show=mine,
                state_filters=states,
            )
        await client.send(
            *("ListTransactions", version),
            note="by id",
            show=mine,
            producer_id_filters=[one.id, -3],
        )
    await client.send("ListTransactions", 2, note="long", show=mine, duration_filter=3_600_000)
    await client.send("ListTransactions", 2, note="short", show=mine, duration_filter=0)
    for pattern in ("listing.*one", "^.*two$", "two", "[", ""):
        await client.send(
            "ListTransactions", 2, note=pattern, show=mine, transactional_id_pattern=pattern
        )
    await one.end(3, commit=True)
    await one.is_over("CompleteCommit")


async def markers(run: Run) -> None:
    """WriteTxnMarkers by hand, as an admin client aborts a hanging transaction."""
    topic = await run.topic()
    client = await run.client()
    for version in versions_of("WriteTxnMarkers"):
        one = await producer(run, f"one-{version}")
        one = await producer(run, f"one-{version}")
        await one.add(3, partitions(topic, 0))
        await one.produce(11, topic, one.batch(b"x"))

        async def mark(note: str, v: int = version, p: Producer = one, **more: Any) -> None:
            body: dict[str, Any] = {
                "producer_id": p.id,
                "producer_epoch": p.epoch,
                "transaction_result": False,
                "coordinator_epoch": 0,
                "topics": [{"name": topic.name, "partition_indexes": [0]}],
                **more,
            }
            await client.send("WriteTxnMarkers", v, note=note, markers=[body])

        await mark("an older epoch", producer_epoch=one.epoch - 1)
        odd = [{"name": run.name("unknown"), "partition_indexes": [0]}]
        await mark("an unknown topic", topics=odd)
        await mark("an unknown partition", topics=[{"name": topic.name, "partition_indexes": [5]}])
        await mark("an older coordinator", coordinator_epoch=-1)
        await mark("written")
        await mark("again")
        describe = [{"name": topic.name, "partition_indexes": [0, 4]}, *odd]
        await client.send("DescribeProducers", 0, topics=describe)
        await mark("a later coordinator", coordinator_epoch=3, producer_epoch=one.epoch + 1)
        await mark("an older coordinator now", coordinator_epoch=2, producer_epoch=one.epoch + 1)
    await client.send("WriteTxnMarkers", 1, note="none", markers=[])
    await see(run, topic, "all")
