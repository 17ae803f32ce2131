"""A transaction from its first partition to its last marker, with a restart at any instant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import ProducerId
from dohle.protocol.messages.records.transaction import TransactionLogValue
from dohle.txn.state import TransactionState
from dohle.txn.transaction import NO_PRODUCER, Transaction
from tests.txn.late_end import an_earlier_transaction_ends_late, begun
from tests.txn.transactions import A0, A1, B0, ID, TIMEOUT_MS, Transactions

REFUSED = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "too few replicas are in sync")

both_protocols = pytest.mark.parametrize("version", [0, 2])
both_outcomes = pytest.mark.parametrize("is_commit", [True, False])


def complete(*, is_commit: bool) -> TransactionState:
    return TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT


@both_protocols
@both_outcomes
def test_a_transaction_is_complete_when_all_partitions_have_their_marker(
    version: int, is_commit: bool
) -> None:
    transactions, producer = begun(version)
    transactions.add(producer, B0, version=version)
    assert transactions.find().partitions == {A0, A1, B0}
    answer = transactions.end(producer, is_commit=is_commit, version=version)
    (markers,) = transactions.markers
    assert markers.partitions == {A0, A1, B0}
    assert markers.transaction_version == version
    transactions.report(markers, A0)
    transactions.report(markers, A0, B0)
    assert transactions.state().is_decided
    transactions.report(markers, A1)
    assert transactions.state() is complete(is_commit=is_commit)
    assert transactions.find().partitions == frozenset()
    after = transactions.find().producer
    assert answer == (after if version else NO_PRODUCER)
    assert after.producer_epoch == producer.producer_epoch + bool(version)


@both_protocols
def test_partitions_that_are_already_there_are_not_written_again(version: int) -> None:
    transactions, producer = begun(version)
    length = len(transactions.driver.log)
    assert transactions.add(producer, A1, version=version) == ErrorCode.NONE
    assert len(transactions.driver.log) == length


def test_only_partitions_of_the_transaction_are_verified() -> None:
    transactions, producer = begun(0)
    assert transactions.verify(producer, A0, B0) == {
        A0: ErrorCode.NONE,
        B0: ErrorCode.TRANSACTION_ABORTABLE,
    }


def test_the_start_of_a_transaction_is_when_its_first_partition_came() -> None:
    transactions, producer = begun(2)
    started = transactions.clock.now_ms()
    transactions.clock.advance(100)
    transactions.add(producer, B0)
    assert transactions.find().start_ms == started
    assert transactions.find().last_update_ms == started + 100


@both_protocols
def test_the_end_of_a_transaction_leaves_its_start(version: int) -> None:
    transactions, producer = begun(version)
    started = transactions.clock.now_ms()
    transactions.clock.advance(100)
    transactions.end(producer, version=version)
    assert transactions.find().start_ms == started
    transactions.clock.advance(100)
    transactions.write_markers()
    assert transactions.find().start_ms == started


def test_a_transaction_that_tv1_ends_has_tv1_markers_however_it_was_begun() -> None:
    """Their epoch is that of the records, which TV2's rule for markers would not let pass."""
    transactions, producer = begun(2)
    assert transactions.end(producer, version=0) == NO_PRODUCER
    (markers,) = transactions.markers
    assert (markers.producer_epoch, markers.transaction_version) == (producer.producer_epoch, 0)
    transactions.write_markers()
    assert transactions.find().producer == producer
    assert transactions.find().previous_producer is None


def test_with_tv2_each_transaction_has_its_own_epoch() -> None:
    transactions = Transactions()
    producer = transactions.begin()
    for epoch in range(1, 4):
        transactions.add(producer, A0)
        ended = producer
        producer = transactions.end(ended)
        transactions.write_markers()
        assert producer.producer_epoch == epoch
        assert transactions.end(ended) == producer


def test_h13_with_tv2_a_late_end_of_an_earlier_transaction_changes_nothing() -> None:
    an_earlier_transaction_ends_late()


