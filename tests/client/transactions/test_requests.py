"""Transactions against coordinators that hang up, refuse and fall silent."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from dohle.client.cluster import Cluster
from dohle.client.config import ClientConfig, ProducerConfig
from dohle.client.producer.producer import Producer
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.host import SystemHost
from dohle.core.ids import BrokerId, ProducerId, TopicName
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from dohle.protocol.messages.api_versions import ApiVersionsResponse, FinalizedFeatureKey
from dohle.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from dohle.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from dohle.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from dohle.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from dohle.records.batch import Batch, batches
from tests.client.scripted_broker import (
    HANG_UP,
    SILENCE,
    Action,
    Reply,
    ScriptedCluster,
    within,
)

CONFIG = ClientConfig(retry_backoff_ms=1, retry_backoff_max_ms=4, request_timeout_ms=300)
PRODUCER = ProducerConfig(transactional_id="tx", linger_ms=0)
PID = ProducerId(40)
TIMELY = 15


class Script:
    """A coordinator and a leader in one; ``twists`` say what is answered instead, once each."""

    def __init__(self, scripted: ScriptedCluster, *, level: int) -> None:
        self.scripted = scripted
        self.level = level
        self.epoch = -1
        self.twists: dict[ApiKey, list[Action | ErrorCode]] = {}
        self.batches: list[Batch] = []
        for key, serve in (
            (ApiKey.FIND_COORDINATOR, self.find),
            (ApiKey.INIT_PRODUCER_ID, self.init),
            (ApiKey.ADD_PARTITIONS_TO_TXN, self.add_partitions),
            (ApiKey.END_TXN, self.end),
            (ApiKey.PRODUCE, self.produce),
        ):
            scripted.serve(key, serve)
        scripted.serve(ApiKey.API_VERSIONS, self.versions)

    def versions(self, request: object, version: int) -> Reply:
        return ApiVersionsResponse(
            api_keys=self.scripted[1].api_keys(),
            finalized_features=(
                FinalizedFeatureKey(
                    name="transaction.version",
                    min_version_level=self.level,
                    max_version_level=self.level,
                ),
            ),
            finalized_features_epoch=1,
        )

    def find(self, request: FindCoordinatorRequest, version: int) -> Reply:
        assert request.key_type == 1
        coordinators = (Coordinator(key="tx", node_id=BrokerId(1)),)
        return FindCoordinatorResponse(coordinators=coordinators)

    def init(self, request: InitProducerIdRequest, version: int) -> Reply:
        self.epoch += 1
        return InitProducerIdResponse(producer_id=PID, producer_epoch=self.epoch)

    def add_partitions(self, request: AddPartitionsToTxnRequest, version: int) -> Reply:
        twist, code = self._twist(ApiKey.ADD_PARTITIONS_TO_TXN)
        assert version <= 3
        return twist or AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=tuple(
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=tuple(
                        AddPartitionsToTxnPartitionResult(
                            partition_index=each, partition_error_code=code
                        )
                        for each in topic.partitions
                    ),
                )
                for topic in request.v3_and_below_topics
            )
        )

    def end(self, request: EndTxnRequest, version: int) -> Reply:
        twist, code = self._twist(ApiKey.END_TXN)
        if twist or code:
            return twist or EndTxnResponse(error_code=code)
        if self.level < 2:
            assert version <= 4
            return EndTxnResponse()
        self.epoch += 1
        return EndTxnResponse(producer_id=PID, producer_epoch=self.epoch)

    def produce(self, request: ProduceRequest, version: int) -> Reply:
        twist, code = self._twist(ApiKey.PRODUCE)
        assert request.transactional_id == "tx"
        assert (version <= 11) == (self.level < 2)
        if twist:
            return twist
        (topic,) = request.topic_data
        (data,) = topic.partition_data
        (batch,) = batches(bytes(data.records or b""))
        assert batch.is_transactional
        if not code:
            self.batches.append(batch)
        answer = PartitionProduceResponse(
            index=data.index, error_code=code, base_offset=len(self.batches)
        )
        named = TopicProduceResponse(
            name=topic.name, topic_id=topic.topic_id, partition_responses=(answer,)
        )
        return ProduceResponse(responses=(named,))

    def _twist(self, key: ApiKey) -> tuple[Action | None, int]:
        left = self.twists.get(key)
        twist = left.pop(0) if left else None
        return (twist, 0) if isinstance(twist, Action) else (None, twist or 0)

    def asked(self, *keys: ApiKey) -> list[ApiKey]:
        return [ApiKey(each.api_key) for each in self.scripted[1].requests if each.api_key in keys]

    def ends(self) -> list[bool]:
        return [each.committed for each in self.scripted.asked(ApiKey.END_TXN)]


@asynccontextmanager
async def scene(
    level: int, config: ProducerConfig = PRODUCER
) -> AsyncIterator[tuple[Script, Producer]]:
    async with ScriptedCluster(1, topics={"t": 1}) as scripted:
        script = Script(scripted, level=level)
        async with (
            Cluster(scripted.bootstrap, CONFIG, host=SystemHost(rng=random.Random(4))) as cluster,
            Producer(cluster, config) as producer,
        ):
            await producer.init_transactions()
            yield script, producer


both = pytest.mark.parametrize("level", [1, 2])


def test_in_the_older_protocol_partitions_are_added_first_and_sequences_go_on() -> None:
    async def body() -> None:
        async with scene(1) as (script, producer):
            for _ in range(2):
                producer.begin_transaction()
                await producer.send_soon("t", b"")
                await producer.flush()
                await producer.send_soon("t", b"")
                await producer.commit_transaction()
            asked = script.asked(ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.PRODUCE, ApiKey.END_TXN)
            once = [ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.PRODUCE, ApiKey.PRODUCE, ApiKey.END_TXN]
            assert asked == 2 * once
            places = [(batch.producer_epoch, batch.base_sequence) for batch in script.batches]
            assert places == [(0, 0), (0, 1), (0, 2), (0, 3)]

    within(TIMELY, body())


def test_in_the_newer_protocol_each_transaction_has_its_epoch_and_sequences_begin_anew() -> None:
    async def body() -> None:
        async with scene(2) as (script, producer):
            for _ in range(2):
                producer.begin_transaction()
                await producer.send_soon("t", b"")
                await producer.commit_transaction()
            assert not script.asked(ApiKey.ADD_PARTITIONS_TO_TXN)
            places = [(batch.producer_epoch, batch.base_sequence) for batch in script.batches]
            assert places == [(0, 0), (1, 0)]

    within(TIMELY, body())


@both
def test_an_end_that_was_not_answered_is_asked_for_again(level: int) -> None:
    async def body() -> None:
        async with scene(level) as (script, producer):
            script.twists[ApiKey.END_TXN] = [
                HANG_UP,
                ErrorCode.CONCURRENT_TRANSACTIONS,
                ErrorCode.NOT_COORDINATOR,
            ]
            producer.begin_transaction()
            await producer.send_soon("t", b"")
            await producer.commit_transaction()
            assert script.ends() == [True] * 4
            epochs = {each.producer_epoch for each in script.scripted.asked(ApiKey.END_TXN)}
            assert epochs == {0}

    within(TIMELY, body())


@both
def test_records_that_were_not_delivered_in_time_are_never_committed(level: int) -> None:
    async def body() -> None:
        config = ProducerConfig(transactional_id="tx", linger_ms=0, delivery_timeout_ms=50)
        async with scene(level, config) as (script, producer):
            script.twists[ApiKey.PRODUCE] = [SILENCE]
            producer.begin_transaction()
            future = await producer.send_soon("t", b"lost")
            with pytest.raises(KafkaError, match="must be aborted"):
                await producer.commit_transaction()
            assert isinstance(future.exception(), KafkaError)
            assert script.ends() == []
            await producer.abort_transaction()
            assert script.ends() == [False]
            producer.begin_transaction()
            await producer.send_soon("t", b"kept")
            await producer.commit_transaction()
            assert [batch.base_sequence for batch in script.batches] == [0]
            # In the older protocol the new epoch must be asked for, under the old identity.
            asked = [each.producer_epoch for each in script.scripted.asked(ApiKey.INIT_PRODUCER_ID)]
            assert asked == ([-1, 0] if level < 2 else [-1])

    within(TIMELY, body())


@both
def test_what_is_retried_is_committed_once(level: int) -> None:
    async def body() -> None:
        async with scene(level) as (script, producer):
            script.twists[ApiKey.PRODUCE] = [
                ErrorCode.CONCURRENT_TRANSACTIONS,
                ErrorCode.NOT_ENOUGH_REPLICAS,
            ]
            producer.begin_transaction()
            await producer.send_soon("t", b"")
            await producer.commit_transaction()
            assert [batch.base_sequence for batch in script.batches] == [0]
            assert script.ends() == [True]

    within(TIMELY, body())


def test_a_partition_that_cannot_be_added_spoils_the_transaction_only() -> None:
    async def body() -> None:
        async with scene(1) as (script, producer):
            script.twists[ApiKey.ADD_PARTITIONS_TO_TXN] = [
                ErrorCode.CONCURRENT_TRANSACTIONS,
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            ]
            producer.begin_transaction()
            future = await producer.send_soon(TopicName("t"), b"")
            with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
                await producer.commit_transaction()
            error = future.exception()
            assert isinstance(error, KafkaError)
            assert error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
            await producer.abort_transaction()
            # The coordinator never knew of it, so there is nothing to end.
            assert script.ends() == []
            producer.begin_transaction()
            await producer.send_soon("t", b"")
            await producer.commit_transaction()

    within(TIMELY, body())


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
@both
def test_who_is_fenced_at_the_end_is_fenced_for_good(level: int, code: ErrorCode) -> None:
    async def body() -> None:
        async with scene(level) as (script, producer):
            script.twists[ApiKey.END_TXN] = [code]
            producer.begin_transaction()
            await producer.send_soon("t", b"")
            with pytest.raises(KafkaError) as raised:
                await producer.commit_transaction()
            assert raised.value.code is ErrorCode.PRODUCER_FENCED
            with pytest.raises(KafkaError) as raised:
                producer.begin_transaction()
            assert raised.value.code is ErrorCode.PRODUCER_FENCED
            with pytest.raises(KafkaError):
                await producer.send_soon("t", b"")

    within(TIMELY, body())


@both
def test_a_commit_whose_answer_never_comes_can_be_finished_later(level: int) -> None:
    async def body() -> None:
        config = ProducerConfig(transactional_id="tx", linger_ms=0, max_block_ms=100)
        async with scene(level, config) as (script, producer):
            script.twists[ApiKey.END_TXN] = [SILENCE]
            producer.begin_transaction()
            await producer.send_soon("t", b"")
            with pytest.raises(KafkaError) as raised:
                await producer.commit_transaction()
            assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT
            with pytest.raises(KafkaError, match="commit_transaction again"):
                await producer.abort_transaction()
            script.scripted[1].requests.clear()
            await producer.commit_transaction()
            assert {*script.ends()} == {True}
            producer.begin_transaction()

    within(TIMELY, body())
