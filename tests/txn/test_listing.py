"""Which transactional ids ListTransactions shows."""

from __future__ import annotations

import pytest

from dohle.core.ids import ProducerId, TransactionalId
from dohle.core.steps import finish
from dohle.txn.listing import TransactionFilters
from dohle.txn.state import STATES_BY_NAME, TransactionState
from tests.txn.transactions import A0, FIRST_PRODUCER_ID, Transactions

IDLE = TransactionalId("idle")
OLD = TransactionalId("open-long")
YOUNG = TransactionalId("open-just-now")
DONE = TransactionalId("done")


@pytest.fixture
def transactions() -> Transactions:
    made = Transactions()
    for transactional_id in (IDLE, OLD, YOUNG, DONE):
        producer = made.begin(transactional_id)
        if transactional_id == YOUNG:
            made.clock.advance(1_000)
        if transactional_id != IDLE:
            made.add(producer, A0, transactional_id=transactional_id)
    made.end(producer, transactional_id=DONE)
    made.write_markers()
    return made


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (TransactionFilters(), {IDLE, OLD, YOUNG, DONE}),
        (TransactionFilters(states={TransactionState.ONGOING}), {OLD, YOUNG}),
        (TransactionFilters(states=()), set()),
        (TransactionFilters(producer_ids={ProducerId(FIRST_PRODUCER_ID + 1)}), {OLD}),
        (TransactionFilters(duration_ms=999), {IDLE, OLD}),
        (TransactionFilters(duration_ms=1_000), {IDLE}),
        (TransactionFilters(duration_ms=0, states={TransactionState.ONGOING}), {OLD}),
        (TransactionFilters(matches=lambda name: name.startswith("open")), {OLD, YOUNG}),
    ],
)
def test_all_filters_must_hold(
    transactions: Transactions, filters: TransactionFilters, expected: set[str]
) -> None:
    listed = finish(transactions.driver.machine.list(filters))
    assert {each.transactional_id for each in listed} == expected


def test_an_id_that_is_not_known_is_not_described(transactions: Transactions) -> None:
    assert transactions.driver.machine.describe("never used") is None


def test_states_have_kafkas_names() -> None:
    assert list(STATES_BY_NAME) == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]
