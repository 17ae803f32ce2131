"""A transaction coordinator to ask directly: an answer, or the error it refused with."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from dohle.coordination.effects import Effects, Ticket
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import ProducerId, TopicName, TopicPartition, TransactionalId
from dohle.core.seams import ManualClock
from dohle.core.steps import finish
from dohle.protocol.apis import Coordinator
from dohle.protocol.messages.records.transaction import TransactionLogValue
from dohle.txn.actions import WriteMarkers
from dohle.txn.context import TransactionContext
from dohle.txn.coordinator import TransactionCoordinator
from dohle.txn.errors import ProducerIdNeeded
from dohle.txn.listing import TransactionFilters
from dohle.txn.settings import TransactionSettings
from dohle.txn.state import TransactionState
from dohle.txn.transaction import NO_PRODUCER, Incarnation, ProducerIdAndEpoch, Transaction
from tests.coordination.driver import Driver

ID = TransactionalId("t")
A0 = TopicPartition(TopicName("a"), 0)
A1 = TopicPartition(TopicName("a"), 1)
B0 = TopicPartition(TopicName("b"), 0)
TIMEOUT_MS = 60_000
FIRST_PRODUCER_ID = 1_000


class Transactions:
    """One shard, and the producers that talk to it."""

    def __init__(self, **settings: Any) -> None:
        self.settings = TransactionSettings(**settings)
        self.clock = ManualClock()
        self._producer_ids = count(FIRST_PRODUCER_ID)
        self.driver = Driver(
            Coordinator.TRANSACTION,
            lambda: TransactionCoordinator(
                TransactionContext(clock=self.clock, settings=lambda: self.settings)
            ),
            self.clock,
        )

    def put(self, transaction: Transaction) -> None:
        """Have it be as a record says."""
        record = transaction.to_record(self.settings.transaction_version)
        self.driver.carry_out(Effects(records=[record]))

    def find(self, transactional_id: TransactionalId = ID) -> Transaction:
        """Return what is known of an id that is known."""
        found = self.driver.machine.describe(transactional_id)
        assert found is not None
        return found

    def state(self) -> TransactionState:
        """The state of the one id."""
        return self.find().state

    def known(self) -> dict[str, Transaction]:
        """Return everything that is known."""
        machine = self.driver.machine
        return {each.transactional_id: each for each in finish(machine.list(TransactionFilters()))}

    @property
    def markers(self) -> list[WriteMarkers]:
        """The markers that were asked for."""
        asked = []
        for action in self.driver.actions:
            assert isinstance(action, WriteMarkers)
            asked.append(action)
        return asked

    def ask(
        self,
        command: Callable[[TransactionCoordinator, Ticket, ProducerId | None], Effects],
    ) -> Any:
        """Run a command, with another producer id if it needs one."""
        try:
            try:
                answer = self.driver.ask(lambda machine, ticket: command(machine, ticket, None))
            except ProducerIdNeeded:
                producer_id = ProducerId(next(self._producer_ids))
                answer = self.driver.ask(
                    lambda machine, ticket: command(machine, ticket, producer_id)
                )
        except KafkaError as error:
            return error.code
        return answer.code if isinstance(answer, KafkaError) else answer

    def init(
        self,
        expected: ProducerIdAndEpoch | None = None,
        transactional_id: TransactionalId = ID,
        timeout_ms: int = TIMEOUT_MS,
    ) -> Any:
        """InitProducerId: who the producer is."""
        made = self.incarnate(expected, transactional_id, timeout_ms)
        if isinstance(made, Incarnation):
            assert made.ongoing == NO_PRODUCER
            return made.producer
        return made

    def incarnate(
        self,
        expected: ProducerIdAndEpoch | None = None,
        transactional_id: TransactionalId = ID,
        timeout_ms: int = TIMEOUT_MS,
        *,
        two_phase: bool = False,
        keep: bool = False,
    ) -> Any:
        """InitProducerId with all that it can ask for."""
        return self.ask(
            lambda machine, ticket, producer_id: machine.init_producer_id(
                transactional_id,
                timeout_ms,
                expected,
                ticket,
                new_producer_id=producer_id,
                enable_two_pc=two_phase,
                keep_prepared=keep,
            )
        )

    def begin(self, transactional_id: TransactionalId = ID) -> ProducerIdAndEpoch:
        """InitProducerId that must succeed."""
        producer = self.init(transactional_id=transactional_id)
        assert isinstance(producer, ProducerIdAndEpoch)
        return producer

    def add(
        self,
        producer: ProducerIdAndEpoch,
        *partitions: TopicPartition,
        version: int = 2,
        transactional_id: TransactionalId = ID,
    ) -> Any:
        """AddPartitionsToTxn; NONE if it is done."""
        answer = self.ask(
            lambda machine, ticket, _: machine.add_partitions(
                transactional_id,
                *producer,
                partitions,
                ticket,
                client_transaction_version=version,
            )
        )
        return ErrorCode.NONE if answer is None else answer

    def verify(self, producer: ProducerIdAndEpoch, *partitions: TopicPartition) -> Any:
        """AddPartitionsToTxn that only asks."""
        return self.ask(
            lambda machine, ticket, _: machine.verify_partitions(ID, *producer, partitions, ticket)
        )

    def end(
        self,
        producer: ProducerIdAndEpoch,
        *,
        is_commit: bool = True,
        version: int = 2,
        transactional_id: TransactionalId = ID,
    ) -> Any:
        """EndTxn."""
        return self.ask(
            lambda machine, ticket, producer_id: machine.end_txn(
                transactional_id,
                *producer,
                is_commit,
                ticket,
                client_transaction_version=version,
                new_producer_id=producer_id,
            )
        )

    def report(self, markers: WriteMarkers, *partitions: TopicPartition) -> None:
        """Tell that partitions have their markers."""
        self.driver.carry_out(self.driver.machine.markers_written(markers, partitions))

    def write_markers(self) -> None:
        """Write all the markers that were asked for."""
        asked, self.driver.actions = self.markers, []
        for markers in asked:
            self.report(markers, *markers.partitions)

    def statuses(self) -> list[TransactionState]:
        """Return the states in the log, oldest first."""
        values = (stored.record.value for stored in self.driver.log if stored.record is not None)
        return [
            TransactionState(value.transaction_status)
            for value in values
            if isinstance(value, TransactionLogValue)
        ]
