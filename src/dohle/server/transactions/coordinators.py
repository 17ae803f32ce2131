"""Asking the coordinator of a transaction, on whichever broker it is."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, TopicPartition
from dohle.metadata.delta import Delta
from dohle.metadata.partition import NO_LEADER
from dohle.server.transactions.claims import ClientSupport, Question, TransactionClaim
from dohle.txn.transaction import TV_2

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer
    from dohle.server.transactions.broker_queues import BrokerQueues

#: Clients whose questions come on top of so many are told to try again.
QUESTIONS_MAX = 10_000

Errors = Mapping[TopicPartition, ErrorCode]


class ClusterCoordinators:
    """The way to all transaction coordinators. There is one for each broker."""

    def __init__(self, broker: BrokerServer) -> None:
        self._broker = broker
        #: To other brokers; None as long as there was nothing for any.
        self._asked: BrokerQueues[Question] | None = None
        self._waiting = 0

    async def add_or_verify(
        self, transaction: TransactionClaim, partitions: Collection[TopicPartition]
    ) -> Errors:
        """Add partitions to a transaction, or verify that they are part of it.

        Returns the errors of single partitions; raises KafkaError if it failed for all of them.
        """
        transactional_id = transaction.transactional_id
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        broker = self._broker
        index = broker.transactions.partition_of(transactional_id)
        image = None
        if index is not None:
            image = broker.image.partition(broker.transactions.topic, index)
        if image is None or image.leader == NO_LEADER:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"transactional id {transactional_id} has no coordinator now",
            )
        if image.leader == broker.node_id:
            return await self._ask_here(transaction, partitions)
        return await self._ask_there(image.leader, transaction, partitions)

    async def _ask_here(
        self, transaction: TransactionClaim, partitions: Collection[TopicPartition]
    ) -> Errors:
        transactional_id, producer_id, producer_epoch, support = transaction
        transactions = self._broker.transactions
        if support is ClientSupport.ADDS_PARTITIONS:
            await transactions.call(
                transactional_id,
                lambda machine, ticket: machine.add_partitions(
                    transactional_id,
                    producer_id,
                    producer_epoch,
                    partitions,
                    ticket,
                    client_transaction_version=TV_2,
                ),
            )
            return {}
        found: Errors = await transactions.call(
            transactional_id,
            lambda machine, ticket: machine.verify_partitions(
                transactional_id, producer_id, producer_epoch, partitions, ticket
            ),
        )
        return {key: code for key, code in found.items() if code is not ErrorCode.NONE}

    async def _ask_there(
        self,
        coordinator: BrokerId,
        transaction: TransactionClaim,
        partitions: Collection[TopicPartition],
    ) -> Errors:
        if self._asked is None:
            # A node that is alone needs nothing of a client.
            from dohle.server.transactions.broker_queues import BrokerQueues
            from dohle.server.transactions.coordinator_sender import CoordinatorSender

            name = "add-partitions-to-txn"
            self._asked = BrokerQueues(self._broker, name, CoordinatorSender())
        if self._waiting >= QUESTIONS_MAX:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self._waiting} questions wait already"
            )
        question = Question(transaction, tuple(partitions), self._broker.loop.create_future())
        self._waiting += 1
        try:
            self._asked.put(coordinator, question)
            return await question.answer
        finally:
            self._waiting -= 1

    def publish(self, delta: Delta) -> None:
        """Take in which brokers are gone: whoever waits for them is told to try again."""
        if self._asked is not None:
            for change in delta.changed_brokers:
                if change.after is None or change.after.fenced:
                    self._asked.give_up(change.id)

    async def close(self) -> None:
        """Close the connections to other brokers."""
        if self._asked is not None:
            await self._asked.stop()
