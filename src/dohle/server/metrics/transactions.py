"""Transactions: how many there are in each state, and what they hold up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from dohle.metrics.exposition import family, labels, single
from dohle.server.metrics.sources import Sources
from dohle.txn.state import TransactionState

_SHOWN = (
    TransactionState.EMPTY,
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
)


def collect_transactions(sources: Sources) -> Iterator[str]:
    """Tell of the transactional ids that this broker coordinates, and of its partitions."""
    broker = sources.broker
    if broker is None:
        return
    states: Counter[TransactionState] = Counter()
    oldest_ms: int | None = None
    for _, machine in broker.transactions.active():
        for transaction in machine.all():
            states[transaction.state] += 1
            if transaction.state is TransactionState.ONGOING and (
                oldest_ms is None or transaction.start_ms < oldest_ms
            ):
                oldest_ms = transaction.start_ms
            yield ""
    yield from family(
        "dohle_transactions",
        "gauge",
        "Transactional ids by the state of their newest transaction.",
        [(labels({"state": state.shown}), states[state]) for state in _SHOWN],
    )
    age_ms = 0 if oldest_ms is None else max(0, broker.clock.now_ms() - oldest_ms)
    yield from single(
        "dohle_transaction_oldest_open_seconds",
        "gauge",
        "For how long the oldest open transaction has been open; 0 if none is.",
        age_ms / 1000,
    )
    undecided = 0
    for partition in list(broker.partitions):
        undecided += partition.log.producer_state.first_unstable_offset is not None
        yield ""
    yield from single(
        "dohle_partitions_with_open_transactions",
        "gauge",
        "Partitions of which readers of committed records cannot see the end yet.",
        undecided,
    )
