"""The transaction coordinator of one partition of ``__transaction_state``.

A command decides and returns the new record of the transactional id; the state changes when the
record is replayed. Kafka must refuse commands while such a record is being written; here the next
command already sees it, and is not answered before it is committed.

Rules
- A transaction's outcome is decided once, by its ``Prepare*`` record. From then on its markers are
  requested, again after every restart, until all partitions have theirs; then ``Complete*`` is
  written. Until then every request gets 51.
- A decision without partitions is complete at once, with both records in one batch.
- It is not recorded which markers are already written: after a restart all are written again, and
  the partitions' leaders recognise duplicates.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

from dohle.coordination.effects import Effects, Ticket, TransactionalProducer
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import ProducerId, TopicPartition, TransactionalId
from dohle.core.steps import PlainSteps
from dohle.protocol.messages.records.transaction import TransactionLogKey, TransactionLogValue
from dohle.protocol.record_framing import CoordinatorRecord
from dohle.txn.actions import WriteMarkers
from dohle.txn.context import TimerKind, TransactionContext, TransactionTimerKey
from dohle.txn.end import end_tv1, end_tv2
from dohle.txn.errors import concurrent, fenced, wrong_producer_id, wrong_state
from dohle.txn.listing import TransactionFilters
from dohle.txn.producer_epochs import (
    fencing_abort,
    kept_transaction,
    new_transactional_id,
    next_incarnation,
)
from dohle.txn.state import TransactionState
from dohle.txn.transaction import (
    EPOCH_MAX,
    NO_PRODUCER,
    NO_TIMEOUT_MS,
    TV_2,
    Incarnation,
    ProducerIdAndEpoch,
    Transaction,
    tombstone,
)

#: How long to wait before retrying a ``Complete*`` that the log has refused.
_RETRY_MS = 500
#: The most expired ids deleted in one step.
_TOMBSTONES_MAX = 1_000


class TransactionCoordinator:
    """One for each partition that this broker leads."""

    def __init__(self, context: TransactionContext) -> None:
        self.context = context
        self._transactions: dict[str, Transaction] = {}
        # When each open transaction began by the wall clock, and when it times out by the monotonic
        # one: neither a clock that is set forward ends it too soon, nor one that is set back too
        # late.
        self._ongoing: dict[str, tuple[int, int]] = {}
        # For decided transactions: the partitions without a marker so far.
        self._unmarked: dict[str, set[TopicPartition]] = {}

    # Commands

    def init_producer_id(
        self,
        transactional_id: TransactionalId,
        transaction_timeout_ms: int,
        expected: ProducerIdAndEpoch | None,
        ticket: Ticket,
        *,
        new_producer_id: ProducerId | None = None,
        enable_two_pc: bool = False,
        keep_prepared: bool = False,
    ) -> Effects:
        """Give a producer its new identity: the reply is an :class:`Incarnation`.

        If its transaction is still open, that is aborted, and the reply is 51; or it is kept
        (KIP-939).
        """
        timeout_ms = self._timeout_ms(transaction_timeout_ms, enable_two_pc, keep_prepared)
        now_ms = self.context.clock.now_ms()
        transaction = self._transactions.get(transactional_id)
        after: Transaction | None
        if transaction is None:
            after = new_transactional_id(transactional_id, timeout_ms, now_ms, new_producer_id)
        elif keep_prepared and transaction.state is TransactionState.ONGOING:
            after = kept_transaction(
                transaction, expected, now_ms, new_producer_id, is_two_phase=enable_two_pc
            )
            return self._write(after).reply(ticket, Incarnation(after.client, after.producer))
        else:
            after = next_incarnation(transaction, expected, timeout_ms, now_ms, new_producer_id)
            if after is None:
                return self._fence(transaction).reply(ticket, concurrent(transactional_id))
        return self._write(after).reply(ticket, Incarnation(after.producer))

    def _timeout_ms(self, asked_ms: int, enable_two_pc: bool, keep_prepared: bool) -> int:
        """Return the transaction timeout of a producer, or refuse what it asks for."""
        settings = self.context.settings()
        is_allowed = settings.transaction_two_phase_commit_enable
        if enable_two_pc and not is_allowed:
            raise KafkaError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "transaction.two.phase.commit.enable is false",
            )
        if keep_prepared and not (is_allowed and settings.transaction_version):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "keeping a prepared transaction needs transaction.two.phase.commit.enable and a "
                "transaction.version of 1 or more",
            )
        if enable_two_pc:
            return NO_TIMEOUT_MS
        if not 0 < asked_ms <= settings.transaction_max_timeout_ms:
            raise KafkaError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"a transaction timeout of {asked_ms} ms; "
                f"transaction.max.timeout.ms is {settings.transaction_max_timeout_ms}",
            )
        return asked_ms

    def add_partitions(
        self,
        transactional_id: TransactionalId,
        producer_id: ProducerId,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        ticket: Ticket,
        *,
        client_transaction_version: int,
    ) -> Effects:
        """Add partitions to the transaction, which begins with the first; the reply is None."""
        transaction = self._find(transactional_id)
        if transaction.state.is_decided:
            # Checked before the producer's identity: it may already have its next id.
            raise concurrent(transactional_id)
        _check_producer(transaction, ProducerIdAndEpoch(producer_id, producer_epoch))
        if transaction.state is TransactionState.ONGOING and transaction.partitions.issuperset(
            partitions
        ):
            return Effects().reply(ticket, None)
        self._check_version(client_transaction_version)
        now_ms = self.context.clock.now_ms()
        after = transaction.with_partitions(partitions, now_ms, client_transaction_version)
        return self._write(after).reply(ticket, None)

    def verify_partitions(
        self,
        transactional_id: TransactionalId,
        producer_id: ProducerId,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        ticket: Ticket,
    ) -> Effects:
        """Check which partitions are part of the producer's open transaction: an error for each."""
        transaction = self._find(transactional_id)
        _check_producer(transaction, ProducerIdAndEpoch(producer_id, producer_epoch))
        if transaction.state.is_decided:
            raise concurrent(transactional_id)
        return Effects().reply(
            ticket,
            {
                partition: (
                    ErrorCode.NONE
                    if partition in transaction.partitions
                    else ErrorCode.TRANSACTION_ABORTABLE
                )
                for partition in partitions
            },
        )

    def end_txn(
        self,
        transactional_id: TransactionalId,
        producer_id: ProducerId,
        producer_epoch: int,
        is_commit: bool,
        ticket: Ticket,
        *,
        client_transaction_version: int,
        new_producer_id: ProducerId | None = None,
    ) -> Effects:
        """Decide a transaction. With TV2 the reply is the producer's new identity."""
        self._check_version(client_transaction_version)
        transaction = self._find(transactional_id)
        producer = ProducerIdAndEpoch(producer_id, producer_epoch)
        now_ms = self.context.clock.now_ms()
        if client_transaction_version < TV_2:
            after = end_tv1(transaction, producer, now_ms, is_commit=is_commit)
            answer = NO_PRODUCER
        else:
            after = end_tv2(transaction, producer, now_ms, new_producer_id, is_commit=is_commit)
            answer = (after or transaction).next_producer
        effects = Effects() if after is None else self._decide(after)
        return effects.reply(ticket, answer)

    def markers_written(
        self, markers: WriteMarkers, partitions: Collection[TopicPartition]
    ) -> Effects:
        """Record that partitions have their markers, or no longer exist."""
        transaction = self._transactions.get(markers.transactional_id)
        unmarked = self._unmarked.get(markers.transactional_id)
        if transaction is None or unmarked is None or _markers(transaction) != markers:
            # The decision may be carried out already: a report may come twice.
            return Effects()
        unmarked.difference_update(partitions)
        return Effects() if unmarked else self._complete(transaction)

    # Queries

    def describe(self, transactional_id: str) -> Transaction | None:
        """Describe a transactional id."""
        return self._transactions.get(transactional_id)

    def all(self) -> tuple[Transaction, ...]:
        """Return all transactional ids."""
        return tuple(self._transactions.values())

    def list(self, filters: TransactionFilters) -> PlainSteps[list[Transaction]]:
        """Return the transactional ids that match, each as it is in its step. Changes nothing."""
        now_ms = self.context.clock.now_ms()
        found = []
        for transaction in tuple(self._transactions.values()):
            if filters.select(transaction, now_ms):
                found.append(transaction)
            yield
        return found

    # The log

    def replay(self, record: CoordinatorRecord, producer: TransactionalProducer | None) -> None:
        """Apply a record of the log."""
        if not isinstance(record.key, TransactionLogKey):
            return
        transactional_id = TransactionalId(record.key.transactional_id)
        known = self._ongoing.pop(transactional_id, None)
        self._unmarked.pop(transactional_id, None)
        if record.value is None:
            self._transactions.pop(transactional_id, None)
            return
        value = cast("TransactionLogValue", record.value)
        transaction = Transaction.from_record(transactional_id, value)
        self._transactions[transactional_id] = transaction
        if transaction.state is TransactionState.ONGOING:
            if known is None or known[0] != transaction.start_ms:
                known = transaction.start_ms, self._times_out_at_ms(transaction)
            self._ongoing[transactional_id] = known
            if TransactionTimerKey(TimerKind.TIMEOUT_CHECK) not in self.context.timers:
                self._set_check(TimerKind.TIMEOUT_CHECK)
        elif transaction.state.is_decided:
            self._unmarked[transactional_id] = set(transaction.partitions)

    def replay_end_transaction(self, producer: TransactionalProducer, *, is_commit: bool) -> None:
        """Nothing in this log is written in transactions."""

    def on_loaded(self) -> PlainSteps[Effects]:
        """Continue with every decision that is not in all its partitions yet."""
        effects = Effects()
        for transactional_id, unmarked in self._unmarked.items():
            yield
            if unmarked:
                effects.actions.append(_markers(self._transactions[transactional_id]))
            else:
                self._set_timer(TimerKind.COMPLETE, 0, transactional_id)
        self._set_check(TimerKind.EXPIRATION_CHECK)
        return effects

    # Time

    def next_deadline_ms(self) -> int | None:
        """Return when the next timer is due."""
        return self.context.timers.next_deadline_ms()

    def expire(self) -> Effects | None:
        """Handle all timers that are due."""
        key = self.context.timers.pop_due(self.context.clock.monotonic_ms())
        if key is None:
            return None
        transaction = self._transactions.get(key.transactional_id)
        now_ms = self.context.clock.now_ms()
        match key.kind:
            case TimerKind.TIMEOUT_CHECK:
                if self._ongoing:
                    self._set_check(key.kind)
                # One by one, so that a refusal by the log concerns a single transaction.
                for transactional_id in sorted(self._ongoing):
                    if self._is_timed_out(transactional_id):
                        self._set_timer(TimerKind.ABORT, 0, transactional_id)
            case TimerKind.EXPIRATION_CHECK:
                return self._remove_expired(now_ms)
            case TimerKind.ABORT:
                if transaction is not None and self._is_timed_out(key.transactional_id):
                    return self._fence(transaction)
            case TimerKind.COMPLETE:
                if transaction is not None and self._unmarked.get(key.transactional_id) == set():
                    return self._complete(transaction)
        return Effects()

    def _times_out_at_ms(self, transaction: Transaction) -> int:
        """Return when a transaction times out; one that was loaded has used up a part of its time.

        How much, only the wall clock can tell, and it may have been set since.
        """
        clock = self.context.clock
        used_ms = min(max(0, clock.now_ms() - transaction.start_ms), transaction.timeout_ms)
        return clock.monotonic_ms() + transaction.timeout_ms - used_ms

    def _is_timed_out(self, transactional_id: str) -> bool:
        known = self._ongoing.get(transactional_id)
        if known is None or self._transactions[TransactionalId(transactional_id)].is_two_phase:
            return False
        return known[1] < self.context.clock.monotonic_ms()

    def _set_timer(self, kind: TimerKind, delay_ms: int, transactional_id: str = "") -> None:
        deadline_ms = self.context.clock.monotonic_ms() + delay_ms
        self.context.timers.set(TransactionTimerKey(kind, transactional_id), deadline_ms)

    def _set_check(self, kind: TimerKind) -> None:
        settings = self.context.settings()
        self._set_timer(
            kind,
            settings.transaction_abort_timed_out_transaction_cleanup_interval_ms
            if kind is TimerKind.TIMEOUT_CHECK
            else settings.transaction_remove_expired_transaction_cleanup_interval_ms,
        )

    def _remove_expired(self, now_ms: int) -> Effects:
        expiration_ms = self.context.settings().transactional_id_expiration_ms
        effects = Effects(is_atomic=False)
        for transaction in self._transactions.values():
            if transaction.is_expired(now_ms, expiration_ms):
                effects.records.append(tombstone(transaction.transactional_id))
                if len(effects.records) == _TOMBSTONES_MAX:
                    self._set_timer(TimerKind.EXPIRATION_CHECK, 0)
                    effects.undo = self._expire_later
                    return effects
        self._set_check(TimerKind.EXPIRATION_CHECK)
        return effects

    def _expire_later(self, error: KafkaError) -> Effects:
        self._set_check(TimerKind.EXPIRATION_CHECK)
        return Effects()

    # What follows

    def _find(self, transactional_id: str) -> Transaction:
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            raise wrong_producer_id(transactional_id)
        return transaction

    def _check_version(self, client_transaction_version: int) -> None:
        """Refuse what the records of this cluster's transaction version cannot express."""
        if client_transaction_version >= TV_2 and not self.context.settings().transaction_version:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, "transaction.version 0 has no epoch bumps"
            )

    def _write(self, *steps: Transaction) -> Effects:
        version = self.context.settings().transaction_version
        return Effects(records=[step.to_record(version) for step in steps])

    def _fence(self, transaction: Transaction) -> Effects:
        """Abort an open transaction and fence its producer."""
        version = self.context.settings().transaction_version
        return self._decide(fencing_abort(transaction, self.context.clock.now_ms(), version))

    def _decide(self, decided: Transaction) -> Effects:
        if not decided.partitions:
            return self._write(decided, decided.complete(decided.last_update_ms))
        effects = self._write(decided)
        effects.actions.append(_markers(decided))
        return effects

    def _complete(self, transaction: Transaction) -> Effects:
        effects = self._write(transaction.complete(self.context.clock.now_ms()))

        def try_again(error: KafkaError) -> Effects:
            self._set_timer(TimerKind.COMPLETE, _RETRY_MS, transaction.transactional_id)
            return Effects()

        effects.undo = try_again
        return effects


def _check_producer(transaction: Transaction, producer: ProducerIdAndEpoch) -> None:
    """Accept only the newest producer of a transactional id."""
    if producer.producer_id not in (transaction.client.producer_id, transaction.producer_id):
        raise wrong_producer_id(transaction.transactional_id)
    if producer != transaction.client or producer.producer_epoch == EPOCH_MAX:
        raise fenced(transaction.transactional_id)
    if transaction.is_kept and transaction.state is TransactionState.ONGOING:
        # Everything of it was written before; it can only be ended.
        raise wrong_state(transaction)


def _markers(decided: Transaction) -> WriteMarkers:
    return WriteMarkers(
        decided.transactional_id,
        decided.producer_id,
        decided.producer_epoch,
        decided.state.is_commit,
        decided.partitions,
        decided.client_transaction_version,
        decided.last_update_ms,
    )
