"""The states of a transactional id, with the numbers and names that Kafka gives them.

::

    Empty ──────────────► Ongoing ──► PrepareCommit ──► CompleteCommit
      ▲  ▲ InitProducerId    │ ▲                              │
      │  └───────────────────│─┼──── from both Complete* ◄────┤
      │                      ▼ └──── a new transaction ───────┤
      └─ (TV2) ─────────► PrepareAbort ──► CompleteAbort ─────┘

``Prepare*`` is the decision: it never changes, and ends in the ``Complete*`` of the same name when
every partition of the transaction has its marker. With TV2 (KIP-890) an abort is also possible
without an open transaction, since a producer may not know whether one was started for it.
"""

from __future__ import annotations

from enum import IntEnum


class TransactionState(IntEnum):
    """The status in a record of ``__transaction_state``."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    #: In Kafka these two exist in memory only, but are accepted as filters.
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def shown(self) -> str:
        """Its name as DescribeTransactions and ListTransactions show it."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_decided(self) -> bool:
        """Tell whether the outcome is decided but not yet in all partitions."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_complete(self) -> bool:
        """Tell whether a transaction is over."""
        return self in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)

    @property
    def is_commit(self) -> bool:
        """Tell whether the outcome is, or was, a commit."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)


#: The states by their names in ListTransactions filters.
STATES_BY_NAME = {state.shown: state for state in TransactionState}


def prepared(*, is_commit: bool) -> TransactionState:
    """Return the state of a decision."""
    return TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT


def completed(*, is_commit: bool) -> TransactionState:
    """Return the state after a decision is carried out."""
    return TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
