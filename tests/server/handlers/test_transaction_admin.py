"""DescribeTransactions, ListTransactions and the feature that switches transactions v2 on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dohle.core.errors import ErrorCode
from dohle.core.ids import TransactionalId
from dohle.metadata.decision import VersionedRecord
from dohle.protocol.messages.api_versions import ApiVersionsRequest
from dohle.protocol.messages.describe_transactions import DescribeTransactionsRequest
from dohle.protocol.messages.list_transactions import ListTransactionsRequest
from dohle.protocol.messages.records.cluster_metadata import FeatureLevelRecord
from dohle.server.node import Node
from tests.server.transactions.transaction_wire import (
    ID,
    add,
    end,
    on_coordinator,
    producer_of,
)
from tests.server.transactions.txn_producer import described, log_of
from tests.server.wire import Wire, on_node


def test_transactions_are_described(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        producer = await producer_of(wire)
        await add(wire, producer, ("a", 1), ("a", 0))
        names = (ID, TransactionalId("unknown"), TransactionalId(""))
        answer = await wire.send(DescribeTransactionsRequest(transactional_ids=names))
        found, unknown, empty = answer.transaction_states
        assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert unknown.transactional_id == "unknown"
        assert empty.error_code == ErrorCode.INVALID_REQUEST
        assert (found.error_code, found.transaction_state) == (0, "Ongoing")
        assert (found.producer_id, found.producer_epoch) == producer
        assert found.transaction_timeout_ms == 60_000
        assert found.transaction_start_time_ms == described(node, ID).start_ms
        assert [(each.topic, each.partitions) for each in found.topics] == [("a", (0, 1))]

    on_coordinator(tmp_path, scenario)


async def listed(wire: Wire, version: int, **filters: Any) -> set[str]:
    answer = await wire.send(ListTransactionsRequest(**filters), version)
    assert answer.error_code == ErrorCode.NONE
    return {each.transactional_id for each in answer.transaction_states}


def test_transactions_are_listed_by_what_is_asked_for(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        first = await producer_of(wire, "first")
        await producer_of(wire, "second")
        await add(wire, first, ("a", 0), transactional_id="first")
        for version in (0, 1, 2):
            assert await listed(wire, version) == {"first", "second"}
            assert await listed(wire, version, state_filters=("Ongoing",)) == {"first"}
            only = (first.producer_id,)
            assert await listed(wire, version, producer_id_filters=only) == {"first"}
            unknown = ListTransactionsRequest(state_filters=("Ongoing", "Gone", "Gone"))
            answer = await wire.send(unknown, version)
            assert answer.unknown_state_filters == ("Gone",)
            assert await listed(wire, version, state_filters=("Gone",)) == set()
        assert await listed(wire, 1, duration_filter=3_600_000) == {"second"}
        assert await listed(wire, 2, transactional_id_pattern="f.*t") == {"first"}
        assert await listed(wire, 2, transactional_id_pattern="irs") == set()
        assert await listed(wire, 2, transactional_id_pattern="") == {"first", "second"}
        bad = await wire.send(ListTransactionsRequest(transactional_id_pattern="("), 2)
        assert bad.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
        assert bad.transaction_states == ()

    on_coordinator(tmp_path, scenario)


def test_clients_are_told_that_transactions_v2_are_on(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
        answer = await wire.send(request, 4)
        supported = {each.name: each for each in answer.supported_features}
        finalized = {each.name: each for each in answer.finalized_features}
        assert supported["transaction.version"].max_version == 2
        assert finalized["transaction.version"].max_version_level == 2
        served = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        assert {key: served[key] for key in (22, 24, 25, 26, 65, 66)} == {
            22: (0, 5),
            24: (0, 5),
            25: (0, 4),
            26: (0, 5),
            65: (0, 0),
            66: (0, 2),
        }

    on_node(tmp_path, scenario)


def test_without_the_feature_records_are_of_the_first_version(tmp_path: Path) -> None:
    async def scenario(node: Node, wire: Wire) -> None:
        feature = FeatureLevelRecord(name="transaction.version", feature_level=0)
        await node.controller.write([VersionedRecord(feature, 0)])
        producer = await producer_of(wire)
        assert await add(wire, producer, ("a", 0)) == {("a", 0): ErrorCode.NONE}
        answer = await end(wire, producer, version=5)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert (await end(wire, producer, version=4)).error_code == ErrorCode.NONE
        index = node.broker.transactions.partition_of(ID)
        assert index is not None
        assert log_of(node, "__transaction_state", index).log_end_offset >= 3

    on_coordinator(tmp_path, scenario)
