"""Which markers and questions go to another broker together, and what its answers mean."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any

import pytest

from dohle.client.config import ClientConfig
from dohle.client.net.connection import Connection
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.host import SystemHost
from dohle.core.ids import ProducerId, TopicName, TopicPartition, TransactionalId
from dohle.protocol.apis import ApiKey
from dohle.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from dohle.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from dohle.server.transactions import coordinator_sender, marker_sender
from dohle.server.transactions.claims import ClientSupport, Question, TransactionClaim
from dohle.server.transactions.coordinator_sender import CoordinatorSender
from dohle.server.transactions.marker import Marker, SentMarker
from dohle.server.transactions.marker_sender import MarkerSender
from tests.client.scripted_broker import HANG_UP, Reply, ScriptedBroker, within

DEADLINE_S = 20
A, B = TopicPartition(TopicName("a"), 0), TopicPartition(TopicName("b"), 3)


async def connected(broker: ScriptedBroker) -> Connection:
    return await Connection.open(broker.address, ClientConfig(client_id="1"), SystemHost())


class Sent:
    """Markers, and what became of them."""

    def __init__(self) -> None:
        self.ended: dict[tuple[int, TopicPartition], ErrorCode] = {}
        self.unwanted: set[int] = set()

    def marker(self, producer: int, key: TopicPartition, epoch: int = 1) -> SentMarker:
        marker = Marker(ProducerId(producer), epoch, True, 5, 2)

        def ended(code: ErrorCode) -> None:
            assert (producer, key) not in self.ended
            self.ended[producer, key] = code

        return SentMarker(key, marker, lambda: producer not in self.unwanted, ended)


def test_markers_that_wait_go_together_but_for_another_one_of_the_same_producer() -> None:
    """H6: everything queued for a broker goes with one request."""
    sent = Sent()
    first, second, other = sent.marker(1, A), sent.marker(1, B), sent.marker(2, A)
    newer = sent.marker(1, A, epoch=2)
    waiting = deque([first, newer, second, other])
    assert MarkerSender().take(waiting) == [first, second, other]
    assert MarkerSender().take(waiting) == [newer]
    assert not waiting


def test_markers_that_another_coordinator_writes_now_are_left_out() -> None:
    """H3: a coordinator that has resigned sends nothing more."""
    sent = Sent()
    sent.unwanted = {1}
    kept = sent.marker(2, A)
    waiting = deque([sent.marker(1, A), kept])
    assert MarkerSender().take(waiting) == [kept]
    assert (sent.ended, len(waiting)) == ({}, 0)


def test_a_request_of_markers_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marker_sender, "MARKERS_PER_REQUEST", 2)
    sent = Sent()
    waiting = deque(sent.marker(number, A) for number in range(5))
    assert [len(MarkerSender().take(waiting)) for _ in range(4)] == [2, 2, 1, 0]


@pytest.mark.parametrize("version", [1, 2])
def test_each_marker_gets_its_own_result(version: int) -> None:
    """H6: v2 carries the transaction version, v1 is for brokers that do not know it."""

    def answer(request: WriteTxnMarkersRequest, asked_version: int) -> Reply:
        assert asked_version == version
        (only,) = request.markers
        assert (only.producer_epoch, only.coordinator_epoch) == (1, 5)
        assert only.transaction_version == (2 if version == 2 else 0)
        assert [(each.name, each.partition_indexes) for each in only.topics] == [
            ("a", (0,)),
            ("b", (3,)),
        ]
        result = WritableTxnMarkerPartitionResult(partition_index=0, error_code=6)
        topic = WritableTxnMarkerTopicResult(name=TopicName("a"), partitions=(result,))
        marker = WritableTxnMarkerResult(producer_id=only.producer_id, topics=(topic,))
        return WriteTxnMarkersResponse(markers=(marker,))

    async def body() -> None:
        sent = Sent()
        async with ScriptedBroker() as broker:
            broker.serve(ApiKey.WRITE_TXN_MARKERS, answer, (1, version))
            connection = await connected(broker)
            await MarkerSender().send(connection, [sent.marker(1, A), sent.marker(1, B)])
            await connection.close()
        assert sent.ended == {
            (1, A): ErrorCode.NOT_LEADER_OR_FOLLOWER,
            (1, B): ErrorCode.UNKNOWN_SERVER_ERROR,
        }

    within(DEADLINE_S, body())


def question(
    id: str,
    *partitions: TopicPartition,
    epoch: int = 1,
    producer: int = 7,
    support: ClientSupport = ClientSupport.ADDS_PARTITIONS,
) -> Question:
    claim = TransactionClaim(TransactionalId(id), ProducerId(producer), epoch, support)
    return Question(claim, partitions or (A,), asyncio.get_running_loop().create_future())


def refusal(asked: Question) -> ErrorCode:
    error = asked.answer.exception()
    assert isinstance(error, KafkaError)
    return error.code


def run(body: Coroutine[Any, Any, None]) -> None:
    within(DEADLINE_S, body)


def test_questions_about_one_transaction_go_one_after_the_other() -> None:
    """H7, but for the first of the same epoch, which Kafka refuses with 13."""

    async def body() -> None:
        first, second, other = question("x"), question("x", B), question("y")
        waiting = deque([first, second, other])
        assert CoordinatorSender().take(waiting) == [first, other]
        assert CoordinatorSender().take(waiting) == [second]

    run(body())


def test_of_two_incarnations_that_wait_the_older_is_refused() -> None:
    """H7: higher epoch: the first gets 47; lower: it is refused itself."""

    async def body() -> None:
        first, newer, older = question("x"), question("x", epoch=2), question("x", epoch=0)
        assert CoordinatorSender().take(deque([first, newer, older])) == [newer]
        assert refusal(first) is refusal(older) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert not newer.answer.done()
        # Epochs of different producer ids cannot be compared.
        one, another = question("x"), question("x", epoch=0, producer=8)
        waiting = deque([one, another])
        assert CoordinatorSender().take(waiting) == [one]
        assert list(waiting) == [another]

    run(body())


def test_questions_that_nobody_waits_for_are_dropped_and_requests_have_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coordinator_sender, "TRANSACTIONS_PER_REQUEST", 2)

    async def body() -> None:
        asked = [question(str(number)) for number in range(4)]
        asked[1].answer.cancel()
        waiting = deque(asked)
        assert CoordinatorSender().take(waiting) == [asked[0], asked[2]]
        assert CoordinatorSender().take(waiting) == [asked[3]]

    run(body())


def test_partitions_are_added_or_verified_and_errors_are_those_of_single_partitions() -> None:
    """H7: VerifyOnly unless the client lets the leader add its partitions."""

    def answer(request: AddPartitionsToTxnRequest, version: int) -> Reply:
        assert version == 5
        asked = {each.transactional_id: each.verify_only for each in request.transactions}
        assert asked == {"new": False, "old": True, "forgotten": False}
        results = (
            AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=0),
            AddPartitionsToTxnPartitionResult(partition_index=3, partition_error_code=120),
        )
        topics = tuple(
            AddPartitionsToTxnTopicResult(name=TopicName(name), results_by_partition=(result,))
            for name, result in zip("ab", results, strict=True)
        )
        return AddPartitionsToTxnResponse(
            results_by_transaction=tuple(
                AddPartitionsToTxnResult(transactional_id=TransactionalId(id), topic_results=topics)
                for id in ("new", "old")
            )
        )

    async def body() -> None:
        async with ScriptedBroker(add_partitions_to_txn=answer) as broker:
            connection = await connected(broker)
            new, forgotten = question("new"), question("forgotten")
            old = question("old", A, B, support=ClientSupport.ABORTABLE)
            await CoordinatorSender().send(connection, [new, old, forgotten])
            assert new.answer.result() == {}
            assert old.answer.result() == {B: ErrorCode.TRANSACTION_ABORTABLE}
            assert refusal(forgotten) is ErrorCode.UNKNOWN_SERVER_ERROR
            await connection.close()

    run(body())


def test_a_coordinator_that_knows_no_such_question_takes_producers_at_their_word() -> None:
    """H7: a peer without v4."""

    async def body() -> None:
        async with ScriptedBroker() as broker:
            broker.serve(ApiKey.ADD_PARTITIONS_TO_TXN, lambda message, version: HANG_UP, (0, 3))
            connection = await connected(broker)
            asked = question("x")
            await CoordinatorSender().send(connection, [asked])
            assert asked.answer.result() == {}
            await connection.close()

    run(body())


def test_an_error_of_the_whole_request_is_that_of_all() -> None:
    """H7: 31, which clients are told as 48."""

    async def body() -> None:
        refused = AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        async with ScriptedBroker(add_partitions_to_txn=lambda *_: refused) as broker:
            connection = await connected(broker)
            asked = question("x")
            await CoordinatorSender().send(connection, [asked])
            assert refusal(asked) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            await connection.close()

    run(body())