@both_protocols
def test_who_comes_while_markers_are_written_is_told_to_try_again(version: int) -> None:
    transactions, producer = begun(version)
    transactions.end(producer, version=version)
    now = transactions.find().producer
    assert transactions.init() == ErrorCode.CONCURRENT_TRANSACTIONS
    assert transactions.add(now, B0, version=version) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert transactions.verify(now, A0) == ErrorCode.CONCURRENT_TRANSACTIONS
    for is_commit in (True, False):
        answer = transactions.end(now, is_commit=is_commit, version=version)
        assert answer == ErrorCode.CONCURRENT_TRANSACTIONS


@both_protocols
def test_a_new_incarnation_waits_for_the_abort_of_the_old_ones_transaction(version: int) -> None:
    transactions, old = begun(version)
    assert transactions.init() == ErrorCode.CONCURRENT_TRANSACTIONS
    assert transactions.init() == ErrorCode.CONCURRENT_TRANSACTIONS
    (markers,) = transactions.markers
    assert (markers.is_commit, markers.producer_epoch) == (False, old.producer_epoch + 1)
    transactions.write_markers()
    assert transactions.init() == (old.producer_id, old.producer_epoch + 2)
    assert transactions.end(old, version=version) == ErrorCode.PRODUCER_FENCED


def test_a_report_of_a_former_decision_does_not_count_for_the_next() -> None:
    # With TV1 both transactions have the same producer and epoch.
    transactions, producer = begun(0)
    transactions.end(producer, version=0)
    (first,) = transactions.markers
    transactions.write_markers()
    transactions.add(producer, A0, A1, version=0)
    transactions.end(producer, version=0)
    transactions.report(first, A0, A1)
    assert transactions.state() is TransactionState.PREPARE_COMMIT
    transactions.write_markers()
    assert transactions.state() is TransactionState.COMPLETE_COMMIT


def restart_before_the_decision(transactions: Transactions) -> None:
    transactions.driver.restart()


def restart_after_the_decision(transactions: Transactions) -> None:
    transactions.driver.actions.clear()
    transactions.driver.restart()


def restart_between_the_markers(transactions: Transactions) -> None:
    (markers,) = transactions.markers
    transactions.report(markers, A0)
    transactions.driver.actions.clear()
    transactions.driver.restart()


def restart_before_it_is_complete(transactions: Transactions) -> None:
    (markers,) = transactions.markers
    transactions.driver.append_error = REFUSED
    transactions.report(markers, A0, A1)
    transactions.driver.append_error = None
    transactions.driver.actions.clear()
    transactions.driver.restart()


@both_protocols
@both_outcomes
@pytest.mark.parametrize(
    "restart",
    [
        restart_after_the_decision,
        restart_between_the_markers,
        restart_before_it_is_complete,
    ],
)
def test_after_a_restart_the_decided_outcome_is_carried_out(
    restart: Callable[[Transactions], None], is_commit: bool, version: int
) -> None:
    transactions, producer = begun(version)
    transactions.end(producer, is_commit=is_commit, version=version)
    (asked,) = transactions.markers
    restart(transactions)
    assert transactions.markers == [asked]
    transactions.write_markers()
    assert transactions.state() is complete(is_commit=is_commit)
    transactions.driver.restart()
    assert not transactions.markers
    assert transactions.state() is complete(is_commit=is_commit)


@both_protocols
@both_outcomes
def test_a_transaction_that_was_open_at_a_restart_can_still_be_decided(
    is_commit: bool, version: int
) -> None:
    transactions, producer = begun(version)
    restart_before_the_decision(transactions)
    assert not transactions.markers
    transactions.end(producer, is_commit=is_commit, version=version)
    transactions.write_markers()
    assert transactions.state() is complete(is_commit=is_commit)


def test_a_decision_over_no_partitions_that_a_log_has_is_completed() -> None:
    transactions = Transactions()
    transactions.put(
        Transaction(
            transactional_id=ID,
            producer_id=ProducerId(7),
            producer_epoch=1,
            state=TransactionState.PREPARE_ABORT,
            timeout_ms=TIMEOUT_MS,
            last_update_ms=transactions.clock.now_ms(),
            start_ms=transactions.clock.now_ms(),
            client_transaction_version=2,
        )
    )
    transactions.driver.append_error = REFUSED
    transactions.driver.restart()
    transactions.driver.advance(100)
    assert transactions.state() is TransactionState.PREPARE_ABORT
    transactions.driver.append_error = None
    transactions.driver.advance(1_000)
    assert transactions.state() is TransactionState.COMPLETE_ABORT


