"""What becomes of transactions (compaction 8)."""

from __future__ import annotations

from dohle.core.ids import ProducerId
from dohle.records.control import ControlRecordType
from dohle.storage.cleaning.transactions import TransactionTracker
from dohle.storage.segment.transaction_index import AbortedTransaction

ABORT, COMMIT = ControlRecordType.ABORT, ControlRecordType.COMMIT


def aborted(pid: int, first: int, last: int) -> AbortedTransaction:
    return AbortedTransaction(ProducerId(pid), first, last, last)


def test_h27_aborted_data_goes_and_its_marker_and_entry_stay() -> None:
    tracker = TransactionTracker()
    entry = aborted(1, 5, 9)
    # Each segment that it reaches into tells of it.
    tracker.add_aborted([entry])
    tracker.add_aborted([entry])
    assert not tracker.may_discard_data(1, 4, True)
    assert not tracker.may_discard_control(COMMIT, 1, 4)
    assert tracker.may_discard_data(1, 6, True)
    assert not tracker.may_discard_data(2, 7, True)
    assert not tracker.may_discard_control(ABORT, 1, 9)
    assert tracker.kept_entries == [entry]
    assert not tracker.may_discard_data(1, 10, True)


def test_an_abort_marker_without_data_may_go_with_its_entry() -> None:
    tracker = TransactionTracker()
    tracker.add_aborted([aborted(1, 5, 9)])
    assert tracker.may_discard_control(ABORT, 1, 9)
    assert tracker.may_discard_control(ABORT, 7, 10)
    assert tracker.kept_entries == []


def test_a_commit_marker_may_go_if_no_data_was_seen_since_the_last() -> None:
    tracker = TransactionTracker()
    assert not tracker.may_discard_data(1, 0, True)
    assert not tracker.may_discard_control(COMMIT, 1, 1)
    assert tracker.may_discard_control(COMMIT, 1, 2)


def test_other_control_records_stay_and_emptied_ones_may_go() -> None:
    tracker = TransactionTracker()
    assert not tracker.may_discard_control(ControlRecordType.LEADER_CHANGE, -1, 0)
    assert not tracker.may_discard_control(ControlRecordType.UNKNOWN, -1, 1)
    assert tracker.may_discard_control(None, 1, 2)


def test_data_outside_of_transactions_stays_whatever_its_producer() -> None:
    tracker = TransactionTracker()
    tracker.add_aborted([aborted(1, 0, 9)])
    assert not tracker.may_discard_data(1, 3, False)
