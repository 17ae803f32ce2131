"""Writing the ends of transactions to their partitions, for as long as it takes.

What a coordinator has decided is a :class:`~dohle.txn.actions.WriteMarkers`. Its markers are
appended to all partitions, and when the last is committed the coordinator is told, so that it can
write down that the transaction is complete.

- The markers of all transactions that end in the same turn of the loop are appended together: one
  write for each partition. Many markers take several turns, so that others are served in between.
- What may pass (no leader, too few replicas, a disk that failed) is tried again, after a pause that
  grows, for ever: readers of committed records wait for the marker.
- A partition that the cluster does not have any more needs no marker.
- A leader that has seen a newer coordinator, or a newer epoch of the producer, refuses: somebody
  else decides about this transaction by now. Then it is given up here, and so it is if this broker
  has lost the coordinator's partition: who loads it goes on.
- The partitions of ``__consumer_offsets`` get their markers from the group coordinator, which has
  offsets to make valid or to forget.
"""

from __future__ import annotations

import logging
from asyncio import Handle, TimerHandle
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from dohle.coordination.effects import TransactionalProducer
from dohle.core.errors import COORDINATOR_UNREACHED, ErrorCode, KafkaError
from dohle.core.ids import ProducerId, TopicPartition
from dohle.records.control import build_txn_marker
from dohle.server.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from dohle.server.partitions.lookup import led_partition
from dohle.server.partitions.partitions import Partition
from dohle.storage.producers.append import AppendOrigin
from dohle.txn.actions import WriteMarkers

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer

logger = logging.getLogger("dohle.server")

RETRY_MS_MIN = 50
RETRY_MS_MAX = 5_000

#: How many markers are written in one turn of the loop; the others are in the next.
MARKERS_PER_TURN = 256

#: Somebody else decides about the transaction by now.
_FINAL = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})


class Marker(NamedTuple):
    """The end of a transaction, as it is written to each of its partitions."""

    producer_id: ProducerId
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int


class MarkerWriter:
    """Appends markers to partitions that this broker leads.

    ``append`` leaves them to be written by ``BrokerServer.write_appends``; whoever appends sees to
    that, and looks after it whether the log's directory is still online.
    """

    def __init__(self, broker: BrokerServer) -> None:
        self._broker = broker

    def append(self, key: TopicPartition, marker: Marker) -> Partition:
        """Append a marker; KafkaError if the partition does not take it."""
        if key.topic == CONSUMER_OFFSETS:
            return self._append_to_group(key.partition, marker)
        broker = self._broker
        partition = led_partition(broker, *key)
        if partition.is_under_min_isr:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, f"{key}: too few replicas are in sync")
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


@dataclass(slots=True, eq=False)
class _Ending:
    """A transaction whose markers are being written."""

    shard_index: int
    action: WriteMarkers
    marker: Marker
    missing: set[TopicPartition] = field(default_factory=set)
    #: The missing ones whose turn has not come since they were last tried.
    due: deque[TopicPartition] = field(default_factory=deque)
    #: How many markers are in their logs and not committed yet.
    uncommitted: int = 0
    retry_ms: int = RETRY_MS_MIN
    timer: TimerHandle | None = None
    is_over: bool = False


