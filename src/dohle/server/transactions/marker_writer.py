"""Appending the marker that ends a transaction to a partition that this broker leads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dohle.coordination.effects import TransactionalProducer
from dohle.core.errors import COORDINATOR_UNREACHED, ErrorCode, KafkaError
from dohle.core.ids import TopicPartition
from dohle.records.control import build_txn_marker
from dohle.server.internal_topics import CONSUMER_OFFSETS
from dohle.server.partitions.lookup import led_partition
from dohle.server.partitions.partitions import Partition
from dohle.server.transactions.marker import Marker
from dohle.storage.producers.append import AppendOrigin

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer


class MarkerWriter:
    """Appends markers to partitions that this broker leads.

    ``append`` does not write: the caller must call ``BrokerServer.write_appends``, and then check
    that the log's directory is still online.
    """

    def __init__(self, broker: BrokerServer) -> None:
        self._broker = broker

    def append(self, key: TopicPartition, marker: Marker) -> Partition:
        """Append a marker; raise KafkaError if the partition refuses it."""
        if key.topic == CONSUMER_OFFSETS:
            return self._append_to_group(key.partition, marker)
        broker = self._broker
        partition = led_partition(broker, *key)
        if partition.is_under_min_isr:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{key}: fewer replicas are in sync than min.insync.replicas",
            )
        built = build_txn_marker(
            marker.is_commit,
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            broker.clock.now_ms(),
        )
        partition.log.append_as_leader(
            built,
            partition.leader_epoch,
            origin=AppendOrigin.COORDINATOR,
            transaction_version=marker.transaction_version,
            defer_write=True,
        )
        broker.note_unwritten(partition)
        return partition

    def _append_to_group(self, index: int, marker: Marker) -> Partition:
        try:
            shard = self._broker.groups.shard(index)
            shard.append_marker(
                TransactionalProducer(marker.producer_id, marker.producer_epoch),
                is_commit=marker.is_commit,
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.transaction_version,
            )
            return shard.partition
        except KafkaError as error:
            if error.code not in COORDINATOR_UNREACHED:
                raise
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(error.args[0])) from error
