"""Every request in every state: what is answered, and what becomes of the transactional id.

The words of the tables are those of ``OUTCOMES`` and ``UNCHANGED``; a number is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import ProducerId
from dohle.txn.state import TransactionState
from dohle.txn.transaction import NO_PRODUCER, ProducerIdAndEpoch, Transaction
from tests.txn.transactions import A0, A1, FIRST_PRODUCER_ID, ID, TIMEOUT_MS, Transactions

STATES = (
    None,
    TransactionState.EMPTY,
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
)
CURRENT = ProducerIdAndEpoch(ProducerId(7), 5)
PREVIOUS = ProducerIdAndEpoch(ProducerId(7), 4)
OLDER = ProducerIdAndEpoch(ProducerId(7), 3)
STRANGER = ProducerIdAndEpoch(ProducerId(6), 5)

BUMPED = ProducerIdAndEpoch(ProducerId(7), 6)
NEW = ProducerIdAndEpoch(ProducerId(FIRST_PRODUCER_ID), 0)

Request = Callable[[Transactions], Any]


class Outcome(NamedTuple):
    """What is answered, and how it is then."""

    answer: object
    state: TransactionState
    producer: ProducerIdAndEpoch
    #: The markers that are asked for: commits or aborts.
    markers: tuple[bool, ...] = ()


OUTCOMES = {
    # InitProducerId: a new producer id, the next epoch, or the one that it has; or the open
    # transaction is aborted first.
    "new": Outcome(NEW, TransactionState.EMPTY, NEW),
    "bump": Outcome(BUMPED, TransactionState.EMPTY, BUMPED),
    "same": Outcome(CURRENT, TransactionState.EMPTY, CURRENT),
    "51!": Outcome(
        ErrorCode.CONCURRENT_TRANSACTIONS, TransactionState.PREPARE_ABORT, BUMPED, (False,)
    ),
    # AddPartitionsToTxn
    "ongoing": Outcome(ErrorCode.NONE, TransactionState.ONGOING, CURRENT),
    # EndTxn of TV1 and of TV2, and its abort of nothing
    "commit1": Outcome(NO_PRODUCER, TransactionState.PREPARE_COMMIT, CURRENT, (True,)),
    "abort1": Outcome(NO_PRODUCER, TransactionState.PREPARE_ABORT, CURRENT, (False,)),
    "commit2": Outcome(BUMPED, TransactionState.PREPARE_COMMIT, BUMPED, (True,)),
    "abort2": Outcome(BUMPED, TransactionState.PREPARE_ABORT, BUMPED, (False,)),
    "aborted": Outcome(BUMPED, TransactionState.COMPLETE_ABORT, BUMPED),
}
#: Answers to what leaves everything as it is: a verification, and ends that are told again.
UNCHANGED = {"ok": ErrorCode.NONE, "again1": NO_PRODUCER, "again2": CURRENT}


def init(expected: ProducerIdAndEpoch | None) -> Request:
    return lambda transactions: transactions.init(expected)


def add(producer: ProducerIdAndEpoch, version: int) -> Request:
    return lambda transactions: transactions.add(producer, A0, A1, version=version)


def verify(producer: ProducerIdAndEpoch) -> Request:
    def ask(transactions: Transactions) -> Any:
        answer = transactions.verify(producer, A0)
        return answer[A0] if isinstance(answer, dict) else answer

    return ask


def commit(producer: ProducerIdAndEpoch, version: int) -> Request:
    return lambda transactions: transactions.end(producer, is_commit=True, version=version)


def abort(producer: ProducerIdAndEpoch, version: int) -> Request:
    return lambda transactions: transactions.end(producer, is_commit=False, version=version)


#: In the order of the states: unknown, Empty, Ongoing, PrepareCommit, PrepareAbort,
#: CompleteCommit, CompleteAbort. The transaction before was ended with TV2.
TABLE: dict[str, tuple[Request, str]] = {
    "init": (init(None), "new bump 51! 51 51 bump bump"),
    "init as the newest": (init(CURRENT), "new bump 51! 51 51 bump bump"),
    "init as the one before": (init(PREVIOUS), "new 90 90 51 51 same same"),
    "init as an older one": (init(OLDER), "new 90 90 51 51 90 90"),
    "init as a stranger": (init(STRANGER), "new 90 90 51 51 90 90"),
    "add, TV1": (add(CURRENT, 0), "49 ongoing ongoing 51 51 ongoing ongoing"),
    "add, TV2": (add(CURRENT, 2), "49 ongoing ongoing 51 51 ongoing ongoing"),
    "add as the one before": (add(PREVIOUS, 2), "49 90 90 51 51 90 90"),
    "add as a stranger": (add(STRANGER, 2), "49 49 49 51 51 49 49"),
    "verify": (verify(CURRENT), "49 120 ok 51 51 120 120"),
    "verify as the one before": (verify(PREVIOUS), "49 90 90 90 90 90 90"),
    "verify as a stranger": (verify(STRANGER), "49 49 49 49 49 49 49"),
    "commit, TV2": (commit(CURRENT, 2), "49 48 commit2 51 51 48 48"),
    "abort, TV2": (abort(CURRENT, 2), "49 aborted abort2 51 51 aborted aborted"),
    "commit as the one before, TV2": (commit(PREVIOUS, 2), "49 90 90 51 51 again2 48"),
    "abort as the one before, TV2": (abort(PREVIOUS, 2), "49 90 90 51 51 48 again2"),
    "commit as an older one, TV2": (commit(OLDER, 2), "49 90 90 51 51 90 90"),
    "abort as an older one, TV2": (abort(OLDER, 2), "49 90 90 51 51 90 90"),
    "commit as a stranger, TV2": (commit(STRANGER, 2), "49 49 49 51 51 49 49"),
    "commit, TV1": (commit(CURRENT, 0), "49 48 commit1 51 51 again1 48"),
    "abort, TV1": (abort(CURRENT, 0), "49 48 abort1 51 51 48 again1"),
    "commit as the one before, TV1": (commit(PREVIOUS, 0), "49 90 90 90 90 90 90"),
    "abort as a stranger, TV1": (abort(STRANGER, 0), "49 49 49 49 49 49 49"),
}
#: Where it makes a difference that the transaction before was ended with TV1: no epoch was bumped.
TABLE_AFTER_TV1: dict[str, tuple[Request, str]] = {
    "init as the one before": (init(PREVIOUS), "new 90 90 51 51 90 90"),
    "commit as the one before, TV2": (commit(PREVIOUS, 2), "49 90 90 51 51 90 90"),
    "abort as the one before, TV2": (abort(PREVIOUS, 2), "49 90 90 51 51 90 90"),
}


def in_state(state: TransactionState | None, client_transaction_version: int) -> Transactions:
    transactions = Transactions()
    if state is not None:
        is_open = state is TransactionState.ONGOING or state.is_decided
        transactions.put(
            Transaction(
                transactional_id=ID,
                producer_id=CURRENT.producer_id,
                producer_epoch=CURRENT.producer_epoch,
                state=state,
                timeout_ms=TIMEOUT_MS,
                last_update_ms=transactions.clock.now_ms(),
                start_ms=transactions.clock.now_ms() if state else -1,
                partitions=frozenset({A0} if is_open else ()),
                client_transaction_version=client_transaction_version,
            )
        )
    return transactions


CASES = [
    pytest.param(
        request, state, version, outcome, id=f"{name} in {state and state.shown} after TV{version}"
    )
    for version, table in ((2, TABLE), (0, TABLE | TABLE_AFTER_TV1))
    for name, (request, outcomes) in table.items()
    for state, outcome in zip(STATES, outcomes.split(), strict=True)
]


@pytest.mark.parametrize(("request_", "state", "version", "outcome"), CASES)
def test_a_request_in_a_state_has_the_outcome_of_the_table(
    request_: Request, state: TransactionState | None, version: int, outcome: str
) -> None:
    transactions = in_state(state, version)
    before = transactions.driver.machine.describe(ID)
    answer = request_(transactions)
    after = transactions.driver.machine.describe(ID)
    markers = tuple(markers.is_commit for markers in transactions.markers)
    if outcome in OUTCOMES:
        assert after is not None
        assert Outcome(answer, after.state, after.producer, markers) == OUTCOMES[outcome]
    else:
        assert answer == (UNCHANGED[outcome] if outcome in UNCHANGED else ErrorCode(int(outcome)))
        assert after == before
        assert not markers


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("state", STATES)
def test_what_is_in_the_log_is_what_was_known(state: TransactionState | None, version: int) -> None:
    transactions = in_state(state, version)
    before = transactions.known()
    transactions.driver.restart()
    assert transactions.known() == before


def test_a_record_of_either_version_tells_what_it_can() -> None:
    full = Transaction(
        transactional_id=ID,
        producer_id=ProducerId(7),
        producer_epoch=32_767,
        state=TransactionState.PREPARE_COMMIT,
        timeout_ms=TIMEOUT_MS,
        last_update_ms=12,
        start_ms=11,
        partitions=frozenset({A0, A1}),
        previous_producer_id=ProducerId(6),
        next_producer_id=ProducerId(8),
        client_transaction_version=2,
    )
    transactions = Transactions(transaction_version=1)
    transactions.put(full)
    assert transactions.find() == full
    transactions = Transactions(transaction_version=0)
    transactions.put(full)
    assert transactions.find() == replace(
        full,
        previous_producer_id=ProducerId(-1),
        next_producer_id=ProducerId(-1),
        client_transaction_version=0,
    )
