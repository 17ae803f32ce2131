"""Finds the batches of a fetch response that belong to aborted transactions.

For read_committed a broker sends, besides the records, the aborted transactions among them:
producer and first offset. Such a transaction covers its producer's transactional batches from that
offset up to the abort marker; the producer's next transaction may be committed.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from dohle.core.ids import ProducerId
from dohle.records.batch import Batch
from dohle.records.control import ControlRecordType, parse_control


class AbortedTransactions:
    """Follows the batches of one response, in order."""

    def __init__(self, transactions: Iterable[tuple[ProducerId, int]]) -> None:
        """Take pairs of a producer id and the first offset of its transaction."""
        self._to_come = [(first_offset, producer_id) for producer_id, first_offset in transactions]
        heapq.heapify(self._to_come)
        self._open: set[ProducerId] = set()

    def covers(self, batch: Batch) -> bool:
        """Tell whether the next batch belongs to an aborted transaction; its marker does not."""
        while self._to_come and self._to_come[0][0] <= batch.last_offset:
            self._open.add(heapq.heappop(self._to_come)[1])
        if not batch.is_transactional or batch.producer_id not in self._open:
            return False
        if not batch.is_control:
            return True
        for record in batch:
            if parse_control(record)[0] is ControlRecordType.ABORT:
                self._open.discard(batch.producer_id)
            break
        return False
