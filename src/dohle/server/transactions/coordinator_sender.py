"""AddPartitionsToTxn to other brokers: questions about many transactions in one request (H7).

- A client of transactions v2 has its partitions added; of older clients it is only verified that
  they have added theirs.
- An answer has one result for each transactional id, so that a request has one question of each;
  another one of the same incarnation waits for the next request. (Kafka refuses the first of the
  two with 13, and its client sends again.)
- Of two incarnations of a producer that wait, the older is refused: 47.
- A broker that knows no version 4 cannot be asked: its producers are taken at their word.
- No answer: 13, which becomes something that clients retry.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from dohle.client.errors import error_code_of
from dohle.client.net.connection import Connection
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName, TopicPartition
from dohle.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from dohle.server.transactions.claims import ClientSupport, Question

#: The most transactions of one request.
TRANSACTIONS_PER_REQUEST = 500

#: The first version that brokers send each other.
_BATCHED = 4


class CoordinatorSender:
    """Makes requests of questions."""

    def take(self, waiting: deque[Question]) -> list[Question]:
        """Take out what goes with the next request, and what nobody waits for any more."""
        found: dict[str, Question] = {}
        held: list[Question] = []
        while waiting and len(found) + len(held) < TRANSACTIONS_PER_REQUEST:
            question = waiting.popleft()
            if question.answer.done():
                continue
            transactional_id = question.transaction.transactional_id
            other = found.get(transactional_id)
            if other is None:
                found[transactional_id] = question
                continue
            older, newer = _by_epoch(other, question)
            if older is None:
                held.append(question)
                continue
            older.refuse(
                KafkaError(
                    ErrorCode.INVALID_PRODUCER_EPOCH,
                    f"a newer producer of transactional id {transactional_id} writes now",
                )
            )
            found[transactional_id] = newer
        waiting.extendleft(reversed(held))
        return list(found.values())

    async def send(self, connection: Connection, batch: Sequence[Question]) -> None:
        """Ask, and hand out the answers."""
        if connection.version_of(AddPartitionsToTxnRequest) < _BATCHED:
            for question in batch:
                question.reply({})
            return
        response = await connection.request(_request(batch), AddPartitionsToTxnResponse)
        results = {each.transactional_id: each for each in response.results_by_transaction}
        for question in batch:
            result = results.get(question.transaction.transactional_id)
            if response.error_code or result is None:
                code = error_code_of(response.error_code or ErrorCode.UNKNOWN_SERVER_ERROR)
                question.refuse(KafkaError(code, "the coordinator did not answer the question"))
            else:
                question.reply(_errors(question, result))

    def failed(self, batch: Sequence[Question], error: KafkaError) -> None:
        """Tell that there is no answer; partitions may have been added."""
        for question in batch:
            question.refuse(KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error)))


def _by_epoch(one: Question, other: Question) -> tuple[Question | None, Question]:
    """Return which of two is of an older incarnation, and the other; None if neither is."""
    first, second = one.transaction, other.transaction
    if first.producer_id != second.producer_id or first.producer_epoch == second.producer_epoch:
        return None, other
    return (one, other) if first.producer_epoch < second.producer_epoch else (other, one)


def _request(batch: Sequence[Question]) -> AddPartitionsToTxnRequest:
    transactions = []
    for transaction, partitions, _ in batch:
        topics: dict[TopicName, list[int]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(index)
        transactions.append(
            AddPartitionsToTxnTransaction(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.producer_epoch,
                verify_only=transaction.support is not ClientSupport.ADDS_PARTITIONS,
                topics=tuple(
                    AddPartitionsToTxnTopic(name=name, partitions=tuple(indexes))
                    for name, indexes in topics.items()
                ),
            )
        )
    return AddPartitionsToTxnRequest(transactions=tuple(transactions))


def _errors(
    question: Question, result: AddPartitionsToTxnResult
) -> Mapping[TopicPartition, ErrorCode]:
    found = {
        TopicPartition(topic.name, each.partition_index): error_code_of(each.partition_error_code)
        for topic in result.topic_results
        for each in topic.results_by_partition
    }
    return {
        key: code
        for key in question.partitions
        if (code := found.get(key, ErrorCode.UNKNOWN_SERVER_ERROR)) is not ErrorCode.NONE
    }
