"""What the transaction coordinator asks its driver to do."""

from __future__ import annotations

from dataclasses import dataclass

from dohle.core.ids import ProducerId, TopicPartition, TransactionalId


@dataclass(frozen=True, slots=True)
class WriteMarkers:
    """Write the end of a transaction to all its partitions, however long that takes.

    Carried out when the decision is committed. ``markers_written`` is given it back with every
    partition that has its marker, or is no more. The coordinator epoch that a marker also carries
    is the leader epoch of the partition that the machine runs on.
    """

    transactional_id: TransactionalId
    producer_id: ProducerId
    producer_epoch: int
    is_commit: bool
    partitions: frozenset[TopicPartition]
    #: 0 or 2: by which rule the partition's leader compares the epoch (KIP-1228).
    transaction_version: int
    #: Tells the decision from others: with TV1 they may have the same producer and epoch.
    decided_ms: int
