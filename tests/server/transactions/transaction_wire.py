"""What producers ask of the transaction coordinator, over the wire: a request for each call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dohle.core.errors import ErrorCode
from dohle.core.ids import GroupId, ProducerId, TopicName, TransactionalId
from dohle.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from dohle.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from dohle.protocol.messages.end_txn import EndTxnRequest
from dohle.protocol.messages.find_coordinator import FindCoordinatorRequest
from dohle.protocol.messages.init_producer_id import InitProducerIdRequest
from dohle.server.node import Node
from dohle.txn.transaction import ProducerIdAndEpoch
from tests.server.transactions.txn_producer import PROPERTIES
from tests.server.wire import Wire, create_topic, on_node

ID = TransactionalId("tx")
TRANSACTION = 1


async def find(wire: Wire, transactional_id: str = ID) -> None:
    """Have the coordinator there, as clients do before anything else."""
    request = FindCoordinatorRequest(coordinator_keys=(transactional_id,), key_type=TRANSACTION)
    answer = await wire.send(request)
    assert answer.coordinators[0].error_code == ErrorCode.NONE


async def init(
    wire: Wire,
    transactional_id: str | None = ID,
    *,
    expected: tuple[int, int] = (-1, -1),
    version: int = 5,
    timeout_ms: int = 60_000,
) -> Any:
    return await wire.send(
        InitProducerIdRequest(
            transactional_id=(
                None if transactional_id is None else TransactionalId(transactional_id)
            ),
            transaction_timeout_ms=timeout_ms,
            producer_id=ProducerId(expected[0]),
            producer_epoch=expected[1],
        ),
        version,
    )


async def producer_of(wire: Wire, transactional_id: str = ID) -> ProducerIdAndEpoch:
    answer = await init(wire, transactional_id)
    assert answer.error_code == ErrorCode.NONE
    return ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)


def topics(*partitions: tuple[str, int]) -> tuple[AddPartitionsToTxnTopic, ...]:
    names = dict.fromkeys(topic for topic, _ in partitions)
    return tuple(
        AddPartitionsToTxnTopic(
            name=TopicName(name), partitions=tuple(index for of, index in partitions if of == name)
        )
        for name in names
    )


async def add(
    wire: Wire,
    producer: ProducerIdAndEpoch,
    *partitions: tuple[str, int],
    version: int = 3,
    transactional_id: str = ID,
    verify_only: bool = False,
) -> dict[tuple[str, int], int]:
    """Add partitions to one transaction; the code for each."""
    transactional = TransactionalId(transactional_id)
    if version < 4:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=topics(*partitions),
        )
        results = (await wire.send(request, version)).results_by_topic_v3_and_below
    else:
        asked = asked_for(transactional, producer, partitions, verify_only=verify_only)
        answer = await wire.send(AddPartitionsToTxnRequest(transactions=(asked,)), version)
        assert answer.error_code == ErrorCode.NONE
        assert answer.results_by_transaction[0].transactional_id == transactional
        results = answer.results_by_transaction[0].topic_results
    return codes(results)


def asked_for(
    transactional_id: TransactionalId,
    producer: ProducerIdAndEpoch,
    partitions: Sequence[tuple[str, int]],
    *,
    verify_only: bool = False,
) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        verify_only=verify_only,
        topics=topics(*partitions),
    )


def codes(results: Sequence[Any]) -> dict[tuple[str, int], int]:
    return {
        (topic.name, each.partition_index): each.partition_error_code
        for topic in results
        for each in topic.results_by_partition
    }


async def end(
    wire: Wire,
    producer: ProducerIdAndEpoch,
    *,
    commit: bool = True,
    version: int = 5,
    transactional_id: str = ID,
) -> Any:
    return await wire.send(
        EndTxnRequest(
            transactional_id=TransactionalId(transactional_id),
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=commit,
        ),
        version,
    )


async def add_offsets(wire: Wire, producer: ProducerIdAndEpoch, version: int = 4) -> int:
    answer = await wire.send(
        AddOffsetsToTxnRequest(
            transactional_id=ID,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            group_id=GroupId("readers"),
        ),
        version,
    )
    return int(answer.error_code)


def on_coordinator(path: Path, scenario: Any) -> None:
    """Run a scenario where the coordinator and a topic of two partitions are there."""

    async def run(node: Node, wire: Wire) -> None:
        await find(wire)
        await create_topic(wire, "a", 2)
        await scenario(node, wire)

    on_node(path, run, PROPERTIES)
