"""What becomes of transactions while a log is cleaned. Pure.

A tracker sees the batches of one pass in order, and is told before of the aborted transactions that
the transaction indexes list. Data of an aborted transaction goes at once. A marker may go when no
data of its transaction was seen in this pass, and then only after a horizon: who has read the data
before it went must still find the marker. What stays of the transaction index are the entries of
those abort markers whose data was seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from dohle.records.control import ControlRecordType
from dohle.storage.segment.transaction_index import AbortedTransaction


class TransactionTracker:
    """The transactions that a pass is within."""

    def __init__(self) -> None:
        # By first offset; the last offset tells those of one producer apart.
        self._coming: list[tuple[int, int, AbortedTransaction]] = []
        self._aborted: dict[int, AbortedTransaction] = {}
        self._aborted_seen: set[int] = set()
        self._committed: set[int] = set()
        #: The entries of the transaction index that stay, in the order of their markers.
        self.kept_entries: list[AbortedTransaction] = []

    def add_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Take in the aborted transactions with data in what is read next, known ones or not."""
        for one in transactions:
            heappush(self._coming, (one.first_offset, one.last_offset, one))

    def may_discard_data(self, producer_id: int, last_offset: int, is_transactional: bool) -> bool:
        """Take in a data batch; tell whether its records were aborted."""
        self._begin_aborted(last_offset)
        if not is_transactional:
            return False
        if producer_id in self._aborted:
            self._aborted_seen.add(producer_id)
            return True
        self._committed.add(producer_id)
        return False

    def may_discard_control(
        self, type: ControlRecordType | None, producer_id: int, last_offset: int
    ) -> bool:
        """Take in a control batch; tell whether it is of no more use to anybody.

        The type is None if its record has been removed before.
        """
        self._begin_aborted(last_offset)
        match type:
            case None:
                return True
            case ControlRecordType.ABORT:
                aborted = self._aborted.pop(producer_id, None)
                if aborted is None or producer_id not in self._aborted_seen:
                    return True
                self._aborted_seen.remove(producer_id)
                self.kept_entries.append(aborted)
                return False
            case ControlRecordType.COMMIT:
                was_seen = producer_id in self._committed
                self._committed.discard(producer_id)
                return not was_seen
            case _:
                return False

    def _begin_aborted(self, last_offset: int) -> None:
        coming = self._coming
        while coming and coming[0][0] <= last_offset:
            _, _, aborted = heappop(coming)
            self._aborted.setdefault(aborted.producer_id, aborted)
