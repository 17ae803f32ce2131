"""Asking the transaction coordinator before a partition takes a transaction's first records.

A partition must not hold records of a transaction that its coordinator knows nothing of: nobody
would ever write the marker, and readers of committed records would wait for ever (KIP-890). So:

- If the transaction is already open in the partition, it has been verified: nothing to ask.
- Otherwise the log hands out a guard, the coordinator is asked, and the append presents the guard.
  A marker written in the meantime invalidates the guard, and the append is refused.
- Clients of transactions v2 (Produce v12, TxnOffsetCommit v5) do not add the partition to the
  transaction themselves: the question to the coordinator adds it. Older clients have added it, and
  the question only verifies that, unless ``transaction.partition.verification.enable`` is off.
- While the previous transaction is still being ended, the coordinator answers 51
  (CONCURRENT_TRANSACTIONS). With transactions v2 that is common, so the question is repeated for a
  while before the client is told.

The coordinator may be on any broker: :mod:`~dohle.server.transactions.coordinators` finds it.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dohle.core.errors import COORDINATOR_UNREACHED, ErrorCode, KafkaError
from dohle.core.ids import ProducerId, TopicPartition, TransactionalId
from dohle.protocol.schema import Records
from dohle.records.batch import (
    ATTRIBUTES_AT,
    HEADER_SIZE,
    MAGIC,
    NO_SEQUENCE,
    TRANSACTIONAL_FLAG,
)
from dohle.server.internal_topics import CONSUMER_OFFSETS
from dohle.server.partitions.lookup import led_partition
from dohle.server.partitions.partitions import Partition
from dohle.server.transactions.claims import (
    ClientSupport,
    TransactionClaim,
    TransactionCoordinators,
)
from dohle.storage.producers.append import NO_VERIFICATION, VerificationGuard

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer

# In a batch's header: magic, attributes, producer id, producer epoch, base sequence.
_HEAD = struct.Struct(">16xb4xh20xqhi")
#: The lower byte of a batch's attributes.
FLAGS_AT = ATTRIBUTES_AT + 1

#: Errors in reaching the coordinator. Producers get another code, which they know how to handle.
_UNREACHED = COORDINATOR_UNREACHED | {ErrorCode.NETWORK_EXCEPTION}


class TransactionalHead(NamedTuple):
    """What a transactional batch says about its producer."""

    producer_id: ProducerId
    producer_epoch: int
    base_sequence: int


class FirstAppend(NamedTuple):
    """An append that may be the first of a transaction in a partition."""

    partition: Partition
    base_sequence: int


class Verified(NamedTuple):
    """What is known about the partitions of a request. Those in neither mapping may be written."""

    #: To be presented with the append, once the coordinator has agreed.
    guards: Mapping[TopicPartition, VerificationGuard]
    errors: Mapping[TopicPartition, KafkaError]


def transactional_head(records: Records | None) -> TransactionalHead | None:
    """Read the header of the first batch of records; None if it is not transactional."""
    if records is None or len(records) < HEADER_SIZE:
        return None
    magic, attributes, producer_id, producer_epoch, base_sequence = _HEAD.unpack_from(records)
    if magic != MAGIC or not attributes & TRANSACTIONAL_FLAG:
        return None
    return TransactionalHead(ProducerId(producer_id), producer_epoch, base_sequence)


def may_be_transactional(records: Records | None) -> bool:
    """Tell whether the whole header must be read: for most records, one byte says no."""
    return (
        records is not None
        and len(records) > FLAGS_AT
        and records[FLAGS_AT] & TRANSACTIONAL_FLAG != 0
    )


def is_open(partition: Partition, records: Records) -> bool:
    """Tell whether records belong to a transaction that is already open in the partition."""
    if len(records) < HEADER_SIZE:
        return False
    magic, attributes, producer_id, producer_epoch, _ = _HEAD.unpack_from(records)
    return (
        magic == MAGIC
        and attributes & TRANSACTIONAL_FLAG != 0
        and partition.log.producer_state.has_ongoing_transaction(producer_id, producer_epoch)
    )


def produce_error(code: ErrorCode, support: ClientSupport) -> KafkaError:
    """Tell a producer that its transaction could not be verified."""
    text = f"the transaction could not be verified: {code.name}"
    is_retried = code in _UNREACHED or (
        code is ErrorCode.CONCURRENT_TRANSACTIONS and support is not ClientSupport.ADDS_PARTITIONS
    )
    # Every producer retries this one, without asking for new metadata.
    return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS if is_retried else code, text)


class TxnVerification:
    """Verifies that transactions are known to their coordinators. There is one for each broker."""

    def __init__(self, broker: BrokerServer, coordinators: TransactionCoordinators) -> None:
        self._broker = broker
        self._coordinators = coordinators

    # For producers

    def begin(self, transaction: TransactionClaim, appends: Sequence[FirstAppend]) -> Verified:
        """Ask the logs which of these appends the coordinator must verify.

        Those get a guard. If there are no guards, there is nothing to ask the coordinator.
        """
        guards: dict[TopicPartition, VerificationGuard] = {}
        errors: dict[TopicPartition, KafkaError] = {}
        if self._is_asked_for(transaction.support):
            for partition, base_sequence in appends:
                try:
                    guard = self._begin(transaction, partition, base_sequence)
                except KafkaError as error:
                    errors[partition.key] = error
                else:
                    if guard != NO_VERIFICATION:
                        guards[partition.key] = guard
        return Verified(guards, errors)

    async def finish(
        self, transaction: TransactionClaim, appends: Sequence[FirstAppend], begun: Verified
    ) -> Verified:
        """Ask the coordinator about the appends with a guard; retry while it is briefly busy."""
        clock, values = self._broker.clock, self._broker.broker_values()
        backoff_ms = values.get_int("add.partitions.to.txn.retry.backoff.ms")
        retry_ms = values.get_int("add.partitions.to.txn.retry.backoff.max.ms")
        deadline_ms = clock.monotonic_ms() + retry_ms
        while True:
            codes = await self._ask(transaction, tuple(begun.guards))
            if (
                transaction.support is not ClientSupport.ADDS_PARTITIONS
                or ErrorCode.CONCURRENT_TRANSACTIONS not in codes.values()
                or clock.monotonic_ms() >= deadline_ms
            ):
                break
            await asyncio.sleep(backoff_ms / 1000)
            begun = self.begin(transaction, appends)
            if not begun.guards:
                return begun
        errors = {key: produce_error(code, transaction.support) for key, code in codes.items()}
        return Verified(begun.guards, {**begun.errors, **errors})

    # For groups

    async def verify_offsets_partition(
        self,
        index: int,
        transactional_id: TransactionalId,
        producer_id: ProducerId,
        producer_epoch: int,
        version: int,
    ) -> VerificationGuard:
        """Return the guard for committing offsets in a transaction; KafkaError if it is refused.

        ``version`` is that of TxnOffsetCommit, ``index`` the group's partition of
        ``__consumer_offsets``.
        """
        support = ClientSupport.of_offset_commit(version)
        if not self._is_asked_for(support):
            return NO_VERIFICATION
        transaction = TransactionClaim(transactional_id, producer_id, producer_epoch, support)
        partition = led_partition(self._broker, CONSUMER_OFFSETS, index)
        guard = self._begin(transaction, partition, NO_SEQUENCE)
        if guard != NO_VERIFICATION:
            codes = await self._ask(transaction, (partition.key,))
            if partition.key in codes:
                code = codes[partition.key]
                raise KafkaError(code, f"the transaction could not be verified: {code.name}")
        return guard

    # The question

    def _is_asked_for(self, support: ClientSupport) -> bool:
        return support is ClientSupport.ADDS_PARTITIONS or self._broker.broker_values().get_bool(
            "transaction.partition.verification.enable"
        )

    def _begin(
        self, transaction: TransactionClaim, partition: Partition, base_sequence: int
    ) -> VerificationGuard:
        partition = led_partition(self._broker, *partition.key)
        return partition.log.producer_state.start_transaction_verification(
            transaction.producer_id,
            base_sequence,
            transaction.producer_epoch,
            transaction.support is ClientSupport.ADDS_PARTITIONS,
            self._broker.clock.now_ms(),
        )

    async def _ask(
        self, transaction: TransactionClaim, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        try:
            found = await self._coordinators.add_or_verify(transaction, partitions)
        except KafkaError as error:
            found = dict.fromkeys(partitions, error.code)
        return {key: _for_client(code, transaction.support) for key, code in found.items()}


def _for_client(code: ErrorCode, support: ClientSupport) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        # That this broker lacks the right to ask does not concern the client.
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.TRANSACTION_ABORTABLE and support is ClientSupport.OLD_ERRORS:
        return ErrorCode.INVALID_TXN_STATE
    return code
