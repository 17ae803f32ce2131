"""Transactions: listing and describing them, and aborting hanging ones.

Transactional ids are described by their coordinator, a partition's producers by its leader. A
hanging transaction is one that the coordinator no longer knows; only its partition's leader can end
it, with a marker that carries what the leader itself reports about the producer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dohle.client.admin.group_values import (
    ProducerDescription,
    TransactionDescription,
    TransactionListing,
)
from dohle.client.admin.requests import AdminRequests
from dohle.client.admin.results import Results
from dohle.client.coordinators import CoordinatorKind
from dohle.client.errors import answered_error
from dohle.client.group.consumer_protocol import by_topic
from dohle.client.leader_requests import ask_leaders
from dohle.client.metadata import PartitionInfo
from dohle.client.net.connection import Connection
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import ProducerId, TopicPartition, TransactionalId
from dohle.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from dohle.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from dohle.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from dohle.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from dohle.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_DURATION_VERSION, _PATTERN_VERSION = 1, 2


class TransactionAdmin(AdminRequests):
    """The part of an admin client for transactions."""

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        running_longer_than_ms: int | None = None,
        transactional_id_pattern: str | None = None,
    ) -> tuple[TransactionListing, ...]:
        """Return all transactional ids, or those that match."""
        request = ListTransactionsRequest(
            state_filters=tuple(states),
            producer_id_filters=tuple(map(ProducerId, producer_ids)),
            duration_filter=-1 if running_longer_than_ms is None else running_longer_than_ms,
            transactional_id_pattern=transactional_id_pattern,
        )
        needs = 0 if running_longer_than_ms is None else _DURATION_VERSION
        needs = needs if transactional_id_pattern is None else _PATTERN_VERSION

        async def ask(connection: Connection) -> ListTransactionsResponse:
            if connection.version_of(ListTransactionsRequest) < needs:
                raise KafkaError(
                    ErrorCode.UNSUPPORTED_VERSION,
                    f"{connection.address} cannot list transactions by duration or pattern",
                )
            answer = await connection.request(request, ListTransactionsResponse)
            if answer.error_code:
                raise answered_error(answer.error_code, f"transactions of {connection.address}")
            if answer.unknown_state_filters:
                unknown = ", ".join(answer.unknown_state_filters)
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"unknown transaction states: {unknown}"
                )
            return answer

        nodes = [broker.node_id for broker in await self._cluster.brokers()]
        answers = (await self._ask_brokers(nodes, "list transactions", ask)).ok()
        found = [
            TransactionListing(
                each.transactional_id, each.producer_id, each.transaction_state, node_id
            )
            for node_id, answer in answers.items()
            for each in answer.transaction_states
        ]
        return tuple(sorted(found, key=lambda each: each.transactional_id))

    async def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> Results[str, TransactionDescription]:
        """Return transactional ids with their transactions."""

        async def ask(
            connection: Connection, some: list[str]
        ) -> dict[str, TransactionDescription | KafkaError]:
            answer = await connection.request(
                DescribeTransactionsRequest(transactional_ids=tuple(map(TransactionalId, some))),
                DescribeTransactionsResponse,
            )
            found: dict[str, TransactionDescription | KafkaError] = {}
            for each in answer.transaction_states:
                key = each.transactional_id
                if each.error_code:
                    found[key] = answered_error(each.error_code, f"transactional id {key}")
                    continue
                found[key] = TransactionDescription(
                    key,
                    self._coordinator_of(CoordinatorKind.TRANSACTION, key),
                    each.transaction_state,
                    each.producer_id,
                    each.producer_epoch,
                    each.transaction_timeout_ms,
                    each.transaction_start_time_ms,
                    tuple(
                        TopicPartition(topic.topic, partition)
                        for topic in each.topics
                        for partition in topic.partitions
                    ),
                )
            return found

        return await self._cluster.coordinators.ask_each(
            CoordinatorKind.TRANSACTION, transactional_ids, "describe transactions", ask
        )

    async def fence_producers(
        self, transactional_ids: Iterable[str]
    ) -> Results[str, tuple[ProducerId, int]]:
        """Abort open transactions and fence the producers of these ids; return the new epochs."""
        # There will be no transaction, but Kafka's coordinators give replicas so long to have the
        # new epoch, and fail otherwise; its own admin client sends the same.
        timeout_ms = self._cluster.config.request_timeout_ms

        async def ask(
            connection: Connection, some: list[str]
        ) -> dict[str, tuple[ProducerId, int] | KafkaError]:
            found: dict[str, tuple[ProducerId, int] | KafkaError] = {}
            for key in some:
                answer = await connection.request(
                    InitProducerIdRequest(
                        transactional_id=TransactionalId(key),
                        transaction_timeout_ms=timeout_ms,
                    ),
                    InitProducerIdResponse,
                )
                if answer.error_code:
                    found[key] = answered_error(answer.error_code, f"transactional id {key}")
                else:
                    found[key] = (answer.producer_id, answer.producer_epoch)
            return found

        return await self._cluster.coordinators.ask_each(
            CoordinatorKind.TRANSACTION, transactional_ids, "fence producers", ask
        )

    async def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> Results[TopicPartition, tuple[ProducerDescription, ...]]:
        """Return the producers known to the partitions' leaders."""

        async def ask(
            connection: Connection, some: Mapping[TopicPartition, PartitionInfo]
        ) -> dict[TopicPartition, tuple[ProducerDescription, ...] | KafkaError]:
            answer = await connection.request(
                DescribeProducersRequest(
                    topics=tuple(
                        TopicRequest(name=name, partition_indexes=indexes)
                        for name, indexes in by_topic(some).items()
                    )
                ),
                DescribeProducersResponse,
            )
            found: dict[TopicPartition, tuple[ProducerDescription, ...] | KafkaError] = {}
            for topic in answer.topics:
                for each in topic.partitions:
                    partition = TopicPartition(topic.name, each.partition_index)
                    if each.error_code:
                        about = f"producers of {partition}"
                        found[partition] = answered_error(
                            each.error_code, about, each.error_message
                        )
                        continue
                    found[partition] = tuple(
                        ProducerDescription(
                            one.producer_id,
                            one.producer_epoch,
                            one.last_sequence,
                            one.last_timestamp,
                            one.coordinator_epoch,
                            one.current_txn_start_offset,
                        )
                        for one in each.active_producers
                    )
            return found

        return await ask_leaders(self._cluster, "describe producers", partitions, ask)

    async def abort_transaction(
        self,
        partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
    ) -> None:
        """Write an abort marker to a partition, regardless of the coordinator."""
        # A leader without a marker of the producer reports -1, which no marker may carry.
        marker = WritableTxnMarker(
            producer_id=ProducerId(producer_id),
            producer_epoch=producer_epoch,
            coordinator_epoch=max(coordinator_epoch, 0),
            transaction_result=False,
            topics=(
                WritableTxnMarkerTopic(
                    name=partition.topic, partition_indexes=(partition.partition,)
                ),
            ),
        )

        async def ask(
            connection: Connection, some: Mapping[TopicPartition, PartitionInfo]
        ) -> dict[TopicPartition, KafkaError | None]:
            answer = await connection.request(
                WriteTxnMarkersRequest(markers=(marker,)), WriteTxnMarkersResponse
            )
            return {
                TopicPartition(topic.name, each.partition_index): answered_error(
                    each.error_code, f"marker of producer {producer_id} for {partition}"
                )
                if each.error_code
                else None
                for one in answer.markers
                for topic in one.topics
                for each in topic.partitions
            }

        (await ask_leaders(self._cluster, "abort transaction", (partition,), ask)).ok()
