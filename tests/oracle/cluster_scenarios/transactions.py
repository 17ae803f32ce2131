"""Transactions whose coordinator and partitions are on different brokers."""

from __future__ import annotations

from typing import Any

from tests.oracle.bodies import versions_of
from tests.oracle.cluster_scenarios._nodes import delete, placed_topic
from tests.oracle.layout import GROUPS, TRANSACTIONS
from tests.oracle.scenario import Run, Topic
from tests.oracle.scenarios._transactional import CONCURRENT, Producer, partitions

_COORDINATOR = f"broker {TRANSACTIONS}"


async def _producer(run: Run, name: str, version: int = 5) -> Producer:
    """Begin a transactional producer at its coordinator, by one step."""
    client = await run.client(at=_COORDINATOR)
    await client.until_quietly(
        *("FindCoordinator", 4, lambda r: r.coordinators[0].error_code == 0),
        key_type=1,
        coordinator_keys=[run.name(name)],
    )
    answer = await client.until(
        *("InitProducerId", version, lambda r: r.error_code not in (14, 15, 16, CONCURRENT)),
        transactional_id=run.name(name),
        transaction_timeout_ms=60_000,
    )
    return Producer(client, run.name(name), answer.producer_id, answer.producer_epoch)


async def coordinators(run: Run) -> None:
    """Who coordinates, as every broker tells it; and others, asked all the same."""
    for node in (1, 2, 3):
        client = await run.client(at=f"broker {node}")
        for version in versions_of("FindCoordinator"):
            for note, kind in (("group", 0), ("transaction", 1)):
                body: dict[str, Any] = {"key_type": kind, "key": run.name("key")}
                if version >= 4:
                    body = {"key_type": kind, "coordinator_keys": [run.name("key")]}
                if version or not kind:
                    await client.send("FindCoordinator", version, note=note, **body)
    client = await run.client(at="broker 1")
    for version in versions_of("InitProducerId"):
        body = {"transactional_id": run.name("elsewhere"), "transaction_timeout_ms": 60_000}
        await client.send("InitProducerId", version, note="not the coordinator", **body)
    for version in versions_of("EndTxn"):
        body = {"transactional_id": run.name("elsewhere"), "producer_id": 5, "committed": True}
        await client.send("EndTxn", version, note="not the coordinator", **body)
    for version in versions_of("AddPartitionsToTxn"):
        await Producer(client, run.name("elsewhere"), 5, 0).add(
            version, {"name": "topic", "partitions": [0]}, note="not the coordinator"
        )
    body = {"transactional_ids": [run.name("elsewhere")]}
    await client.send("DescribeTransactions", 0, note="not the coordinator", **body)
    assert GROUPS != 1
    group = {"group_id": run.name("elsewhere"), "generation_id": 1, "member_id": "nobody"}
    await client.send("Heartbeat", 4, note="not the coordinator", **group)
    await client.send(
        "DescribeGroups", 5, note="not the coordinator", groups=[run.name("elsewhere")]
    )


