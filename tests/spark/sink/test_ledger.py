"""The ledger, while transactions are on their way to their end, and after an election."""

from __future__ import annotations

import asyncio

import pytest

from dohle.client import Cluster, Producer, ProducerConfig, end_transaction
from dohle.core.errors import ErrorCode
from dohle.core.ids import TopicName, TransactionalId
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from dohle.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from dohle.records.builder import BatchBuilder
from dohle.records.control import build_txn_marker
from dohle.spark.sink.ledger import LedgerReader
from dohle.testing import Broker
from tests.client.scripted_broker import ScriptedCluster, within


@pytest.mark.parametrize("is_committed", [True, False])
def test_what_is_written_is_waited_for_until_it_is_known_how_it_ended(
    broker: Broker, is_committed: bool
) -> None:
    within(30, _write_and_end(broker.bootstrap, is_committed))


async def _write_and_end(bootstrap: str, is_committed: bool) -> None:
    name = f"ledger-{is_committed}"
    config = ProducerConfig(transactional_id=TransactionalId(name), linger_ms=0)
    async with Cluster(bootstrap) as cluster:
        reader = LedgerReader(cluster, name)
        await reader.ensure_topic()
        async with Producer(cluster, config) as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            sent = await producer.send_soon(name, b"value", key=b"key", partition=0)
            prepared = await producer.prepare_transaction()
            assert prepared is not None
            waiting = asyncio.create_task(reader.wait_until_ended((await sent).offset))
            # Reads come one after the other: before the second one of these, the task has looked.
            assert [await reader.read("key") for _ in range(2)] == [None, None]
            assert not waiting.done()
            await end_transaction(cluster, prepared, commit=is_committed)
            await waiting
            assert await reader.read("key") == (b"value" if is_committed else None)


class NewLeader:
    """Leads a ledger with one transaction, and learns in the end how far that is committed."""

    def __init__(self, answers_before: int) -> None:
        #: So many requests come before it knows.
        self.answers_before = answers_before

    @property
    def high_watermark(self) -> int:
        self.answers_before -= 1
        return 2 if self.answers_before < 0 else 0

    def fetch(self, request: FetchRequest, version: int) -> FetchResponse:
        builder = BatchBuilder(
            producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        builder.append(1, b"key", b"value")
        marker = build_txn_marker(True, 7, 0, 0, 1, base_offset=1)
        end = self.high_watermark
        data = PartitionData(
            high_watermark=end, records=bytes(builder.build() + marker) if end else b""
        )
        (topic,) = request.topics
        answer = FetchableTopicResponse(topic_id=topic.topic_id, partitions=(data,))
        return FetchResponse(responses=(answer,))

    def list_offsets(self, request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        end = self.high_watermark
        error_code = ErrorCode.NONE if end else ErrorCode.OFFSET_NOT_AVAILABLE
        found = ListOffsetsPartitionResponse(error_code=error_code, offset=end)
        topic = ListOffsetsTopicResponse(name=TopicName("ledger"), partitions=(found,))
        return ListOffsetsResponse(topics=(topic,))


def test_who_reads_surely_misses_nothing_when_a_new_leader_knows_less() -> None:
    async def body() -> None:
        async with ScriptedCluster(topics={"ledger": 1}) as brokers:
            leader = NewLeader(answers_before=2)
            brokers.serve(ApiKey.FETCH, leader.fetch)
            brokers.serve(ApiKey.LIST_OFFSETS, leader.list_offsets)
            async with Cluster(brokers.bootstrap) as cluster:
                reader = LedgerReader(cluster, "ledger")
                assert await reader.read("key") is None
                assert await reader.read_surely("key") == b"value"

    within(30, body())


def test_who_reads_surely_waits_for_the_next_leader_to_know_as_much() -> None:
    async def body() -> None:
        async with ScriptedCluster(topics={"ledger": 1}) as brokers:
            before, after = NewLeader(answers_before=0), NewLeader(answers_before=2)
            brokers.serve(ApiKey.LIST_OFFSETS, before.list_offsets)
            brokers.serve(ApiKey.FETCH, after.fetch)
            async with Cluster(brokers.bootstrap) as cluster:
                assert await LedgerReader(cluster, "ledger").read_surely("key") == b"value"
            assert len(brokers.asked(ApiKey.FETCH)) == 3

    within(30, body())
