"""Transactions that are decided elsewhere (KIP-939): without a timeout, kept for a successor."""

from __future__ import annotations

from typing import Any

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import ProducerId
from dohle.protocol.messages.records.transaction import TransactionLogValue
from dohle.txn.state import TransactionState
from dohle.txn.transaction import (
    LAST_EPOCH,
    NO_PRODUCER,
    NO_TIMEOUT_MS,
    Incarnation,
    ProducerIdAndEpoch,
    Transaction,
)
from tests.txn.transactions import A0, A1, FIRST_PRODUCER_ID, ID, TIMEOUT_MS, Transactions

YEAR_MS = 365 * 86_400_000
OLD_ID = ProducerId(7)
NEW_ID = ProducerId(FIRST_PRODUCER_ID)


def allowed(**settings: Any) -> Transactions:
    return Transactions(transaction_two_phase_commit_enable=True, **settings)


def with_open(epoch: int = 100, timeout_ms: int = NO_TIMEOUT_MS) -> Transactions:
    """An open transaction of one partition."""
    transactions = allowed()
    now_ms = transactions.clock.now_ms()
    transactions.put(
        Transaction(
            transactional_id=ID,
            producer_id=OLD_ID,
            producer_epoch=epoch,
            state=TransactionState.ONGOING,
            timeout_ms=timeout_ms,
            last_update_ms=now_ms,
            start_ms=now_ms,
            partitions=frozenset({A0}),
            client_transaction_version=2,
        )
    )
    return transactions


def writer(epoch: int = 100) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(OLD_ID, epoch)


def keep(transactions: Transactions, **how: Any) -> Incarnation:
    """Keep the open transaction, which must succeed."""
    made = transactions.incarnate(keep=True, **how)
    assert isinstance(made, Incarnation)
    return made


def pass_a_year(transactions: Transactions) -> None:
    transactions.clock.advance(YEAR_MS)
    transactions.driver.advance(20_000)


# Asking for it


def test_who_is_not_allowed_to_is_refused() -> None:
    transactions = Transactions()
    refusal = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert transactions.incarnate(two_phase=True) == refusal
    assert transactions.incarnate(two_phase=True, keep=True) == refusal
    assert transactions.incarnate(keep=True) == ErrorCode.UNSUPPORTED_VERSION
    assert transactions.known() == {}


def test_nothing_is_kept_where_records_have_no_room_for_it() -> None:
    transactions = allowed(transaction_version=0)
    assert transactions.incarnate(keep=True) == ErrorCode.UNSUPPORTED_VERSION
    assert isinstance(transactions.incarnate(two_phase=True), Incarnation)


@pytest.mark.parametrize("timeout_ms", [TIMEOUT_MS, 0, -1, 900_001])
def test_a_two_phase_transaction_never_times_out_whatever_timeout_is_asked_for(
    timeout_ms: int,
) -> None:
    transactions = allowed()
    made = transactions.incarnate(timeout_ms=timeout_ms, two_phase=True)
    assert made == ((FIRST_PRODUCER_ID, 0), NO_PRODUCER)
    transactions.add(made.producer, A0)
    pass_a_year(transactions)
    assert transactions.state() is TransactionState.ONGOING
    assert transactions.find().is_two_phase
    assert transactions.end(made.producer) == (FIRST_PRODUCER_ID, 1)


def test_the_next_incarnation_may_have_a_timeout_again() -> None:
    transactions = allowed()
    transactions.incarnate(two_phase=True)
    assert transactions.init() == (FIRST_PRODUCER_ID, 1)
    assert transactions.find().timeout_ms == TIMEOUT_MS


def test_without_an_open_transaction_there_is_nothing_to_keep() -> None:
    transactions = allowed()
    assert keep(transactions) == ((FIRST_PRODUCER_ID, 0), NO_PRODUCER)
    assert keep(transactions) == ((FIRST_PRODUCER_ID, 1), NO_PRODUCER)
    producer = ProducerIdAndEpoch(NEW_ID, 1)
    transactions.add(producer, A0)
    after = transactions.end(producer)
    assert transactions.incarnate(keep=True) == ErrorCode.CONCURRENT_TRANSACTIONS
    transactions.write_markers()
    assert keep(transactions) == ((NEW_ID, after.producer_epoch + 1), NO_PRODUCER)
    assert transactions.state() is TransactionState.EMPTY


# A kept transaction


def test_a_kept_transaction_is_committed_by_who_keeps_it() -> None:
    transactions = with_open()
    made = keep(transactions, two_phase=True)
    assert made == ((OLD_ID, 101), writer())
    assert transactions.state() is TransactionState.ONGOING
    assert transactions.end(made.producer) == (OLD_ID, 102)
    (markers,) = transactions.markers
    assert (markers.producer_id, markers.producer_epoch) == (OLD_ID, 101)
    assert markers.partitions == {A0}
    transactions.write_markers()
    assert transactions.state() is TransactionState.COMPLETE_COMMIT
    assert transactions.find().producer == (OLD_ID, 102)
    assert transactions.add(ProducerIdAndEpoch(OLD_ID, 102), A1) is ErrorCode.NONE