class TxnMarkers:
    """Carries out WriteMarkers. One for each broker."""

    def __init__(self, broker: BrokerServer) -> None:
        self._broker = broker
        self.writer = MarkerWriter(broker)
        self._endings: dict[str, _Ending] = {}
        self._queue: deque[_Ending] = deque()
        self._turn: Handle | None = None
        self._is_stopped = False

    def __len__(self) -> int:
        """How many transactions are being ended."""
        return len(self._endings)

    def write(self, shard_index: int, coordinator_epoch: int, action: object) -> None:
        """Write a decided transaction's markers; ``markers_written`` is told when they are there.

        The decision was made in this partition of ``__transaction_state``, in this leader epoch. A
        newer decision about the same transactional id takes the place of an older one.
        """
        if not isinstance(action, WriteMarkers):
            raise TypeError(f"{action!r} is nothing that a transaction coordinator asks for")
        if self._is_stopped:
            return
        known = self._endings.get(action.transactional_id)
        if known is not None:
            self._give_up(known)
        marker = Marker(
            action.producer_id,
            action.producer_epoch,
            action.is_commit,
            coordinator_epoch,
            action.transaction_version,
        )
        ending = _Ending(shard_index, action, marker, set(action.partitions))
        self._endings[action.transactional_id] = ending
        self._enqueue(ending)

    def stop(self) -> None:
        """Write no more: the next start finds the decisions and goes on."""
        self._is_stopped = True
        for ending in list(self._endings.values()):
            self._give_up(ending)
        if self._turn is not None:
            self._turn.cancel()

    # A turn

    def _enqueue(self, ending: _Ending) -> None:
        ending.timer = None
        ending.due.extend(sorted(ending.missing))
        self._queue.append(ending)
        if self._turn is None:
            self._turn = self._broker.loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._turn = None
        appended: list[tuple[_Ending, Partition]] = []
        tried: list[_Ending] = []
        left = MARKERS_PER_TURN
        while self._queue and left:
            ending = self._queue.popleft()
            if not self._is_wanted(ending):
                continue
            while ending.due and left:
                left -= 1
                partition = self._append(ending, ending.due.popleft())
                if partition is not None:
                    appended.append((ending, partition))
            if ending.due:
                self._queue.appendleft(ending)
            else:
                tried.append(ending)
        if self._queue:
            self._turn = self._broker.loop.call_soon(self._take_turn)
        # Each ends where its log ends now, or before: others may be behind it.
        ends = [(ending, one, one.log.log_end_offset) for ending, one in appended]
        self._broker.write_appends()
        timeout_ms = self._broker.config.get_int("request.timeout.ms")
        for ending, _, _ in ends:
            ending.uncommitted += 1
        for ending, partition, offset in ends:
            self._broker.commits.wait(
                partition, offset, timeout_ms, partial(self._ended, ending, partition)
            )
        for ending in tried:
            self._settle(ending)

    def _ended(self, ending: _Ending, partition: Partition, code: ErrorCode) -> None:
        """Take in that a marker is committed, or is not known to be."""
        ending.uncommitted -= 1
        try:
            # The write itself may have taken the directory offline.
            partition.log.disk.ensure_online()
            if code is not ErrorCode.NONE:
                raise KafkaError(code, f"it is not committed in {partition.key}")
        except KafkaError as error:
            self._failed(ending, partition.key, error)
        else:
            ending.missing.discard(partition.key)
        self._settle(ending)

    def _is_wanted(self, ending: _Ending) -> bool:
        """Tell whether it is still this broker that has to end the transaction."""
        if ending.is_over:
            return False
        coordinator = self._broker.image.partition(TRANSACTION_STATE, ending.shard_index)
        if (
            coordinator is None
            or coordinator.leader != self._broker.node_id
            or coordinator.leader_epoch != ending.marker.coordinator_epoch
        ):
            logger.info("%s is coordinated elsewhere now", ending.action.transactional_id)
            self._give_up(ending)
            return False
        return True

    def _append(self, ending: _Ending, key: TopicPartition) -> Partition | None:
        """Append a marker; return where that is to be written now, if it is."""
        if self._broker.image.partition(*key) is None:
            # Its topic was deleted, and the transaction's records with it.
            ending.missing.discard(key)
            return None
        try:
            return self.writer.append(key, ending.marker)
        except KafkaError as error:
            self._failed(ending, key, error)
        except Exception:
            # Whatever it was: the others of this turn go on, and this one is tried again.
            logger.exception("the marker for %s failed", key)
        return None

    def _failed(self, ending: _Ending, key: TopicPartition, error: KafkaError) -> None:
        transactional_id = ending.action.transactional_id
        if error.code in _FINAL:
            logger.warning("%s is not ended here: %s", transactional_id, error)
            self._give_up(ending)
        else:
            logger.info("the marker of %s for %s is tried again: %s", transactional_id, key, error)

    def _settle(self, ending: _Ending) -> None:
        """Go on as it stands: tell the coordinator, or try the rest again."""
        if ending.is_over or ending.uncommitted or ending.due:
            return
        if ending.missing:
            if ending.timer is None:
                ending.timer = self._broker.loop.call_later(
                    ending.retry_ms / 1000, self._enqueue, ending
                )
                ending.retry_ms = min(2 * ending.retry_ms, RETRY_MS_MAX)
            return
        self._give_up(ending)
        action = ending.action
        self._broker.transactions.post(
            lambda machine: machine.markers_written(action, action.partitions), ending.shard_index
        )

    def _give_up(self, ending: _Ending) -> None:
        ending.is_over = True
        if ending.timer is not None:
            ending.timer.cancel()
        if self._endings.get(ending.action.transactional_id) is ending:
            del self._endings[ending.action.transactional_id]
