"""EndTxn: the decision over a transaction, by the rules of both protocols.

TV1 (up to v4): the epoch must be the producer's and stays. In ``Complete*`` the same outcome is
answered as a repetition, which cannot be distinguished from a late duplicate.

TV2 (v5+, KIP-890): every end bumps the epoch, so that a request belongs to one transaction only.

- The producer's epoch: a decision over the open transaction. If none is open, an abort counts as
  one of an empty transaction and a commit is refused.
- The previous epoch: a repetition. In ``Complete*`` it gets the same answer again, if it asks for
  the same outcome.
- A kept transaction (KIP-939) is ended by the incarnation it is kept for. Two epochs are bumped:
  the one it was written in, for the markers, and that of the incarnation, for its next transaction.

While markers are being written both return 51, TV2 before it checks the producer: after an overflow
of the epoch the producer already has its next id.
"""

from __future__ import annotations

from dataclasses import replace

from dohle.core.ids import NO_PRODUCER_ID, ProducerId
from dohle.txn.errors import (
    ProducerIdNeeded,
    concurrent,
    fenced,
    wrong_producer_id,
    wrong_state,
)
from dohle.txn.state import TransactionState, prepared
from dohle.txn.transaction import EPOCH_MAX, TV_2, ProducerIdAndEpoch, Transaction


def end_tv1(
    transaction: Transaction, producer: ProducerIdAndEpoch, now_ms: int, *, is_commit: bool
) -> Transaction | None:
    """Return the decided transaction; None if it is complete with that outcome."""
    if producer.producer_id not in (transaction.client.producer_id, transaction.producer_id):
        raise wrong_producer_id(transaction.transactional_id)
    if producer != transaction.client:
        raise fenced(transaction.transactional_id)
    if transaction.state.is_decided:
        raise concurrent(transaction.transactional_id)
    if transaction.state is TransactionState.ONGOING:
        return replace(
            transaction,
            state=prepared(is_commit=is_commit),
            last_update_ms=transaction.decided_ms(now_ms),
            client_transaction_version=0,
        )
    if transaction.state.is_complete and transaction.state.is_commit == is_commit:
        return None
    raise wrong_state(transaction)


def end_tv2(
    transaction: Transaction,
    producer: ProducerIdAndEpoch,
    now_ms: int,
    new_producer_id: ProducerId | None,
    *,
    is_commit: bool,
) -> Transaction | None:
    """Return the decided transaction; None if the request repeats a completed one."""
    state = transaction.state
    if state.is_decided:
        raise concurrent(transaction.transactional_id)
    client = transaction.client
    if producer != client or client.producer_epoch == EPOCH_MAX:
        if _is_repeated(transaction, producer, is_commit=is_commit):
            return None
        raise _refusal(transaction, producer)
    is_ongoing = state is TransactionState.ONGOING
    if is_commit and not is_ongoing:
        raise wrong_state(transaction)
    next_producer_id = NO_PRODUCER_ID
    if transaction.is_epoch_exhausted:
        if new_producer_id is None:
            raise ProducerIdNeeded(transaction.transactional_id)
        next_producer_id = new_producer_id
    decided = replace(
        transaction,
        state=prepared(is_commit=is_commit),
        producer_epoch=min(transaction.producer_epoch + 1, EPOCH_MAX),
        previous_producer_id=NO_PRODUCER_ID,
        next_producer_id=next_producer_id,
        start_ms=transaction.start_ms if is_ongoing else now_ms,
        last_update_ms=transaction.decided_ms(now_ms),
        client_transaction_version=TV_2,
    )
    if not transaction.is_kept:
        return decided
    if next_producer_id == NO_PRODUCER_ID:
        return replace(
            decided,
            next_producer_id=client.producer_id,
            next_producer_epoch=client.producer_epoch + 1,
        )
    return replace(decided, previous_producer_id=client.producer_id, next_producer_epoch=0)


def _is_repeated(
    transaction: Transaction, producer: ProducerIdAndEpoch, *, is_commit: bool
) -> bool:
    """Tell whether a request was carried out before; refuse it if that had another outcome.

    A producer that was fenced with the highest epoch gets no answer with it: no producer may use
    that.
    """
    if not transaction.state.is_complete or transaction.producer_epoch == EPOCH_MAX:
        return False
    if producer != transaction.previous_producer:
        return False
    if transaction.state.is_commit != is_commit:
        raise wrong_state(transaction)
    return True


def _refusal(transaction: Transaction, producer: ProducerIdAndEpoch) -> Exception:
    known = (transaction.producer_id, transaction.client.producer_id)
    if producer.producer_id in known or producer == transaction.previous_producer:
        return fenced(transaction.transactional_id)
    return wrong_producer_id(transaction.transactional_id)
