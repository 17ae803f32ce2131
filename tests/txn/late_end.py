"""The end of a transaction that comes late, for a test and for a deliberate defect."""

from __future__ import annotations

from dohle.core.errors import ErrorCode
from dohle.txn.state import TransactionState
from dohle.txn.transaction import ProducerIdAndEpoch
from tests.txn.transactions import A0, A1, Transactions


def begun(version: int) -> tuple[Transactions, ProducerIdAndEpoch]:
    transactions = Transactions()
    producer = transactions.begin()
    transactions.add(producer, A0, A1, version=version)
    return transactions, producer


def an_earlier_transaction_ends_late() -> None:
    transactions, first = begun(2)
    second = transactions.end(first)
    transactions.write_markers()
    transactions.add(second, A0)
    for is_commit in (True, False):
        assert transactions.end(first, is_commit=is_commit) == ErrorCode.PRODUCER_FENCED
    assert transactions.state() is TransactionState.ONGOING
    assert transactions.find().producer == second
