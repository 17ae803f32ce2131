"""A producer's requests to coordinators for its transactions.

All use a channel of their own, unless the caller passes one: a fetch that waits must not delay a
transaction. Versions are limited where a newer one would mean the newer transaction protocol.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from dohle.client.cluster import Cluster
from dohle.client.config import ProducerConfig
from dohle.client.coordinators import CoordinatorKind
from dohle.client.errors import answered_error
from dohle.client.group.consumer_protocol import by_topic
from dohle.client.group.membership import GroupMetadata
from dohle.client.group.offsets import OffsetAndMetadata
from dohle.client.net.connection import Channel, Connection
from dohle.client.producer.batch import ProducerIdentity
from dohle.client.transactions.ends import (
    PreparedTransaction,
    end_transaction,
    uses_transactions_v2,
)
from dohle.client.transactions.state import ProducerTransactions
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import NO_PRODUCER_ID, TopicPartition
from dohle.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from dohle.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from dohle.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from dohle.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

_Result = TypeVar("_Result")

#: In later versions the brokers add partitions themselves, or requests are for brokers only.
PRODUCE_V1_MAX = 11
_TXN_OFFSET_COMMIT_V1_MAX = 4
_ADD_PARTITIONS_MAX = 3
#: The version of InitProducerId that can ask for transactions without a timeout (KIP-939). Kafka
#: marks it as unstable, so it is used only for that.
_TWO_PHASE_COMMIT = 6


def offers_two_phase_commit(connection: Connection) -> bool:
    """Tell whether a broker supports requests for transactions without a timeout; it may refuse."""
    return connection.version_of(InitProducerIdRequest, _TWO_PHASE_COMMIT) >= _TWO_PHASE_COMMIT


class TransactionRequests:
    """Sends the requests of one producer's transactions, and reports errors to its state."""

    def __init__(
        self,
        cluster: Cluster,
        config: ProducerConfig,
        state: ProducerTransactions,
        channel: Channel | None = None,
    ) -> None:
        self.state = state
        self._cluster = cluster
        self._config = config
        self._is_own_channel = channel is None
        self._channel = channel or cluster.new_channel("transactions")

    async def close(self) -> None:
        """Close the channel, unless it is shared."""
        if self._is_own_channel:
            await self._cluster.close_channel(self._channel)

    async def is_v2(self) -> bool:
        """Find out whether the cluster uses the newer protocol."""
        return await uses_transactions_v2(self._cluster)

    async def init_producer_id(self, known: ProducerIdentity | None) -> ProducerIdentity:
        """Get an identity and fence earlier producers; a ``known`` one only gets a new epoch."""
        identity, _ = await self._init_producer_id(known)
        return identity

    async def take_over(self) -> tuple[ProducerIdentity, ProducerIdentity | None]:
        """Get an identity but keep the open transaction; also return the identity that wrote it."""
        return await self._init_producer_id(None, keep_prepared=True)

    async def _init_producer_id(
        self, known: ProducerIdentity | None, *, keep_prepared: bool = False
    ) -> tuple[ProducerIdentity, ProducerIdentity | None]:
        producer_id, epoch = known or ProducerIdentity(NO_PRODUCER_ID, -1)
        is_two_phase = self._config.transaction_two_phase_commit_enable
        is_newest = is_two_phase or keep_prepared
        request = InitProducerIdRequest(
            transactional_id=self.state.transactional_id,
            transaction_timeout_ms=self._config.transaction_timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            enable_two_pc=is_two_phase,
            keep_prepared_txn=keep_prepared,
        )

        async def ask(
            connection: Connection,
        ) -> tuple[ProducerIdentity, ProducerIdentity | None]:
            if is_newest and not offers_two_phase_commit(connection):
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"{connection.address} does not support transactions without a timeout "
                    "(KIP-939)",
                )
            answer = await connection.request(
                request,
                InitProducerIdResponse,
                version_max=_TWO_PHASE_COMMIT if is_newest else None,
            )
            self._check(answer.error_code, "initialising")
            ongoing = None
            if answer.ongoing_txn_producer_id != NO_PRODUCER_ID:
                ongoing = ProducerIdentity(
                    answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch
                )
            return ProducerIdentity(answer.producer_id, answer.producer_epoch), ongoing

        return await self._ask_coordinator("initialising", ask)

    async def add_partitions(self, partitions: frozenset[TopicPartition]) -> None:
        """Tell the coordinator which partitions the transaction is about to write to."""
        producer_id, epoch = self._identity()
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.state.transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=tuple(
                AddPartitionsToTxnTopic(name=name, partitions=some)
                for name, some in by_topic(sorted(partitions)).items()
            ),
        )

        async def ask(connection: Connection) -> None:
            answer = await connection.request(
                request, AddPartitionsToTxnResponse, version_max=_ADD_PARTITIONS_MAX
            )
            codes = {
                each.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for each in topic.results_by_partition
            }
            # Partitions that were not even attempted failed because of others.
            for code in sorted(codes - {ErrorCode.NONE}, key=_not_attempted):
                self._check(code, "adding partitions")

        await self._ask_coordinator("adding partitions", ask)
        self.state.partitions_added(partitions)

    async def add_offsets(self, who: GroupMetadata) -> None:
        """Tell the coordinator that the transaction will commit offsets of a group."""
        producer_id, epoch = self._identity()
        request = AddOffsetsToTxnRequest(
            transactional_id=self.state.transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            group_id=who.group_id,
        )

        async def ask(connection: Connection) -> None:
            answer = await connection.request(request, AddOffsetsToTxnResponse)
            self._check(answer.error_code, "adding offsets")

        await self._ask_coordinator("adding offsets", ask)
        self.state.offsets_added()

    async def commit_offsets(
        self, who: GroupMetadata, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Send offsets to the group's coordinator; the transaction's commit makes them valid."""
        producer_id, epoch = self._identity()
        request = TxnOffsetCommitRequest(
            transactional_id=self.state.transactional_id,
            group_id=who.group_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            generation_id=who.generation_id,
            member_id=who.member_id,
            group_instance_id=who.group_instance_id,
            topics=tuple(
                TxnOffsetCommitRequestTopic(
                    name=name,
                    partitions=tuple(
                        TxnOffsetCommitRequestPartition(
                            partition_index=each,
                            committed_offset=(place := offsets[TopicPartition(name, each)]).offset,
                            committed_leader_epoch=place.leader_epoch,
                            committed_metadata=place.metadata,
                        )
                        for each in some
                    ),
                )
                for name, some in by_topic(offsets).items()
            ),
        )

        async def ask(connection: Connection) -> None:
            answer = await connection.request(
                request,
                TxnOffsetCommitResponse,
                version_max=None if self.state.is_v2 else _TXN_OFFSET_COMMIT_V1_MAX,
            )
            for topic in answer.topics:
                for each in topic.partitions:
                    self._check(each.error_code, f"offsets of group {who.group_id}")

        await self._ask(CoordinatorKind.GROUP, who.group_id, "committing offsets", ask)

    async def end(self, *, commit: bool) -> ProducerIdentity | None:
        """End the transaction; return the identity for the next one if there is a new one."""
        try:
            return await end_transaction(
                self._cluster,
                self.prepared(),
                commit=commit,
                channel=self._channel,
                timeout_ms=self._config.max_block_ms,
            )
        except KafkaError as error:
            raise self.state.request_failed(error) from error

    def prepared(self) -> PreparedTransaction:
        """Return what is needed to end the transaction."""
        return PreparedTransaction(
            self.state.transactional_id, self._identity(), is_v2=self.state.is_v2
        )

    def _identity(self) -> ProducerIdentity:
        assert self.state.identity is not None
        return self.state.identity

    def _check(self, code: int, doing: str) -> None:
        if code:
            about = f"transaction of {self.state.transactional_id}, {doing}"
            raise answered_error(code, about)

    async def _ask_coordinator(
        self, doing: str, ask: Callable[[Connection], Awaitable[_Result]]
    ) -> _Result:
        key = self.state.transactional_id
        return await self._ask(CoordinatorKind.TRANSACTION, key, doing, ask)

    async def _ask(
        self,
        kind: CoordinatorKind,
        key: str,
        doing: str,
        ask: Callable[[Connection], Awaitable[_Result]],
    ) -> _Result:
        try:
            return await self._cluster.coordinators.ask(
                kind,
                key,
                f"transaction of {self.state.transactional_id}, {doing}",
                ask,
                channel=self._channel,
                timeout_ms=self._config.max_block_ms,
            )
        except KafkaError as error:
            raise self.state.request_failed(error) from error


def _not_attempted(code: int) -> bool:
    return code == ErrorCode.OPERATION_NOT_ATTEMPTED
