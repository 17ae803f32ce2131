"""InitProducerId with a transactional id: the producer's new identity.

Rules
- An open transaction is aborted first, with an epoch that fences its producer; the client gets 51
  until that is complete, and retries.
- A producer that sends its identity (v3+, KIP-360) gets the next epoch if it is still the newest,
  gets the same answer if it asks again, and is fenced otherwise. If a transaction is open, it must
  be that transaction's producer; Kafka only compares the id there, so that a delayed request could
  abort the transaction of a newer incarnation.
- When the epochs of a producer id are used up, the producer gets another id.
- A producer may ask to keep an open transaction (KIP-939): then it stays open, under the identity
  that has written it, and the new incarnation gets an identity that can only end it. That may be
  repeated: each time the previous incarnation is fenced.
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
    """Start with a transactional id that is unknown: never used, or expired."""
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
    """Return the id's new state for a producer; None if its transaction is open."""
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
    """Return an open transaction as kept for a new incarnation."""
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
        # The timeout that its producer was granted is not shortened.
        timeout_ms=NO_TIMEOUT_MS if is_two_phase else transaction.timeout_ms,
        last_update_ms=transaction.updated_ms(now_ms),
    )


def _next_producer(
    transaction: Transaction,
    expected: ProducerIdAndEpoch | None,
    new_producer_id: ProducerId | None,
) -> tuple[ProducerIdAndEpoch, ProducerId]:
    """Return the producer's new identity, and the previous id if that may ask again."""
    producer_id, epoch = transaction.producer
    previous_producer_id = NO_PRODUCER_ID if expected is None else expected.producer_id
    if expected not in (None, transaction.producer):
        if expected != transaction.previous_producer:
            raise fenced(transaction.transactional_id)
        if epoch < EPOCH_MAX:
            return transaction.producer, previous_producer_id
        # Its transaction timed out at its last epoch; no producer may use the epoch that fenced it.
    if not transaction.is_epoch_exhausted:
        return ProducerIdAndEpoch(producer_id, epoch + 1), previous_producer_id
    if new_producer_id is None:
        raise ProducerIdNeeded(transaction.transactional_id)
    return ProducerIdAndEpoch(new_producer_id, 0), previous_producer_id


def fencing_abort(transaction: Transaction, now_ms: int, transaction_version: int) -> Transaction:
    """Abort an open transaction with an epoch that its producer does not have."""
    # A client never gets the highest epoch, but a log may contain it.
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
    # The incarnation that was to end it is fenced as well.
    epoch = min(transaction.next_producer_epoch + 1, EPOCH_MAX)
    return replace(fenced_out, next_producer_epoch=epoch)
