"""The requests of transactional producers, over the wire and at all their versions."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dohle.coordination.effects import Effects
from dohle.core.errors import ErrorCode
from dohle.core.ids import ProducerId, TopicName, TopicPartition, TransactionalId
from dohle.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
)
from dohle.protocol.messages.describe_transactions import DescribeTransactionsRequest
from dohle.server.node import Node
from dohle.txn.state import TransactionState
from dohle.txn.transaction import LAST_EPOCH, ProducerIdAndEpoch, Transaction
from tests.server.faults import until
from tests.server.transactions.transaction_wire import (
    ID,
    add,
    add_offsets,
    asked_for,
    codes,
    end,
    find,
    init,
    on_coordinator,
    producer_of,
)
from tests.server.transactions.txn_producer import PROPERTIES, described, lead, markers
from tests.server.wire import Wire, create_topic, on_node, running_node

# InitProducerId


@pytest.mark.parametrize("version", range(6))
def test_a_producer_gets_its_id_and_the_next_gets_a_higher_epoch(
    tmp_path: Path, version: int
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        first, second = [await init(wire, version=version) for _ in range(2)]
        assert (first.error_code, first.producer_epoch) == (0, 0)
        assert (second.producer_id, second.producer_epoch) == (first.producer_id, 1)

    on_coordinator(tmp_path, scenario)


@pytest.mark.parametrize("version", range(6))
def test_without_a_transactional_id_every_producer_has_an_id_of_its_own(
    tmp_path: Path, version: int
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        first, second = [await init(wire, None, version=version) for _ in range(2)]
        assert (first.error_code, first.producer_epoch, second.producer_epoch) == (0, 0, 0)
        assert first.producer_id != second.producer_id

    on_node(tmp_path, scenario)


def test_what_is_no_request_is_refused(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        for answer in (
            await init(wire, ""),
            await init(wire, expected=(7, -1)),
            await init(wire, expected=(-1, 7)),
            await init(wire, None, expected=(-1, 7)),
            await end(wire, ProducerIdAndEpoch(ProducerId(1), 0), transactional_id=""),
        ):
            assert answer.error_code == ErrorCode.INVALID_REQUEST
        nobody = ProducerIdAndEpoch(ProducerId(1), 0)
        for version in (3, 5):
            found = await add(wire, nobody, ("a", 0), version=version, transactional_id="")
            assert set(found.values()) == {ErrorCode.INVALID_REQUEST}
        too_long = await init(wire, timeout_ms=900_001)
        assert too_long.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
        assert (too_long.producer_id, too_long.producer_epoch) == (-1, -1)

    on_coordinator(tmp_path, scenario)


def test_before_anybody_has_looked_for_a_coordinator_there_is_none(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        nobody = ProducerIdAndEpoch(ProducerId(1), 0)
        unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await init(wire)).error_code == unavailable
        assert (await end(wire, nobody)).error_code == unavailable
        assert await add_offsets(wire, nobody) == unavailable
        request = DescribeTransactionsRequest(transactional_ids=(ID,))
        answer = await wire.send(request)
        assert answer.transaction_states[0].error_code == unavailable

    on_node(tmp_path, scenario, PROPERTIES)


@pytest.mark.parametrize(("version", "code"), [(3, 47), (4, 90), (5, 90)])
def test_a_producer_that_is_not_the_newest_is_fenced(
    tmp_path: Path, version: int, code: int
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        old = await producer_of(wire)
        await producer_of(wire)
        answer = await init(wire, expected=old, version=version)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)

    on_coordinator(tmp_path, scenario)


def test_a_producer_asks_for_the_next_epoch_and_may_ask_twice(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        producer = await producer_of(wire)
        for _ in range(2):
            answer = await init(wire, expected=producer)
            assert (answer.error_code, answer.producer_epoch) == (0, producer.producer_epoch + 1)

    on_coordinator(tmp_path, scenario)


def test_a_new_incarnation_waits_for_the_abort_of_the_old_ones_transaction(
    tmp_path: Path,
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        old = await producer_of(wire)
        await add(wire, old, ("a", 0))
        assert (await init(wire)).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        await until(lambda: described(node, ID).state is TransactionState.COMPLETE_ABORT)
        assert await producer_of(wire) == (old.producer_id, old.producer_epoch + 2)
        assert await markers(wire, "a") == ["ABORT"]

    on_coordinator(tmp_path, scenario)


# AddPartitionsToTxn and AddOffsetsToTxn


@pytest.mark.parametrize("version", range(6))
def test_partitions_are_added(tmp_path: Path, version: int) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        producer = await producer_of(wire)
        found = await add(wire, producer, ("a", 0), ("a", 1), ("a", 0), version=version)
        assert found == {("a", 0): 0, ("a", 1): 0}
        transaction = described(node, ID)
        assert transaction.partitions == {
            TopicPartition(TopicName("a"), 0),
            TopicPartition(TopicName("a"), 1),
        }
        assert transaction.client_transaction_version == (2 if version >= 4 else 0)

    on_coordinator(tmp_path, scenario)


@pytest.mark.parametrize(("version", "code"), [(0, 47), (1, 47), (2, 90), (3, 90), (4, 90)])
def test_partitions_of_a_fenced_producer_are_not_added(
    tmp_path: Path, version: int, code: int
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        old = await producer_of(wire)
        await producer_of(wire)
        assert await add(wire, old, ("a", 0), version=version) == {("a", 0): code}
        if version < 4:
            assert await add_offsets(wire, old, version) == code

    on_coordinator(tmp_path, scenario)


@pytest.mark.parametrize("version", [3, 4, 5])
def test_if_one_partition_cannot_be_added_none_is(tmp_path: Path, version: int) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        producer = await producer_of(wire)
        offsets = ("__transaction_state", 0)
        found = await add(wire, producer, ("a", 0), ("a", 2), ("b", 0), offsets, version=version)
        assert found == {
            ("a", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
            ("a", 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("b", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            # Brokers add internal topics for their clients, clients do not.
            offsets: (
                ErrorCode.TOPIC_AUTHORIZATION_FAILED
                if version < 4
                else ErrorCode.OPERATION_NOT_ATTEMPTED
            ),
        }
        assert described(node, ID).state is TransactionState.EMPTY

    on_coordinator(tmp_path, scenario)


@pytest.mark.parametrize("version", [4, 5])
def test_a_broker_may_ask_for_many_transactions_at_once(tmp_path: Path, version: int) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        names = [TransactionalId(f"tx-{number}") for number in range(4)]
        producers = [await producer_of(wire, name) for name in names]
        await add(wire, producers[0], ("a", 0), transactional_id=names[0])
        fenced = producers[2]._replace(producer_epoch=7)
        request = AddPartitionsToTxnRequest(
            transactions=(
                asked_for(names[0], producers[0], [("a", 0), ("a", 1)], verify_only=True),
                asked_for(names[1], producers[1], [("a", 0)]),
                asked_for(names[2], fenced, [("a", 0)]),
                asked_for(names[3], producers[3], [("a", 0)], verify_only=True),
                asked_for(TransactionalId("unknown"), producers[3], [("a", 1)]),
            )
        )
        answer = await wire.send(request, version)
        results = answer.results_by_transaction
        assert [each.transactional_id for each in results] == [*names, "unknown"]
        abortable = ErrorCode.TRANSACTION_ABORTABLE
        assert [codes(each.topic_results) for each in results] == [
            {("a", 0): ErrorCode.NONE, ("a", 1): abortable},
            {("a", 0): ErrorCode.NONE},
            {("a", 0): ErrorCode.PRODUCER_FENCED},
            {("a", 0): abortable},
            {("a", 1): ErrorCode.INVALID_PRODUCER_ID_MAPPING},
        ]
        assert described(node, names[1]).state is TransactionState.ONGOING
        assert described(node, names[3]).state is TransactionState.EMPTY

    on_coordinator(tmp_path, scenario)


@pytest.mark.parametrize("version", range(5))
def test_the_offsets_of_a_group_are_added_though_there_is_no_topic_for_them_yet(
    tmp_path: Path, version: int
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        producer = await producer_of(wire)
        assert node.broker.groups.partition_of("readers") is None
        for _ in range(2):
            assert await add_offsets(wire, producer, version) == ErrorCode.NONE
        index = node.broker.groups.partition_of("readers")
        assert index is not None
        expected = TopicPartition(TopicName("__consumer_offsets"), index)
        assert described(node, ID).partitions == {expected}

    on_coordinator(tmp_path, scenario)


# EndTxn


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", range(6))
def test_a_transaction_is_ended_in_all_its_partitions(
    tmp_path: Path, version: int, commit: bool
) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        producer = await producer_of(wire)
        await add(wire, producer, ("a", 0), ("a", 1))
        answer = await end(wire, producer, commit=commit, version=version)
        assert answer.error_code == ErrorCode.NONE
        after = (answer.producer_id, answer.producer_epoch)
        is_v2 = version >= 5
        assert after == ((producer.producer_id, 1) if is_v2 else (-1, -1))
        await until(lambda: described(node, ID).state.is_complete)
        assert described(node, ID).state.is_commit == commit
        for index in (0, 1):
            assert await markers(wire, "a", index) == ["COMMIT" if commit else "ABORT"]
        # A client that has not seen the answer asks again.
        again = await end(wire, producer, commit=commit, version=version)
        assert (again.error_code, again.producer_id, again.producer_epoch) == (0, *after)
        other = await end(wire, producer, commit=not commit, version=version)
        assert other.error_code == ErrorCode.INVALID_TXN_STATE

    on_coordinator(tmp_path, scenario)


@pytest.mark.parametrize(("version", "code"), [(0, 47), (1, 47), (2, 90), (4, 90), (5, 90)])
def test_an_old_incarnation_ends_nothing(tmp_path: Path, version: int, code: int) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        old = await producer_of(wire)
        new = await producer_of(wire)
        await add(wire, new, ("a", 0))
        answer = await end(wire, old, version=version)
        assert (answer.error_code, answer.producer_id) == (code, -1)
        assert described(node, ID).state is TransactionState.ONGOING

    on_coordinator(tmp_path, scenario)


def test_the_last_transaction_of_a_producer_id_gives_another(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        producer = await producer_of(wire)
        last = producer._replace(producer_epoch=LAST_EPOCH)
        await put(node, described(node, ID), LAST_EPOCH)
        await add(wire, last, ("a", 0))
        answer = await end(wire, last)
        assert (answer.error_code, answer.producer_epoch) == (0, 0)
        assert answer.producer_id > producer.producer_id
        await until(lambda: described(node, ID).state.is_complete)
        assert described(node, ID).producer == (answer.producer_id, 0)
        again = await end(wire, last)
        assert (again.producer_id, again.producer_epoch) == (answer.producer_id, 0)

    on_coordinator(tmp_path, scenario)


async def put(node: Node, transaction: Transaction, epoch: int) -> None:
    """Have a producer at an epoch that would take long to reach."""
    changed = Transaction(
        transaction.transactional_id,
        transaction.producer_id,
        epoch,
        transaction.state,
        transaction.timeout_ms,
        transaction.last_update_ms,
    )
    await node.broker.transactions.call(
        transaction.transactional_id,
        lambda _, ticket: Effects(records=[changed.to_record(2)]).reply(ticket, None),
    )


def test_a_restarted_node_finishes_what_was_decided(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running_node(tmp_path, PROPERTIES) as node, await Wire.connect(node) as wire:
            await find(wire)
            await create_topic(wire, "a", 2)
            producer = await producer_of(wire)
            await add(wire, producer, ("a", 0), ("a", 1))
            # It is decided, and the node stops before a marker could be written.
            for index in (0, 1):
                await lead(node, "a", index, is_led=False)
            assert (await end(wire, producer)).error_code == ErrorCode.NONE
            assert described(node, ID).state is TransactionState.PREPARE_COMMIT
        async with running_node(tmp_path, PROPERTIES) as node, await Wire.connect(node) as wire:
            await until(lambda: not node.broker.transactions.is_loading)
            await until(lambda: described(node, ID).state is TransactionState.COMPLETE_COMMIT)
            assert [await markers(wire, "a", index) for index in (0, 1)] == [["COMMIT"]] * 2
            answer = await end(wire, producer)
            assert (answer.error_code, answer.producer_epoch) == (0, 1)

    asyncio.run(scenario())
