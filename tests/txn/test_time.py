"""Transactions that take too long, and transactional ids that nobody uses."""

from __future__ import annotations

import pytest

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TransactionalId
from dohle.txn.state import TransactionState
from dohle.txn.transaction import NO_TIMEOUT_MS
from tests.txn.transactions import A0, A1, TIMEOUT_MS, Transactions

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
INTERVAL_MS = 10_000
REFUSED = KafkaError(ErrorCode.NOT_COORDINATOR, "the disk is gone")


@pytest.mark.parametrize(("level", "marker_version"), [(0, 0), (1, 0), (2, 2)])
def test_a_transaction_that_takes_too_long_is_aborted(level: int, marker_version: int) -> None:
    transactions = Transactions(transaction_version=level)
    producer = transactions.begin()
    transactions.add(producer, A0, version=0)
    transactions.driver.advance(TIMEOUT_MS)
    assert transactions.state() is TransactionState.ONGOING
    transactions.driver.advance(INTERVAL_MS)
    assert transactions.state() is TransactionState.PREPARE_ABORT
    (markers,) = transactions.markers
    assert not markers.is_commit
    assert markers.producer_epoch == producer.producer_epoch + 1
    assert markers.transaction_version == marker_version
    transactions.write_markers()
    assert transactions.state() is TransactionState.COMPLETE_ABORT
    assert transactions.add(producer, A0, version=0) == ErrorCode.PRODUCER_FENCED
    assert transactions.end(producer, version=0) == ErrorCode.PRODUCER_FENCED


def test_with_tv2_the_abort_of_a_timed_out_transaction_is_answered_as_done() -> None:
    transactions = Transactions()
    producer = transactions.begin()
    transactions.add(producer, A0)
    transactions.driver.advance(TIMEOUT_MS + INTERVAL_MS)
    transactions.write_markers()
    assert transactions.end(producer) == ErrorCode.INVALID_TXN_STATE
    assert transactions.end(producer, is_commit=False) == (producer.producer_id, 1)


def test_many_transactions_may_time_out_at_once() -> None:
    transactions = Transactions()
    ids = [TransactionalId(f"t{number}") for number in range(20)]
    for transactional_id in ids:
        producer = transactions.begin(transactional_id)
        transactions.add(producer, A0, A1, transactional_id=transactional_id)
    transactions.driver.advance(TIMEOUT_MS + INTERVAL_MS)
    assert {markers.transactional_id for markers in transactions.markers} == set(ids)
    transactions.write_markers()
    states = {transactions.find(transactional_id).state for transactional_id in ids}
    assert states == {TransactionState.COMPLETE_ABORT}


def test_the_timeout_counts_from_the_start_also_after_a_restart() -> None:
    transactions = Transactions()
    producer = transactions.begin()
    transactions.add(producer, A0)
    transactions.driver.advance(TIMEOUT_MS - INTERVAL_MS)
    transactions.driver.restart()
    transactions.driver.advance(INTERVAL_MS)
    assert transactions.state() is TransactionState.ONGOING
    transactions.driver.advance(INTERVAL_MS)
    assert transactions.state() is TransactionState.PREPARE_ABORT


def test_an_abort_that_the_log_refuses_is_tried_again() -> None:
    transactions = Transactions()
    producer = transactions.begin()
    transactions.add(producer, A0)
    transactions.driver.append_error = REFUSED
    transactions.driver.advance(TIMEOUT_MS + 3 * INTERVAL_MS)
    assert transactions.state() is TransactionState.ONGOING
    assert not transactions.markers
    transactions.driver.append_error = None
    transactions.driver.advance(INTERVAL_MS)
    assert transactions.state() is TransactionState.PREPARE_ABORT
    assert transactions.find().producer_epoch == producer.producer_epoch + 1


def test_the_longest_timeout_stands_for_none() -> None:
    transactions = Transactions(transaction_max_timeout_ms=NO_TIMEOUT_MS)
    producer = transactions.init(timeout_ms=NO_TIMEOUT_MS)
    transactions.add(producer, A0)
    transactions.driver.advance(8 * DAY_MS)
    assert transactions.state() is TransactionState.ONGOING


def test_the_interval_of_the_checks_can_be_altered() -> None:
    transactions = Transactions()
    producer = transactions.begin()
    transactions.add(producer, A0)
    transactions.settings = transactions.settings._replace(
        transaction_abort_timed_out_transaction_cleanup_interval_ms=100
    )
    transactions.driver.advance(TIMEOUT_MS + 101)
    assert transactions.state() is TransactionState.PREPARE_ABORT


def test_an_id_that_nobody_uses_is_forgotten_after_a_week() -> None:
    transactions = Transactions()
    producer = transactions.begin()
    transactions.driver.advance(7 * DAY_MS - HOUR_MS)
    assert transactions.known()
    transactions.driver.advance(2 * HOUR_MS)
    assert transactions.known() == {}
    assert transactions.add(producer, A0) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    transactions.driver.restart()
    assert transactions.known() == {}
    assert transactions.init(expected=producer) == (producer.producer_id + 1, 0)


def test_an_id_that_is_used_is_not_forgotten() -> None:
    transactions = Transactions()
    producer = transactions.begin()
    for _ in range(5):
        transactions.driver.advance(2 * DAY_MS)
        transactions.add(producer, A0)
        producer = transactions.end(producer)
        transactions.write_markers()
    assert transactions.known()


def test_a_decision_that_is_not_carried_out_is_never_forgotten() -> None:
    transactions = Transactions()
    producer = transactions.begin()
    transactions.add(producer, A0)
    transactions.end(producer)
    transactions.driver.advance(8 * DAY_MS)
    assert transactions.state() is TransactionState.PREPARE_COMMIT
    transactions.write_markers()
    assert transactions.state() is TransactionState.COMPLETE_COMMIT


@pytest.mark.parametrize("is_refused", [False, True])
def test_more_ids_than_fit_one_step_are_forgotten_in_several(is_refused: bool) -> None:
    transactions = Transactions()
    for number in range(2_500):
        transactions.begin(TransactionalId(f"t{number}"))
    transactions.driver.append_error = REFUSED if is_refused else None
    transactions.driver.advance(7 * DAY_MS + HOUR_MS)
    assert len(transactions.known()) == (2_500 if is_refused else 0)
    transactions.driver.append_error = None
    transactions.driver.advance(HOUR_MS)
    assert transactions.known() == {}


def test_a_shard_without_open_transactions_has_nothing_to_check() -> None:
    transactions = Transactions()
    producer = transactions.begin()
    start = transactions.clock.monotonic_ms()
    machine = transactions.driver.machine
    assert machine.next_deadline_ms() == start + HOUR_MS
    transactions.add(producer, A0)
    assert machine.next_deadline_ms() == start + INTERVAL_MS
    transactions.end(producer)
    transactions.driver.advance(INTERVAL_MS)
    assert machine.next_deadline_ms() == start + HOUR_MS
