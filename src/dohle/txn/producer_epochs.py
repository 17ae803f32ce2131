"""InitProducerId with a transactional id: who the producer is from now on.

Rules
- A transaction that is open is aborted first, with an epoch that fences its producer; the client
  is told 51 until that is complete, and asks again.
- A producer that says who it was (v3+, KIP-360) gets the next epoch if it is still the newest, is
  given the same answer if it asks again, and is fenced otherwise. Where a transaction is open it
  must be that transaction's producer; Kafka only looks at the id there, so that a delayed request
  could abort the transaction of a newer incarnation.
- When the epochs of a producer id are used up, it is replaced by another id.
- A producer may ask for an open transaction to be kept (KIP-939): then it stays open, under the
  identity that has written it, and the new incarnation gets one that can do nothing but end it.
  That may be repeated: each time whoever came before is fenced.
"""

from __future__ import annotations

from dataclasses import replace

from dohle.core.ids import NO_PRODUCER_ID, ProducerId, TransactionalId
from dohle.txn.errors import ProducerIdNeeded, concurrent, fenced
from dohle.txn.state import TransactionState
from dohle.txn.transaction import (
    EPOCH_MAX,
    NO_PRODUCER_EPOCH,
    NO_TIMEOUT_MS,
    NO_TIMESTAMP,
    TV_2,
    ProducerIdAndEpoch,
    Transaction,
)


def new_transactional_id(
    transactional_id: TransactionalId,
    timeout_ms: int,
    now_ms: int,
    new_producer_id: ProducerId | None,
) -> Transaction:
    """Begin with a transactional id that is not known: never used, or not for long."""
    if new_producer_id is None:
        raise ProducerIdNeeded(transactional_id)
    return Transaction(
        transactional_id=transactional_id,
        producer_id=new_producer_id,
        producer_epoch=0,
        state=TransactionState.EMPTY,
        timeout_ms=timeout_ms,
        last_update_ms=now_ms,
    )


def next_incarnation(
    transaction: Transaction,
    expected: ProducerIdAndEpoch | None,
    timeout_ms: int,
    now_ms: int,
    new_producer_id: ProducerId | None,
) -> Transaction | None:
    """Return what becomes of an id that a producer wants; None if its transaction is open."""
    if transaction.state.is_decided:
        raise concurrent(transaction.transactional_id)
    if transaction.state is TransactionState.ONGOING:
        if expected not in (None, transaction.client):
            raise fenced(transaction.transactional_id)
        return None
    producer, previous_producer_id = _next_producer(transaction, expected, new_producer_id)
    return replace(
        transaction,
        state=TransactionState.EMPTY,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        previous_producer_id=previous_producer_id,
        next_producer_id=NO_PRODUCER_ID,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        start_ms=NO_TIMESTAMP,
        last_update_ms=transaction.updated_ms(now_ms),
    )


def kept_transaction(
    transaction: Transaction,
    expected: ProducerIdAndEpoch | None,
    now_ms: int,
    new_producer_id: ProducerId | None,
    *,
    is_two_phase: bool,
) -> Transaction:
    """Return an open transaction as it is when a new incarnation keeps it."""
    if expected not in (None, transaction.client):
        raise fenced(transaction.transactional_id)
    producer_id, epoch = transaction.client
    if transaction.is_epoch_exhausted:
        if new_producer_id is None:
            raise ProducerIdNeeded(transaction.transactional_id)
        producer_id, epoch = new_producer_id, NO_PRODUCER_EPOCH
    return replace(
        transaction,
        next_producer_id=producer_id,
        next_producer_epoch=epoch + 1,
        # What was promised to the one who began it is not taken back.
        timeout_ms=NO_TIMEOUT_MS if is_two_phase else transaction.timeout_ms,
        last_update_ms=transaction.updated_ms(now_ms),
    )


def _next_producer(
    transaction: Transaction,
    expected: ProducerIdAndEpoch | None,
    new_producer_id: ProducerId | None,
) -> tuple[ProducerIdAndEpoch, ProducerId]:
    """Return who the producer is now, and the id of the one who may ask that again."""
    producer_id, epoch = transaction.producer
    previous_producer_id = NO_PRODUCER_ID if expected is None else expected.producer_id
    if expected not in (None, transaction.producer):
        if expected != transaction.previous_producer:
            raise fenced(transaction.transactional_id)
        if epoch < EPOCH_MAX:
            return transaction.producer, previous_producer_id
        # Its transaction timed out at its last epoch; the one that fenced it is nobody's to use.
    if not transaction.is_epoch_exhausted:
        return ProducerIdAndEpoch(producer_id, epoch + 1), previous_producer_id
    if new_producer_id is None:
        raise ProducerIdNeeded(transaction.transactional_id)
    return ProducerIdAndEpoch(new_producer_id, 0), previous_producer_id


def fencing_abort(transaction: Transaction, now_ms: int, transaction_version: int) -> Transaction:
    """Abort an open transaction with an epoch that its producer does not have."""
    # A client is never given the highest epoch, but a log may tell otherwise.
    can_bump = transaction.producer_epoch < EPOCH_MAX
    fenced_out = replace(
        transaction,
        state=TransactionState.PREPARE_ABORT,
        producer_epoch=transaction.producer_epoch + can_bump,
        previous_producer_id=NO_PRODUCER_ID,
        last_update_ms=transaction.decided_ms(now_ms),
        client_transaction_version=TV_2 if can_bump and transaction_version >= TV_2 else 0,
    )
    if not transaction.is_kept:
        return replace(fenced_out, next_producer_id=NO_PRODUCER_ID)
    # Who was to end it is fenced as well.
    epoch = min(transaction.next_producer_epoch + 1, EPOCH_MAX)
    return replace(fenced_out, next_producer_epoch=epoch)
