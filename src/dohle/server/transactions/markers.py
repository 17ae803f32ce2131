"""Writing commit and abort markers to the partitions of a transaction, for as long as it takes.

A coordinator's decision arrives as a :class:`~dohle.txn.actions.WriteMarkers`. Its markers are
appended to all partitions of the transaction, here or by the brokers that lead them. When the last
one is committed, the coordinator is told, so that it can record that the transaction is complete.

- The markers of all transactions that end in the same turn of the loop are appended together: one
  write for each partition. Many markers take several turns, so that others are served in between.
- Markers for other brokers wait in a queue for each of them (``marker_sender``). Who leads a
  partition is looked up in the image for every attempt.
- Errors that may pass (no leader, another one, too few replicas, a failed disk, a broker that does
  not answer) are retried for ever, with growing pauses: readers of committed records wait for the
  marker. A change of the partition in the image ends the pause.
- A partition that has been deleted needs no marker, nor does one that can have none (35, 43).
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
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, TopicPartition
from dohle.metadata.delta import Delta
from dohle.metadata.partition import NO_LEADER
from dohle.server.internal_topics import TRANSACTION_STATE
from dohle.server.partitions.partitions import Partition
from dohle.server.transactions.marker import Marker, SentMarker
from dohle.server.transactions.marker_writer import MarkerWriter
from dohle.txn.actions import WriteMarkers

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer
    from dohle.server.transactions.broker_queues import BrokerQueues

logger = logging.getLogger("dohle.server")

RETRY_MS_MIN = 50
RETRY_MS_MAX = 5_000

#: How many markers are appended in one turn of the loop; the rest wait for the next turn.
MARKERS_PER_TURN = 256

#: Another coordinator or a newer producer has taken over: retrying cannot help.
_FINAL = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
#: The partition cannot have a marker.
_NEEDLESS = frozenset({ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION})
#: Expected while leaders change, brokers are restarted and replicas are missing.
_PASSING = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


@dataclass(slots=True, eq=False)
class _Ending:
    """A transaction whose markers are being written."""

    shard_index: int
    action: WriteMarkers
    marker: Marker
    missing: set[TopicPartition] = field(default_factory=set)
    #: Those of ``missing`` that are still to be tried in this round.
    due: deque[TopicPartition] = field(default_factory=deque)
    #: Those of ``missing`` that are in a log but not committed yet, or on their way to a broker.
    pending: set[TopicPartition] = field(default_factory=set)
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
        #: To other brokers; None as long as there was nothing for any.
        self._sent: BrokerQueues[SentMarker] | None = None

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

    def publish(self, delta: Delta) -> None:
        """Take in a change of the image: brokers that are gone, partitions with other leaders."""
        if self._sent is not None:
            for change in delta.changed_brokers:
                if change.after is None or change.after.fenced:
                    self._sent.give_up(change.id)
        deleted = (
            TopicPartition(topic.name, index)
            for topic in delta.deleted_topics
            for index in topic.partitions
        )
        changed = (TopicPartition(each.topic, each.partition) for each in delta.changed_partitions)
        self._try_again({*deleted, *changed})

    def _try_again(self, changed: Iterable[TopicPartition]) -> None:
        for ending in self._endings.values():
            if ending.timer is not None and not ending.missing.isdisjoint(changed):
                ending.timer.cancel()
                ending.retry_ms = RETRY_MS_MIN
                self._enqueue(ending)

    def stop(self) -> None:
        """Stop writing: after the next start the coordinator finds its decisions and goes on."""
        self._is_stopped = True
        for ending in list(self._endings.values()):
            self._give_up(ending)
        if self._turn is not None:
            self._turn.cancel()

    async def close(self) -> None:
        """Close the connections to other brokers."""
        if self._sent is not None:
            await self._sent.stop()

    # One turn of the loop

    def _enqueue(self, ending: _Ending) -> None:
        ending.timer = None
        ending.due.extend(sorted(ending.missing - ending.pending))
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
                partition = self._begin(ending, ending.due.popleft())
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
        for ending, partition, offset in ends:
            self._broker.commits.wait(
                partition, offset, timeout_ms, partial(self._committed, ending, partition)
            )
        for ending in tried:
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

    def _begin(self, ending: _Ending, key: TopicPartition) -> Partition | None:
        """Append or send a marker; return the partition if there is now something to write here."""
        image = self._broker.image.partition(*key)
        if image is None:
            # Its topic was deleted, and the transaction's records with it.
            ending.missing.discard(key)
            return None
        if image.leader == NO_LEADER:
            self._failed(ending, key, KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "no leader"))
            return None
        if image.leader != self._broker.node_id:
            self._send(image.leader, ending, key)
            return None
        try:
            partition = self.writer.append(key, ending.marker)
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
        else:
            ending.pending.add(key)
            return partition
        return None

    def _send(self, leader: BrokerId, ending: _Ending, key: TopicPartition) -> None:
        if self._sent is None:
            # A node that is alone needs nothing of a client.
            from dohle.server.transactions.broker_queues import BrokerQueues
            from dohle.server.transactions.marker_sender import MarkerSender

            self._sent = BrokerQueues(self._broker, "txn-marker-sender", MarkerSender())
        ending.pending.add(key)
        item = SentMarker(
            key,
            ending.marker,
            partial(self._is_wanted, ending),
            partial(self._answered, ending, key),
        )
        self._sent.put(leader, item)

    # Results

    def _committed(self, ending: _Ending, partition: Partition, code: ErrorCode) -> None:
        """Take in that a marker is committed here, or why that is not known."""
        try:
            # The write itself may have taken the directory offline.
            partition.log.disk.ensure_online()
        except KafkaError as error:
            code = error.code
        self._answered(ending, partition.key, code)

    def _answered(self, ending: _Ending, key: TopicPartition, code: ErrorCode) -> None:
        """Take in what became of a marker."""
        ending.pending.discard(key)
        if code is ErrorCode.NONE or code in _NEEDLESS:
            ending.missing.discard(key)
        else:
            self._failed(ending, key, KafkaError(code, "the marker is not known to be committed"))
        self._settle(ending)

    def _failed(self, ending: _Ending, key: TopicPartition, error: KafkaError) -> None:
        if ending.is_over:
            return
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
            logger.log(
                logging.INFO if error.code in _PASSING else logging.ERROR,
                "transactional id %s: its marker is not in %s yet, and is retried: %s",
                transactional_id,
                key,
                error,
            )

    def _settle(self, ending: _Ending) -> None:
        """Tell the coordinator if all is done, or schedule a retry of what has failed."""
        if ending.is_over or ending.due:
            return
        if ending.missing:
            if ending.timer is None and ending.missing != ending.pending:
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
