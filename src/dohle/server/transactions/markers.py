"""Writing commit and abort markers to the partitions of a transaction, for as long as it takes.

A coordinator's decision arrives as a :class:`~dohle.txn.actions.WriteMarkers`. Its markers are
appended to all partitions of the transaction. When the last one is committed, the coordinator is
told, so that it can record that the transaction is complete.

- The markers of all transactions that end in the same turn of the loop are appended together: one
  write for each partition. Many markers take several turns, so that others are served in between.
- Errors that may pass (no leader, too few replicas, a failed disk) are retried for ever, with
  growing pauses: readers of committed records wait for the marker.
- A partition that has been deleted needs no marker.
- A leader that has seen a newer coordinator, or a newer epoch of the producer, refuses the marker:
  another broker decides about this transaction now, so this one gives up. It also gives up when it
  no longer leads the coordinator's partition: the new leader loads the decision and goes on.
- Markers for ``__consumer_offsets`` go through the group coordinator, which makes the transaction's
  offsets valid or drops them.
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

#: How many markers are appended in one turn of the loop; the rest wait for the next turn.
MARKERS_PER_TURN = 256

#: Another coordinator or a newer producer has taken over: retrying cannot help.
_FINAL = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})


class Marker(NamedTuple):
    """A commit or abort marker, as it is written to each partition of a transaction."""

    producer_id: ProducerId
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int


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


@dataclass(slots=True, eq=False)
class _Ending:
    """A transaction whose markers are being written."""

    shard_index: int
    action: WriteMarkers
    marker: Marker
    missing: set[TopicPartition] = field(default_factory=set)
    #: Those of ``missing`` that are still to be tried in this round.
    due: deque[TopicPartition] = field(default_factory=deque)
    #: How many markers are in their logs but not committed yet.
    uncommitted: int = 0
    retry_ms: int = RETRY_MS_MIN
    timer: TimerHandle | None = None
    is_over: bool = False


class TxnMarkers:
    """Carries out WriteMarkers actions. There is one for each broker."""

    def __init__(self, broker: BrokerServer) -> None:
        self._broker = broker
        self.writer = MarkerWriter(broker)
        self._endings: dict[str, _Ending] = {}
        self._queue: deque[_Ending] = deque()
        self._turn: Handle | None = None
        self._is_stopped = False

    def __len__(self) -> int:
        """Return how many transactions are waiting for their markers."""
        return len(self._endings)

    def write(self, shard_index: int, coordinator_epoch: int, action: object) -> None:
        """Write a transaction's markers, and call ``markers_written`` when all are committed.

        ``shard_index`` and ``coordinator_epoch`` are the partition of ``__transaction_state`` and
        its leader epoch in which the decision was made. A newer decision about the same
        transactional id replaces an older one.
        """
        if not isinstance(action, WriteMarkers):
            raise TypeError(f"a transaction coordinator cannot ask for {action!r}")
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
        """Stop writing: after the next start the coordinator finds its decisions and goes on."""
        self._is_stopped = True
        for ending in list(self._endings.values()):
            self._give_up(ending)
        if self._turn is not None:
            self._turn.cancel()

    # One turn of the loop

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
        # A log's end is at or behind its marker: waiting for it to be committed is enough.
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
        """Take in that a marker is committed, or why that is not known."""
        ending.uncommitted -= 1
        try:
            # The write itself may have taken the directory offline.
            partition.log.disk.ensure_online()
            if code is not ErrorCode.NONE:
                raise KafkaError(code, f"the marker is not committed in {partition.key}")
        except KafkaError as error:
            self._failed(ending, partition.key, error)
        else:
            ending.missing.discard(partition.key)
        self._settle(ending)

    def _is_wanted(self, ending: _Ending) -> bool:
        """Tell whether this broker still has to end the transaction."""
        if ending.is_over:
            return False
        coordinator = self._broker.image.partition(TRANSACTION_STATE, ending.shard_index)
        if (
            coordinator is None
            or coordinator.leader != self._broker.node_id
            or coordinator.leader_epoch != ending.marker.coordinator_epoch
        ):
            logger.info(
                "transactional id %s: another broker coordinates it now, and writes its markers.",
                ending.action.transactional_id,
            )
            self._give_up(ending)
            return False
        return True

    def _append(self, ending: _Ending, key: TopicPartition) -> Partition | None:
        """Append a marker; return the partition if there is now something to write in it."""
        if self._broker.image.partition(*key) is None:
            # Its topic was deleted, and the transaction's records with it.
            ending.missing.discard(key)
            return None
        try:
            return self.writer.append(key, ending.marker)
        except KafkaError as error:
            self._failed(ending, key, error)
        except Exception:
            # Whatever it was, the other markers of this turn go on.
            logger.exception(
                "transactional id %s: its marker could not be appended to %s, and is retried."
                " Please report this.",
                ending.action.transactional_id,
                key,
            )
        return None

    def _failed(self, ending: _Ending, key: TopicPartition, error: KafkaError) -> None:
        transactional_id = ending.action.transactional_id
        if error.code in _FINAL:
            logger.warning(
                "transactional id %s: %s refused its marker: a newer coordinator or producer has"
                " taken over, so this broker writes no more markers for it: %s",
                transactional_id,
                key,
                error,
            )
            self._give_up(ending)
        else:
            logger.info(
                "transactional id %s: its marker is not in %s yet, and is retried: %s",
                transactional_id,
                key,
                error,
            )

    def _settle(self, ending: _Ending) -> None:
        """When a round is over, tell the coordinator, or schedule a retry of what is missing."""
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
