"""Ids and offsets as distinct types, so that a partition is never mistaken for a broker.

They cost nothing at run time. Kafka's schemas name five entity types; the codec annotates fields
with them, and the rest of the code uses the same names.
"""

from __future__ import annotations

from typing import NamedTuple, NewType

BrokerId = NewType("BrokerId", int)
GroupId = NewType("GroupId", str)
ProducerId = NewType("ProducerId", int)
TopicName = NewType("TopicName", str)
TransactionalId = NewType("TransactionalId", str)

#: Sixteen bytes, big-endian, as on the wire; text form in :mod:`dohle.core.uuid`.
Uuid = NewType("Uuid", bytes)

NO_PRODUCER_ID = ProducerId(-1)


class TopicPartition(NamedTuple):
    """One partition of one topic: the unit of order, of storage and of replication."""

    topic: TopicName
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
