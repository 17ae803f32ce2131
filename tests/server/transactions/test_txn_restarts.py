"""Transactions across a kill: what was open is open, what was decided ends as decided."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import TopicName
from dohle.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from dohle.server.internal_topics import TRANSACTION_STATE
from dohle.server.node import Node
from dohle.txn.state import TransactionState, completed
from tests.server.faults import WatchedFileSystem, until
from tests.server.transactions.txn_producer import (
    PROPERTIES,
    READ_COMMITTED,
    TOPICS,
    TxnProducer,
    commit_offset,
    committed_offset,
    described,
    latest,
    log_of,
    markers,
    read_committed,
    with_transactional_node,
)
from tests.server.wire import Wire, running_node

# Restarts


async def producers_of(wire: Wire, topic: str) -> list[Any]:
    topics = (TopicRequest(name=TopicName(topic), partition_indexes=(0,)),)
    answer = await wire.send(DescribeProducersRequest(topics=topics))
    return list(answer.topics[0].partitions[0].active_producers)


def test_an_open_transaction_is_open_after_a_kill_and_its_coordinator_can_end_it(
    tmp_path: Path,
) -> None:
    living, killed = tmp_path / "living", tmp_path / "killed"

    async def run() -> None:
        async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
            assert (await producer.send("a", b"committed")).error_code == 0
            await producer.ended(commit=True)
            assert (await producer.send("a", b"open")).error_code == 0
            shutil.copytree(living, killed)
            before.append((producer, await producers_of(wire, "a")))

        before: list[tuple[TxnProducer, list[Any]]] = []
        await with_transactional_node(living, scenario)
        (old, described_before), *_ = before
        async with running_node(killed, PROPERTIES) as node, await Wire.connect(node) as wire:
            assert await producers_of(wire, "a") == described_before
            assert described_before[0].current_txn_start_offset == 2
            assert await read_committed(wire, "a") == [b"committed"]
            assert await latest(wire, "a", READ_COMMITTED) == 2
            producer = TxnProducer(node, wire, "tx")
            producer.resume(old)
            assert (await producer.send("a", b"more")).error_code == 0
            await producer.ended(commit=True)
            assert await read_committed(wire, "a") == [b"committed", b"open", b"more"]
            (entry,) = await producers_of(wire, "a")
            assert (entry.current_txn_start_offset, entry.last_sequence) == (-1, -1)

    asyncio.run(run())


class Outcome(NamedTuple):
    """What there is of a transaction after a restart."""

    state: TransactionState
    markers: list[list[str]]
    values: list[list[bytes | None]]
    offset: tuple[int, int]


@pytest.mark.parametrize("commit", [True, False])
def test_a_kill_at_any_moment_of_the_end_leaves_the_decided_outcome(
    tmp_path: Path, commit: bool
) -> None:
    """Before the decision it is open, from then on it ends as decided: everywhere, by itself."""
    fs, copies = WatchedFileSystem(), list[Path]()

    def snapshot(path: str) -> None:
        if path.endswith(".log"):
            copies.append(tmp_path / f"copy-{len(copies)}")
            shutil.copytree(tmp_path / "data", copies[-1] / "data")

    async def end(node: Node, wire: Wire, producer: TxnProducer) -> None:
        for topic in TOPICS:
            assert (await producer.send(topic, b"x")).error_code == 0
        assert await commit_offset(producer, "a", 7) == 0
        fs.on_write = snapshot
        await producer.ended(commit=commit)
        index = node.broker.transactions.partition_of("tx")
        assert index is not None
        log = log_of(node, TRANSACTION_STATE, index)
        await until(lambda: log.high_watermark == log.log_end_offset)
        snapshot(".log")
        fs.on_write = lambda path: None

    async def outcome(path: Path) -> Outcome:
        async with running_node(path, PROPERTIES) as node, await Wire.connect(node) as wire:
            broker = node.broker
            await until(lambda: not (broker.transactions.is_loading or broker.groups.is_loading))
            await until(lambda: not described(node, "tx").state.is_decided)
            return Outcome(
                described(node, "tx").state,
                [await markers(wire, topic) for topic in TOPICS],
                [await read_committed(wire, topic) for topic in TOPICS],
                await committed_offset(wire, "a", require_stable=True),
            )

    asyncio.run(with_transactional_node(tmp_path, end, fs=fs))
    found = [asyncio.run(outcome(path)) for path in copies]
    # The decision, a marker for each partition and for the group, and that it is complete.
    assert len(found) == 6
    name = "COMMIT" if commit else "ABORT"
    values = [b"x"] if commit else []
    unstable = (-1, int(ErrorCode.UNSTABLE_OFFSET_COMMIT))
    assert found[0] == (TransactionState.ONGOING, [[], []], [[], []], unstable)
    for state, written, seen, offset in found[1:]:
        assert state is completed(is_commit=commit)
        # One that may have been written is written again.
        assert all(set(one) == {name} for one in written)
        assert seen == [values, values]
        assert offset == (7 if commit else -1, 0)