@pytest.mark.parametrize("is_commit", [True, False])
def test_who_asks_again_how_a_kept_transaction_ended_is_told_the_same(is_commit: bool) -> None:
    transactions = with_open()
    client = keep(transactions).producer
    after = transactions.end(client, is_commit=is_commit)
    assert transactions.end(client, is_commit=is_commit) == ErrorCode.CONCURRENT_TRANSACTIONS
    transactions.write_markers()
    assert transactions.end(client, is_commit=is_commit) == after
    assert transactions.end(client, is_commit=not is_commit) == ErrorCode.INVALID_TXN_STATE


def test_a_late_end_of_a_kept_transaction_does_not_end_the_next_one() -> None:
    transactions = with_open()
    client = keep(transactions).producer
    after = transactions.end(client)
    transactions.write_markers()
    transactions.add(after, A0)
    assert transactions.end(client) == ErrorCode.PRODUCER_FENCED
    assert transactions.state() is TransactionState.ONGOING


@pytest.mark.parametrize("version", [0, 2])
def test_the_one_who_wrote_a_kept_transaction_is_fenced(version: int) -> None:
    transactions = with_open()
    keep(transactions)
    before = transactions.known()
    assert transactions.end(writer(), version=version) == ErrorCode.PRODUCER_FENCED
    assert transactions.add(writer(), A0, version=version) == ErrorCode.PRODUCER_FENCED
    assert transactions.add(writer(), A1, version=version) == ErrorCode.PRODUCER_FENCED
    assert transactions.verify(writer(), A0) == ErrorCode.PRODUCER_FENCED
    assert transactions.incarnate(writer(), keep=True) == ErrorCode.PRODUCER_FENCED
    assert transactions.init(writer()) == ErrorCode.PRODUCER_FENCED
    assert transactions.known() == before


def test_nothing_more_is_written_to_a_kept_transaction() -> None:
    transactions = with_open()
    client = keep(transactions).producer
    before = transactions.known()
    for partition in (A0, A1):
        assert transactions.add(client, partition) == ErrorCode.INVALID_TXN_STATE
        assert transactions.verify(client, partition) == ErrorCode.INVALID_TXN_STATE
    stranger = ProducerIdAndEpoch(ProducerId(6), 101)
    assert transactions.add(stranger, A0) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert transactions.end(stranger) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert transactions.known() == before


def test_every_one_who_keeps_it_fences_the_one_before() -> None:
    transactions = with_open()
    first = keep(transactions)
    second = keep(transactions)
    third = keep(transactions, expected=second.producer)
    assert [made.producer.producer_epoch for made in (first, second, third)] == [101, 102, 103]
    assert {made.ongoing for made in (first, second, third)} == {writer()}
    for made in (first, second):
        assert transactions.end(made.producer) == ErrorCode.PRODUCER_FENCED
        assert transactions.incarnate(made.producer, keep=True) == ErrorCode.PRODUCER_FENCED
    assert transactions.end(third.producer, is_commit=False) == (OLD_ID, 104)
    assert transactions.markers[0].producer_epoch == 101
    transactions.write_markers()
    assert transactions.find().producer == (OLD_ID, 104)


def test_who_does_not_want_to_keep_it_has_it_aborted() -> None:
    transactions = with_open()
    kept = keep(transactions)
    assert transactions.init() == ErrorCode.CONCURRENT_TRANSACTIONS
    (markers,) = transactions.markers
    assert (markers.producer_epoch, markers.is_commit) == (101, False)
    transactions.write_markers()
    assert transactions.state() is TransactionState.COMPLETE_ABORT
    assert transactions.end(kept.producer) == ErrorCode.INVALID_TXN_STATE
    assert transactions.init() == (OLD_ID, 103)
    assert transactions.end(kept.producer) == ErrorCode.PRODUCER_FENCED


def test_a_kept_transaction_ends_by_the_older_protocol_too() -> None:
    transactions = with_open()
    client = keep(transactions).producer
    assert transactions.end(client, version=0) == NO_PRODUCER
    assert transactions.markers[0].producer_epoch == 100
    transactions.write_markers()
    assert transactions.find().producer == client
    assert transactions.end(client, version=0) == NO_PRODUCER
    assert transactions.add(client, A0, version=0) is ErrorCode.NONE


# Time


def test_keeping_a_transaction_takes_no_promise_back() -> None:
    transactions = with_open(timeout_ms=NO_TIMEOUT_MS)
    keep(transactions)
    pass_a_year(transactions)
    assert transactions.state() is TransactionState.ONGOING


