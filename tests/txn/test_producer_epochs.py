"""Who a producer is: new ids, epochs that run out, and producers that ask twice (KIP-360)."""

from __future__ import annotations

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import ProducerId
from dohle.txn.state import TransactionState
from dohle.txn.transaction import (
    EPOCH_MAX,
    LAST_EPOCH,
    ProducerIdAndEpoch,
    Transaction,
)
from tests.txn.transactions import A0, FIRST_PRODUCER_ID, ID, TIMEOUT_MS, Transactions

OLD_ID = ProducerId(7)
LAST = ProducerIdAndEpoch(OLD_ID, LAST_EPOCH)
NEW = ProducerIdAndEpoch(ProducerId(FIRST_PRODUCER_ID), 0)


def exhausted(
    state: TransactionState = TransactionState.EMPTY, epoch: int = LAST_EPOCH, version: int = 0
) -> Transactions:
    transactions = Transactions()
    transactions.put(
        Transaction(
            transactional_id=ID,
            producer_id=OLD_ID,
            producer_epoch=epoch,
            state=state,
            timeout_ms=TIMEOUT_MS,
            last_update_ms=transactions.clock.now_ms(),
            start_ms=transactions.clock.now_ms() if state else -1,
            partitions=frozenset({A0} if state is TransactionState.ONGOING else ()),
            client_transaction_version=version,
        )
    )
    return transactions


def test_every_incarnation_has_a_higher_epoch() -> None:
    transactions = Transactions()
    assert [transactions.init() for _ in range(3)] == [
        (FIRST_PRODUCER_ID, 0),
        (FIRST_PRODUCER_ID, 1),
        (FIRST_PRODUCER_ID, 2),
    ]


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_must_be_positive_and_no_longer_than_the_limit(timeout_ms: int) -> None:
    transactions = Transactions()
    answer = transactions.init(timeout_ms=timeout_ms)
    assert answer == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert transactions.known() == {}


def test_the_newest_timeout_counts() -> None:
    transactions = Transactions()
    transactions.init(timeout_ms=900_000)
    transactions.init(timeout_ms=5)
    assert transactions.find().timeout_ms == 5


def test_a_producer_that_lost_the_answer_gets_it_again_even_after_a_restart() -> None:
    transactions = Transactions()
    producer = transactions.begin()
    bumped = transactions.init(expected=producer)
    assert bumped == (producer.producer_id, producer.producer_epoch + 1)
    assert transactions.init(expected=producer) == bumped
    transactions.driver.restart()
    assert transactions.init(expected=producer) == bumped


def test_a_producer_cannot_take_back_the_id_from_a_newer_incarnation() -> None:
    transactions = Transactions()
    old = transactions.begin()
    bumped = transactions.init(expected=old)
    transactions.begin()
    assert transactions.init(expected=old) == ErrorCode.PRODUCER_FENCED
    assert transactions.init(expected=bumped) == ErrorCode.PRODUCER_FENCED


def test_a_late_bump_of_an_old_incarnation_leaves_a_newer_transaction_alone() -> None:
    transactions = Transactions()
    old = transactions.begin()
    new = transactions.begin()
    transactions.add(new, A0)
    assert transactions.init(expected=old) == ErrorCode.PRODUCER_FENCED
    assert transactions.state() is TransactionState.ONGOING
    assert transactions.end(new) == (new.producer_id, new.producer_epoch + 1)


def test_a_producer_whose_id_has_expired_gets_another() -> None:
    transactions = Transactions()
    assert transactions.init(expected=ProducerIdAndEpoch(OLD_ID, 3)) == NEW


