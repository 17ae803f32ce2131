"""ListTransactions: selects transactional ids."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from dohle.core.ids import ProducerId
from dohle.txn.state import TransactionState
from dohle.txn.transaction import Transaction


@dataclass(frozen=True, slots=True)
class TransactionFilters:
    """All filters must match; one that is not given always does."""

    producer_ids: Collection[ProducerId] = frozenset()
    #: None if the request does not filter by state; empty if it names no existing state.
    states: Collection[TransactionState] | None = None
    #: Open for longer than this. As in Kafka, an id without a transaction passes.
    duration_ms: int = -1
    matches: Callable[[str], bool] | None = None

    def select(self, transaction: Transaction, now_ms: int) -> bool:
        """Tell whether a transactional id matches."""
        if self.producer_ids and transaction.producer_id not in self.producer_ids:
            return False
        if self.states is not None and transaction.state not in self.states:
            return False
        if self.duration_ms >= 0 and now_ms - transaction.start_ms <= self.duration_ms:
            return False
        return self.matches is None or self.matches(transaction.transactional_id)
