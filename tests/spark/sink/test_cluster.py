"""What the sink asks of brokers when some of them are gone, or somebody else asks too."""

from __future__ import annotations

import pytest

from dohle.client import Admin, Cluster, Producer, ProducerConfig
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TransactionalId
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from dohle.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from dohle.spark.sink.cluster import BrokerLedgerHold, BrokerSinkCluster
from dohle.spark.sink.ledger import LedgerReader
from dohle.spark.sink.protocol import Standing
from dohle.testing import Broker
from tests.client.scripted_broker import ScriptedCluster, within

_ABORTED = "CompleteAbort"


def _listed(request: ListTransactionsRequest, version: int) -> ListTransactionsResponse:
    return ListTransactionsResponse(
        transaction_states=tuple(
            TransactionState(transactional_id=TransactionalId(each), transaction_state="Ongoing")
            for each in ("p/q/1/0/0/0", "other")
        )
    )


def test_transactions_are_listed_though_a_broker_has_left() -> None:
    async def body() -> None:
        async with ScriptedCluster(2) as brokers:
            brokers.serve(ApiKey.LIST_TRANSACTIONS, _listed)
            async with Cluster(brokers.bootstrap) as cluster:
                assert len(await cluster.brokers()) == 2
                await brokers.brokers.pop(2).__aexit__()
                sink = BrokerSinkCluster(cluster, topic="ledger", prefix="p", timeout_ms=30_000)
                assert await sink.states("p/q/") == {"p/q/1/0/0/0": "Ongoing"}

    within(30, body())


class _Overtaken(Producer):
    """Somebody else asks for its id when all is sent, and nothing committed yet."""

    async def commit_transaction(self) -> None:
        transactional_id = TransactionalId(self.config.transactional_id or "")
        await self.flush()
        connection = await self._cluster.any_connection()
        answer = await connection.request(
            InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1000),
            InitProducerIdResponse,
        )
        # What was sent is aborted; the other one is to ask again, and has not yet done so.
        assert answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        admin = Admin(self._cluster)
        while (await admin.describe_transactions([transactional_id])).one().state != _ABORTED:
            pass
        await super().commit_transaction()


def test_who_loses_the_ledger_before_the_commit_is_told_so(broker: Broker) -> None:
    async def body() -> None:
        async with Cluster(broker.bootstrap) as cluster:
            ledger = LedgerReader(cluster, "overtaken")
            await ledger.ensure_topic()
            async with _Overtaken(
                cluster, ProducerConfig(transactional_id="overtaken")
            ) as producer:
                await producer.init_transactions()
                held = BrokerLedgerHold(producer, ledger, "query", None, 30_000)
                with pytest.raises(KafkaError) as raised:
                    await held.write(Standing("run", 1, 0))
            assert raised.value.code is ErrorCode.PRODUCER_FENCED
            assert await ledger.read("query") is None

    within(30, body())
