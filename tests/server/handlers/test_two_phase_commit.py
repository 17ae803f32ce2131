"""InitProducerId v6 (KIP-939): who may use it, and transactions that outlive their producers."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import TransactionalId
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.api_versions import ApiVersionsRequest
from dohle.protocol.messages.describe_transactions import DescribeTransactionsRequest
from dohle.protocol.messages.init_producer_id import InitProducerIdRequest
from dohle.server.node import Node
from dohle.txn.transaction import NO_TIMEOUT_MS, ProducerIdAndEpoch
from tests.server.faults import until
from tests.server.transactions.transaction_wire import end
from tests.server.transactions.txn_producer import (
    PROPERTIES,
    TxnProducer,
    described,
    markers,
    read_committed,
    with_transactional_node,
)
from tests.server.wire import Wire, on_node, running_node

ENABLED = {"transaction.two.phase.commit.enable": "true"}
UNKNOWN_TIMEOUT_MS = 0


async def init(
    wire: Wire, *, two_phase: bool = True, keep: bool = False, transactional_id: str | None = "tx"
) -> Any:
    request = InitProducerIdRequest(
        transactional_id=None if transactional_id is None else TransactionalId(transactional_id),
        transaction_timeout_ms=UNKNOWN_TIMEOUT_MS if two_phase else 60_000,
        enable_two_pc=two_phase,
        keep_prepared_txn=keep,
    )
    return await wire.send(request, 6)


def identities(answer: Any) -> tuple[ProducerIdAndEpoch, ProducerIdAndEpoch]:
    """Return who the producer is, and whose transaction is open."""
    assert answer.error_code == ErrorCode.NONE
    return (
        ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch),
        ProducerIdAndEpoch(answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch),
    )


def identity(producer: TxnProducer) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch)


Scenario = Callable[[Node, Wire, TxnProducer], Awaitable[None]]


async def with_open_transaction(path: Path, scenario: Scenario) -> None:
    """Run a scenario after a two-phase producer has written to two partitions."""

    async def run(node: Node, wire: Wire, producer: TxnProducer) -> None:
        (producer.producer_id, producer.producer_epoch), _ = identities(await init(wire))
        producer.sequences.clear()
        for topic in ("a", "b"):
            assert (await producer.send(topic, b"prepared")).error_code == 0
        await scenario(node, wire, producer)

    await with_transactional_node(path, run, ENABLED)


# Who may use it


@pytest.mark.parametrize(("properties", "highest"), [({}, 5), (ENABLED, 6)])
def test_the_version_is_offered_where_it_is_enabled(
    tmp_path: Path, properties: dict[str, str], highest: int
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        answer = await wire.send(ApiVersionsRequest(), 0)
        versions = {each.api_key: each.max_version for each in answer.api_keys}
        assert versions[ApiKey.INIT_PRODUCER_ID] == highest
        if highest == 6:
            _, ongoing = identities(await init(wire, two_phase=False, transactional_id=None))
            assert ongoing == (-1, -1)
        else:
            with pytest.raises((EOFError, OSError)):
                await init(wire, two_phase=False, transactional_id=None)

    on_node(tmp_path, scenario, properties)


def test_a_two_phase_transaction_is_described_without_a_timeout(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        ids = (TransactionalId("tx"),)
        answer = await wire.send(DescribeTransactionsRequest(transactional_ids=ids))
        (state,) = answer.transaction_states
        assert state.transaction_timeout_ms == NO_TIMEOUT_MS
        assert state.transaction_state == "Ongoing"
        assert (state.producer_id, state.producer_epoch) == identity(producer)

    asyncio.run(with_open_transaction(tmp_path, scenario))


# Kept transactions


@pytest.mark.parametrize("commit", [True, False])
def test_a_successor_ends_what_its_predecessor_has_written(tmp_path: Path, commit: bool) -> None:
    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        client, ongoing = identities(await init(wire, keep=True))
        assert ongoing == identity(producer)
        assert client == (ongoing.producer_id, ongoing.producer_epoch + 1)
        fenced = await end(wire, ongoing, commit=commit)
        assert fenced.error_code == ErrorCode.PRODUCER_FENCED
        ended = await end(wire, client, commit=commit)
        assert ended.error_code == ErrorCode.NONE
        assert ended.producer_epoch == client.producer_epoch + 1
        await until(lambda: producer.state.is_complete)
        for topic in ("a", "b"):
            assert await markers(wire, topic) == ["COMMIT" if commit else "ABORT"]
            assert await read_committed(wire, topic) == ([b"prepared"] if commit else [])
        repeated = await end(wire, client, commit=commit)
        assert (repeated.error_code, repeated.producer_epoch) == (0, ended.producer_epoch)

    asyncio.run(with_open_transaction(tmp_path, scenario))


def test_neither_a_predecessor_nor_its_successor_adds_to_a_kept_transaction(
    tmp_path: Path,
) -> None:
    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        client, _ = identities(await init(wire, keep=True))
        refused = await producer.send("a", b"late", index=1)
        assert refused.error_code in (
            ErrorCode.PRODUCER_FENCED,
            ErrorCode.INVALID_PRODUCER_EPOCH,
        )
        successor = TxnProducer(node, wire, "tx")
        successor.producer_id, successor.producer_epoch = client
        for index in (0, 1):
            answer = await successor.send("a", b"more", index=index)
            assert answer.error_code == ErrorCode.INVALID_TXN_STATE
        await end(wire, client)
        await until(lambda: producer.state.is_complete)
        assert await read_committed(wire, "a") == [b"prepared"]
        assert await read_committed(wire, "a", 1) == []

    asyncio.run(with_open_transaction(tmp_path, scenario))


def test_a_successor_goes_on_with_transactions_of_its_own(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        client, _ = identities(await init(wire, keep=True))
        successor = TxnProducer(node, wire, "tx")
        successor.producer_id, successor.producer_epoch = client
        await successor.ended(commit=True)
        assert (await successor.send("a", b"its own")).error_code == 0
        await successor.ended(commit=True)
        assert await read_committed(wire, "a") == [b"prepared", b"its own"]

    asyncio.run(with_open_transaction(tmp_path, scenario))


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_prepared_transaction_is_ended_after_a_kill(tmp_path: Path, is_kept: bool) -> None:
    living, killed = tmp_path / "living", tmp_path / "killed"
    before: list[tuple[ProducerIdAndEpoch, ProducerIdAndEpoch | None]] = []

    async def scenario(node: Node, wire: Wire, producer: TxnProducer) -> None:
        client = None
        if is_kept:
            client, _ = identities(await init(wire, keep=True))
        before.append((identity(producer), client))
        shutil.copytree(living, killed)

    async def run() -> None:
        await with_open_transaction(living, scenario)
        ((writer, client),) = before
        properties = {**PROPERTIES, **ENABLED}
        async with running_node(killed, properties) as node, await Wire.connect(node) as wire:
            await until(lambda: not node.broker.transactions.is_loading)
            assert described(node, "tx").is_two_phase
            if client is None:
                client, ongoing = identities(await init(wire, keep=True))
                assert ongoing == writer
            assert (await end(wire, writer)).error_code == ErrorCode.PRODUCER_FENCED
            assert (await end(wire, client)).error_code == ErrorCode.NONE
            await until(lambda: described(node, "tx").state.is_complete)
            for topic in ("a", "b"):
                assert await read_committed(wire, topic) == [b"prepared"]

    asyncio.run(run())