async def across(run: Run) -> None:
    """A transaction over partitions of two leaders, with either protocol, and its end."""
    topic = await placed_topic(run, "topic", [1, 2, 3], [3, 1, 2])
    leaders = [await run.client(at="broker 1"), await run.client(at="broker 3")]
    for version, commit in ((4, True), (4, False), (5, True), (5, False)):
        what = f"v{version}-{'commit' if commit else 'abort'}"
        producer = await _producer(run, what, version)
        if version < 5:
            await producer.add(3, partitions(topic, 0, 1), note=what)
        for index, leader in enumerate(leaders):
            await Producer(leader, producer.name, producer.id, producer.epoch).produce(
                11 if version < 5 else 12, topic, producer.batch(b"a", b"b"), index, note=what
            )
        for index, leader in enumerate(leaders):
            asked = [{"name": topic.name, "partition_indexes": [index]}]
            await leader.send("DescribeProducers", 0, note=f"{what}, open", topics=asked)
        await producer.end(version, commit=commit, note=what)
        await producer.is_over("CompleteCommit" if commit else "CompleteAbort", note=what)
        for index, leader in enumerate(leaders):
            for level in (0, 1):
                part = {"partition": index, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
                await leader.until(
                    *("Fetch", 12, _is_all_committed),
                    note=f"{what}, isolation {level}",
                    replica_id=-1,
                    max_bytes=1 << 20,
                    isolation_level=level,
                    topics=[{"topic": topic.name, "partitions": [part]}],
                )
    await delete(run, topic)


def _is_all_committed(response: Any) -> bool:
    """Tell whether the markers are written and committed: three records for each transaction."""
    found = response.responses[0].partitions[0]
    return bool(found.high_watermark % 3 == 0 and found.last_stable_offset == found.high_watermark)


async def markers(run: Run) -> None:
    """WriteTxnMarkers at leaders and at others."""
    topic = await placed_topic(run, "topic", [1, 2], [2, 3], [3, 1])
    first, second = await run.client(at="broker 1"), await run.client(at="broker 2")
    for version in versions_of("WriteTxnMarkers"):
        for note, client, names in (
            ("led here", first, {topic.name: [0]}),
            ("followed here", second, {topic.name: [0]}),
            ("not here", first, {topic.name: [1]}),
            ("unknown partition", first, {topic.name: [7]}),
            ("unknown topic", first, {run.name("unknown"): [0]}),
            ("some here", first, {topic.name: [0, 1, 2, 7]}),
            ("groups, not here", first, {"__consumer_offsets": [0]}),
            ("nothing", first, {}),
        ):
            marker = {
                "producer_id": 4_000_000,
                "producer_epoch": 0,
                "transaction_result": True,
                "coordinator_epoch": 0,
                "topics": [
                    {"name": name, "partition_indexes": indexes} for name, indexes in names.items()
                ],
            }
            await client.send("WriteTxnMarkers", version, note=note, markers=[marker])
        older = {**marker, "topics": [{"name": topic.name, "partition_indexes": [0]}]}
        for note, changed in (
            ("later coordinator", {"coordinator_epoch": 5}),
            ("older coordinator", {"coordinator_epoch": 3}),
            ("later producer", {"coordinator_epoch": 5, "producer_epoch": 4}),
            ("older producer", {"coordinator_epoch": 5, "producer_epoch": 2}),
            (
                "transactions 2",
                {"coordinator_epoch": 5, "producer_epoch": 6, "transaction_version": 2},
            ),
            (
                "transactions 2, same epoch",
                {"coordinator_epoch": 5, "producer_epoch": 6, "transaction_version": 2},
            ),
        ):
            await first.send(
                *("WriteTxnMarkers", version), note=note, markers=[{**older, **changed}]
            )
        both = [older, {**older, "producer_id": 4_000_001}]
        await first.send("WriteTxnMarkers", version, note="two producers", markers=both)
        await first.send("WriteTxnMarkers", version, note="no markers", markers=[])
        await delete(run, topic)
        topic = await placed_topic(run, f"topic-{version}", [1, 2], [2, 3], [3, 1])
    await delete(run, topic)


async def verification(run: Run) -> None:
    """AddPartitionsToTxn as brokers send it: several transactions, and only to verify (H7)."""
    topic = await placed_topic(run, "topic", [1, 2], [3, 1])
    coordinator = await run.client(at=_COORDINATOR)
    for version in versions_of("AddPartitionsToTxn"):
        if version < 4:
            continue
        one, two = await _producer(run, f"one-{version}"), await _producer(run, f"two-{version}")
        await one.add(version, partitions(topic, 0), note="added")

        def asked(producer: Producer, *parts: int, t: Topic = topic, **more: Any) -> dict[str, Any]:
            return {"topics": [partitions(t, *parts)], "verify_only": True, **producer.who, **more}

        for note, transactions in (
            ("there", [asked(one, 0)]),
            ("not there", [asked(one, 1)]),
            ("some there", [asked(one, 0, 1)]),
            ("not begun", [asked(two, 0)]),
            ("both", [asked(one, 0), asked(two, 0)]),
            ("another epoch", [asked(one, 0, producer_epoch=one.epoch + 1)]),
            ("an older epoch", [asked(one, 0, producer_epoch=one.epoch - 1)]),
            ("another producer", [asked(one, 0, producer_id=two.id)]),
            ("unknown", [asked(one, 0, transactional_id=run.name("unknown"))]),
            ("no name", [asked(one, 0, transactional_id="")]),
            ("unknown partition", [asked(one, 9)]),
            ("unknown topic", [asked(one, 0, t=Topic(run.name("unknown"), b""))]),
            ("no topics", [asked(one, 0, topics=[])]),
            ("added as well", [asked(one, 0), asked(two, 1, verify_only=False)]),
        ):
            await coordinator.send(
                "AddPartitionsToTxn", version, note=note, transactions=transactions
            )
        for producer in (one, two):
            await producer.end(5, commit=False, note=f"v{version}")
            await producer.is_over("CompleteAbort", note=f"v{version}")
    await delete(run, topic)