def test_a_transaction_without_partitions_is_complete_with_its_decision() -> None:
    transactions = Transactions()
    producer = transactions.begin()
    transactions.add(producer)
    assert transactions.state() is TransactionState.ONGOING
    transactions.end(producer)
    assert transactions.statuses()[-2:] == [
        TransactionState.PREPARE_COMMIT,
        TransactionState.COMPLETE_COMMIT,
    ]
    assert not transactions.markers


@both_protocols
def test_what_the_log_refuses_has_not_happened(version: int) -> None:
    transactions, producer = begun(version)
    before = transactions.find()
    transactions.driver.append_error = REFUSED
    unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert transactions.init() == unavailable
    assert transactions.add(producer, B0, version=version) == unavailable
    assert transactions.end(producer, version=version) == unavailable
    assert transactions.find() == before
    assert not transactions.markers
    transactions.driver.append_error = None
    transactions.end(producer, version=version)
    assert len(transactions.markers) == 1


def test_a_completion_that_the_log_refuses_is_tried_again() -> None:
    transactions, producer = begun(2)
    transactions.end(producer)
    transactions.driver.append_error = REFUSED
    transactions.write_markers()
    transactions.driver.advance(5_000)
    assert transactions.state() is TransactionState.PREPARE_COMMIT
    transactions.driver.append_error = None
    transactions.driver.advance(1_000)
    assert transactions.state() is TransactionState.COMPLETE_COMMIT


def test_decisions_have_different_times_though_the_clock_stands() -> None:
    transactions, producer = begun(0)
    times = []
    for _ in range(3):
        transactions.add(producer, A0, version=0)
        transactions.end(producer, version=0)
        times.append(transactions.find().last_update_ms)
        transactions.write_markers()
    assert times == sorted(set(times))


@pytest.mark.parametrize(("level", "record_version"), [(0, 0), (1, 1), (2, 1)])
def test_the_version_of_records_is_the_clusters(level: int, record_version: int) -> None:
    transactions = Transactions(transaction_version=level)
    producer = transactions.begin()
    transactions.add(producer, A0, version=0)
    transactions.end(producer, version=0)
    transactions.write_markers()
    records = [stored.record for stored in transactions.driver.log if stored.record is not None]
    assert {record.value_version for record in records} == {record_version}
    assert transactions.statuses() == [
        TransactionState.EMPTY,
        TransactionState.ONGOING,
        TransactionState.PREPARE_COMMIT,
        TransactionState.COMPLETE_COMMIT,
    ]
    values = [record.value for record in records]
    partitions = [
        value.transaction_partitions for value in values if isinstance(value, TransactionLogValue)
    ]
    assert (partitions[0], partitions[-1]) == (None, ())


def test_tv2_is_refused_where_records_cannot_tell_of_it() -> None:
    transactions = Transactions(transaction_version=0)
    producer = transactions.begin()
    assert transactions.add(producer, A0, version=2) == ErrorCode.UNSUPPORTED_VERSION
    transactions.add(producer, A0, version=0)
    # A producer of the old protocol may write with a new version of Produce, which asks like this.
    assert transactions.add(producer, A0, version=2) == ErrorCode.NONE
    assert transactions.end(producer, version=2) == ErrorCode.UNSUPPORTED_VERSION
    assert transactions.end(producer, version=0) == NO_PRODUCER


def test_a_decision_stands_though_the_feature_is_lowered_meanwhile() -> None:
    transactions, producer = begun(2)
    transactions.end(producer)
    transactions.settings = transactions.settings._replace(transaction_version=0)
    transactions.driver.actions.clear()
    transactions.driver.restart()
    transactions.write_markers()
    after = transactions.find()
    assert after.state is TransactionState.COMPLETE_COMMIT
    assert after == replace(after, producer_epoch=producer.producer_epoch + 1)
