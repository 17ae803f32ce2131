"""What an admin client returns about groups and transactions, as values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dohle.core.ids import BrokerId, GroupId, ProducerId, TopicName, TopicPartition, TransactionalId

#: The timeout of transactions that have none.
_NO_TIMEOUT_MS = 2**31 - 1


class GroupType(StrEnum):
    """The protocol of a group, by its name in requests."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in a list; state and type are None if the broker is too old to send them."""

    group_id: GroupId
    protocol_type: str
    state: str | None
    type: str | None
    coordinator_id: BrokerId


@dataclass(frozen=True, slots=True)
class GroupMemberDescription:
    """A member of a group and its assignment."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    #: Its target assignment, if that differs from the current one (KIP-848).
    target_assignment: tuple[TopicPartition, ...] | None = None
    subscribed_topics: tuple[TopicName, ...] = ()
    subscribed_topic_regex: str | None = None
    member_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group, its members and its coordinator."""

    group_id: GroupId
    type: GroupType
    state: str
    protocol_type: str
    assignor: str
    coordinator_id: BrokerId
    members: tuple[GroupMemberDescription, ...]
    group_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id in a list."""

    transactional_id: TransactionalId
    producer_id: ProducerId
    state: str
    coordinator_id: BrokerId


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id with producer and transaction; the start is -1 if none is open."""

    transactional_id: TransactionalId
    coordinator_id: BrokerId
    state: str
    producer_id: ProducerId
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int
    partitions: tuple[TopicPartition, ...]

    @property
    def is_two_phase(self) -> bool:
        """Whether its transactions have no timeout (KIP-939)."""
        return self.timeout_ms == _NO_TIMEOUT_MS


@dataclass(frozen=True, slots=True)
class ProducerDescription:
    """A partition leader's knowledge of a producer; the start offset is -1 without transaction."""

    producer_id: ProducerId
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int
