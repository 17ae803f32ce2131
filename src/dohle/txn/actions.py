"""What the transaction coordinator asks its driver to do."""

from __future__ import annotations

from dataclasses import dataclass

from dohle.core.ids import ProducerId, TopicPartition, TransactionalId


@dataclass(frozen=True, slots=True)
class WriteMarkers:
    """Write the end of a transaction to all its partitions, however long that takes.

    Carried out once the decision is committed. The driver passes it to ``markers_written`` with
    every partition that has its marker, or no longer exists. The coordinator epoch that a marker
    also carries is the leader epoch of the coordinator's own partition.
    """

    transactional_id: TransactionalId
    producer_id: ProducerId
    producer_epoch: int
    is_commit: bool
    partitions: frozenset[TopicPartition]
    #: 0 or 2: the rule by which the partition's leader compares the epoch (KIP-1228).
    transaction_version: int
    #: Distinguishes the decision from others: with TV1 they may have the same producer and epoch.
    decided_ms: int