def test_a_kept_transaction_with_a_timeout_is_aborted_by_it() -> None:
    transactions = with_open(timeout_ms=TIMEOUT_MS)
    kept = keep(transactions)
    transactions.driver.advance(2 * TIMEOUT_MS)
    transactions.write_markers()
    assert transactions.state() is TransactionState.COMPLETE_ABORT
    assert transactions.end(kept.producer) == ErrorCode.INVALID_TXN_STATE


def test_who_keeps_a_transaction_may_take_its_timeout_away() -> None:
    transactions = with_open(timeout_ms=TIMEOUT_MS)
    kept = keep(transactions, two_phase=True)
    pass_a_year(transactions)
    assert transactions.end(kept.producer) == (OLD_ID, 102)


# Epochs that run out


def test_who_keeps_a_transaction_of_the_last_epoch_gets_another_id() -> None:
    transactions = with_open(LAST_EPOCH)
    made = keep(transactions)
    assert made == ((NEW_ID, 0), writer(LAST_EPOCH))
    assert transactions.end(made.producer) == (NEW_ID, 1)
    markers = transactions.markers[0]
    assert (markers.producer_id, markers.producer_epoch) == (OLD_ID, LAST_EPOCH + 1)
    transactions.write_markers()
    assert transactions.find().producer == (NEW_ID, 1)
    assert transactions.end(made.producer) == (NEW_ID, 1)
    # The one who wrote it had no say in how it ended, and is not told either.
    assert transactions.end(writer(LAST_EPOCH)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_who_ends_a_kept_transaction_at_its_last_epoch_gets_another_id() -> None:
    transactions = with_open(LAST_EPOCH - 1)
    made = keep(transactions)
    assert made.producer == (OLD_ID, LAST_EPOCH)
    assert transactions.end(made.producer) == (NEW_ID, 0)
    transactions.write_markers()
    assert transactions.find().producer == (NEW_ID, 0)
    assert transactions.end(made.producer) == (NEW_ID, 0)


def test_ids_may_run_out_twice_while_a_transaction_is_kept() -> None:
    transactions = with_open(LAST_EPOCH)
    keep(transactions)
    kept = transactions.find()
    transactions.put(
        Transaction.from_record(
            ID,
            _value(kept).replace(next_producer_epoch=LAST_EPOCH),
        )
    )
    client = ProducerIdAndEpoch(NEW_ID, LAST_EPOCH)
    after = ProducerIdAndEpoch(ProducerId(NEW_ID + 1), 0)
    assert transactions.end(client) == after
    transactions.write_markers()
    assert transactions.find().producer == after
    assert transactions.end(client) == after
    assert transactions.end(writer(LAST_EPOCH)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


# The log


def _value(transaction: Transaction) -> TransactionLogValue:
    value = transaction.to_record(2).value
    assert isinstance(value, TransactionLogValue)
    return value


def test_both_identities_are_in_the_record() -> None:
    transactions = with_open()
    keep(transactions)
    value = _value(transactions.find())
    assert (value.producer_id, value.producer_epoch) == (OLD_ID, 100)
    assert (value.next_producer_id, value.next_producer_epoch) == (OLD_ID, 101)
    assert value.transaction_timeout_ms == 2**31 - 1
    assert value.previous_producer_id == -1
    assert value.client_transaction_version == 2
    transactions.end(ProducerIdAndEpoch(OLD_ID, 101))
    value = _value(transactions.find())
    assert (value.producer_id, value.producer_epoch) == (OLD_ID, 101)
    assert (value.next_producer_id, value.next_producer_epoch) == (OLD_ID, 102)
    transactions.write_markers()
    value = _value(transactions.find())
    assert (value.producer_id, value.producer_epoch) == (OLD_ID, 102)
    assert (value.next_producer_id, value.next_producer_epoch) == (-1, -1)


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_coordinator_that_starts_again_knows_whom_a_transaction_is_kept_for(
    is_commit: bool,
) -> None:
    transactions = with_open()
    client = keep(transactions).producer
    transactions.driver.restart()
    assert transactions.end(writer(), is_commit=is_commit) == ErrorCode.PRODUCER_FENCED
    assert transactions.end(client, is_commit=is_commit) == (OLD_ID, 102)
    transactions.driver.actions.clear()
    transactions.driver.restart()
    (markers,) = transactions.markers
    assert (markers.producer_id, markers.producer_epoch) == (OLD_ID, 101)
    assert markers.is_commit == is_commit
    transactions.write_markers()
    transactions.driver.restart()
    assert transactions.end(client, is_commit=is_commit) == (OLD_ID, 102)
    assert transactions.find().producer == (OLD_ID, 102)