def test_when_epochs_run_out_there_is_a_new_producer_id() -> None:
    transactions = exhausted(epoch=LAST_EPOCH - 1)
    assert transactions.init() == LAST
    assert transactions.init() == NEW
    assert transactions.end(LAST, is_commit=False) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_producer_that_got_another_id_may_ask_again_but_no_other_may() -> None:
    transactions = exhausted()
    assert transactions.init(expected=LAST) == NEW
    transactions.driver.restart()
    assert transactions.init(expected=LAST) == NEW
    older = LAST._replace(producer_epoch=LAST_EPOCH - 1)
    assert transactions.init(expected=older) == ErrorCode.PRODUCER_FENCED
    assert transactions.init() == (NEW.producer_id, 1)
    assert transactions.init(expected=LAST) == ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_transaction_at_the_last_epoch_ends_with_another_producer_id(is_commit: bool) -> None:
    transactions = exhausted(TransactionState.ONGOING)
    assert transactions.end(LAST, is_commit=is_commit) == NEW
    decided = transactions.find()
    assert decided.producer == (OLD_ID, EPOCH_MAX)
    (markers,) = transactions.markers
    assert (markers.producer_id, markers.producer_epoch) == (OLD_ID, EPOCH_MAX)
    # The producer goes on at once, under an id that is not in force yet.
    assert transactions.add(NEW, A0) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert transactions.end(LAST, is_commit=is_commit) == ErrorCode.CONCURRENT_TRANSACTIONS
    transactions.driver.restart()
    transactions.write_markers()
    assert transactions.find().producer == NEW
    assert transactions.end(LAST, is_commit=is_commit) == NEW
    assert transactions.end(LAST, is_commit=not is_commit) == ErrorCode.INVALID_TXN_STATE
    assert transactions.add(NEW, A0) == ErrorCode.NONE
    assert transactions.end(LAST, is_commit=is_commit) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_an_abort_of_nothing_at_the_last_epoch_gives_another_producer_id() -> None:
    transactions = exhausted()
    assert transactions.end(LAST, is_commit=False) == NEW
    assert transactions.find().producer == NEW
    assert transactions.end(LAST, is_commit=False) == NEW


def test_with_tv1_a_transaction_may_end_at_the_last_epoch() -> None:
    transactions = exhausted(TransactionState.ONGOING)
    transactions.end(LAST, version=0)
    transactions.write_markers()
    assert transactions.find().producer == LAST
    assert transactions.init() == NEW


@pytest.mark.parametrize("transaction_version", [1, 2])
def test_the_highest_epoch_fences_and_is_given_to_nobody(transaction_version: int) -> None:
    transactions = exhausted(TransactionState.ONGOING)
    transactions.settings = transactions.settings._replace(transaction_version=transaction_version)
    assert transactions.init() == ErrorCode.CONCURRENT_TRANSACTIONS
    transactions.write_markers()
    assert transactions.find().producer == (OLD_ID, EPOCH_MAX)
    highest = ProducerIdAndEpoch(OLD_ID, EPOCH_MAX)
    for producer in (LAST, highest):
        assert transactions.add(producer, A0) == ErrorCode.PRODUCER_FENCED
        assert transactions.end(producer, is_commit=False) == ErrorCode.PRODUCER_FENCED
        assert transactions.end(producer) == ErrorCode.PRODUCER_FENCED
    assert transactions.init() == NEW


def test_h16_a_producer_that_timed_out_at_its_last_epoch_gets_another_id() -> None:
    transactions = exhausted(TransactionState.ONGOING)
    transactions.driver.advance(TIMEOUT_MS + 10_001)
    transactions.write_markers()
    assert transactions.find().producer == (OLD_ID, EPOCH_MAX)
    assert transactions.init(expected=LAST) == NEW
    assert transactions.init(expected=LAST) == NEW


def test_h16_a_transaction_that_a_log_has_at_the_highest_epoch_can_be_aborted() -> None:
    transactions = exhausted(TransactionState.ONGOING, EPOCH_MAX)
    assert transactions.init() == ErrorCode.CONCURRENT_TRANSACTIONS
    (markers,) = transactions.markers
    # Nothing is higher, so the rule must be that of TV1: not lower.
    assert (markers.producer_epoch, markers.transaction_version) == (EPOCH_MAX, 0)
    transactions.write_markers()
    assert transactions.init() == NEW


def test_a_timed_out_producer_goes_on_with_the_epoch_that_fenced_it() -> None:
    transactions = Transactions()
    producer = transactions.begin()
    transactions.add(producer, A0)
    transactions.driver.advance(TIMEOUT_MS + 10_001)
    assert transactions.init(expected=producer) == ErrorCode.CONCURRENT_TRANSACTIONS
    transactions.write_markers()
    assert transactions.init(expected=producer) == (producer.producer_id, 1)


@pytest.mark.parametrize("transaction_version", [0, 1])
def test_without_tv2_a_timed_out_producer_is_fenced(transaction_version: int) -> None:
    transactions = Transactions(transaction_version=transaction_version)
    producer = transactions.begin()
    transactions.add(producer, A0, version=0)
    transactions.driver.advance(TIMEOUT_MS + 10_001)
    transactions.write_markers()
    assert transactions.end(producer, version=0) == ErrorCode.PRODUCER_FENCED
    assert transactions.init(expected=producer) == ErrorCode.PRODUCER_FENCED
