"""Reading what a fetch asks for: bounds, limits and errors, partition by partition.

Limits are used up in the order of the request. The first partition that has anything returns at
least one whole batch, even if it is larger than every limit (KIP-74); after that, a partition whose
first batch does not fit returns nothing. An error or a diverging epoch in any partition means that
the fetch is answered without waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId, ProducerId, TopicName, TopicPartition
from dohle.core.steps import Steps, let_go
from dohle.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from dohle.protocol.schema import CHUNK_BYTES_MIN, Records, default_struct
from dohle.records.batch import Codec
from dohle.replication.fetch_sessions import (
    FetchContext,
    IncrementalFetchContext,
    Result,
    SessionPartition,
    group_by_topic,
)
from dohle.replication.settled import PARTITIONS_PER_STEP, Unsettled
from dohle.server.net.outcome import FileRecords
from dohle.server.net.sending import SENDFILE_BYTES_MIN
from dohle.server.partitions.fetch_counts import count_fetched
from dohle.server.partitions.lookup import ANY_EPOCH, check_asker, fetching, find_partition
from dohle.server.partitions.old_fetches import UNCONVERTED, unconverted
from dohle.server.partitions.partitions import Partition
from dohle.server.partitions.read_replicas import client_rack, node_endpoints, replica_to_read
from dohle.server.partitions.throttled_fetch import throttled
from dohle.storage import log_read
from dohle.storage.log_values import FetchData, Isolation
from dohle.storage.segment.segment_file import LogSlice
from dohle.storage.segment.transaction_index import AbortedTransaction as AbortedTxn

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer
    from dohle.server.client_quotas import FetchMeter

#: Short pieces of this much together are copied at once; further ones when they are sent.
COPIED_BYTES_AT_ONCE = 64 * 1024
#: An answer has no more than about this in memory, since its client may not read it. Pieces that
#: cannot stay in their files are left for the next answer then.
COPIED_BYTES_MAX = 1024 * 1024

_READ_COMMITTED = 1
_NO_LOG = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
#: From this version on, a client that asks the wrong broker or in a wrong epoch is told the leader.
_TELLS_LEADER = 16
_ELSEWHERE = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
# The encoder recognises the shared default by identity, and omits it without comparing fields.
_NO_EPOCH = cast("EpochEndOffset", default_struct(EpochEndOffset))
_NO_LEADER = cast("LeaderIdAndEpoch", default_struct(LeaderIdAndEpoch))
# Looking up a member of an enum is slow.
_LOG_END, _HIGH_WATERMARK = Isolation.LOG_END, Isolation.HIGH_WATERMARK
_TXN_COMMITTED = Isolation.TXN_COMMITTED
_NOTHING, _NOTHING_COMMITTED = FetchData(), FetchData(aborted_transactions=[])


def fetching_replica(request: FetchRequest) -> BrokerId | None:
    """Return the broker that fetches for its replica; None if a consumer fetches."""
    replica_id, other = request.replica_id, request.replica_state.replica_id
    if other > replica_id:
        replica_id = other
    return None if replica_id < 0 else replica_id


def isolation_of(request: FetchRequest) -> Isolation:
    """Return how far a request may see."""
    if fetching_replica(request) is not None:
        return _LOG_END
    if request.isolation_level == _READ_COMMITTED:
        return _TXN_COMMITTED
    return _HIGH_WATERMARK


class RemotePart(NamedTuple):
    """What a fetch wants of the remote tier."""

    #: Which of the results it is.
    place: int
    partition: Partition
    offset: int
    max_bytes: int
    whole_batch: bool
    reads_committed: bool


class FetchReader:
    """One fetch request being served: read at once, or once it has waited for long enough."""

    def __init__(
        self,
        broker: BrokerServer,
        request: FetchRequest,
        version: int,
        context: FetchContext,
        listener: str,
        *,
        has_waited: bool = False,
        refused: Container[TopicName | None] = (),
        meter: FetchMeter | None = None,
    ) -> None:
        """Prepare to serve a client of a listener, which may not read the ``refused`` topics.

        One that has waited was read before: how far a follower is has been noted then. ``meter``
        is that of a consumer with a quota.
        """
        self._meter = meter
        self._broker = broker
        self._listener = listener
        self._version = version
        self._context = context
        self._partitions = context.partitions
        self._refused = refused
        max_bytes, min_bytes = request.max_bytes, request.min_bytes
        if max_bytes > broker.fetch_max_bytes:
            max_bytes = broker.fetch_max_bytes
        self._max_bytes = max_bytes
        self.min_bytes = min_bytes if min_bytes < max_bytes else max_bytes
        self._isolation = isolation_of(request)
        self._reads_committed = self._isolation is _TXN_COMMITTED
        self._is_follower = self._isolation is _LOG_END
        self._asker = fetching(fetching_replica(request) if self._is_follower else None, version)
        self._replica_epoch = request.replica_state.replica_epoch
        #: Where a consumer is, if it is to be sent to a replica there.
        self._rack = "" if self._is_follower else client_rack(broker, request, version)
        #: Those that were named instead of this broker.
        self._leaders: set[BrokerId] = set()
        # A partition of which there is nothing to read stands here itself, and is told of when it
        # is known that there will be an answer.
        self._results: list[tuple[SessionPartition, PartitionData | Partition]] = []
        #: How much was read, how much of it is copied, and of how many partitions there is any.
        self._bytes = self._copied = self._filled = 0
        self._at_once, self._has_read = False, has_waited
        self._not_at_end: list[SessionPartition] = []
        self._change_count = -1
        self._told_by: Unsettled | None = None
        #: What consumers want of the remote tier: ``server.tier`` reads it before the answer.
        self.remote: list[RemotePart] = []
        self._nothing = _NOTHING_COMMITTED if self._reads_committed else _NOTHING

    def is_enough(self) -> bool:
        """Tell whether to answer without waiting, after what was read."""
        # A follower's session may have nothing to look at, and waits all the same.
        is_empty = not self._partitions and self._context.unsettled is None
        return self._at_once or is_empty or self._bytes >= self.min_bytes

    def has_found_much(self) -> bool:
        """Tell whether most of the partitions had something, or there was as much as is sent."""
        is_full = self._bytes >= self._max_bytes
        return is_full or 2 * self._filled >= len(self._partitions)

    def response(self) -> Steps[FetchResponse]:
        """Return the answer with what was read. It can be had once."""
        results, self._results = self._results, []
        if self._meter is not None:
            throttled = yield from self._throttled(self._meter, results)
            if throttled is not None:
                return throttled
        for index, (part, result) in enumerate(results):
            if not (index + 1) % PARTITIONS_PER_STEP:
                yield None
            if isinstance(result, Partition):
                result = self._data(result, part, self._nothing, _NO_EPOCH)
                results[index] = part, result
            count_fetched(self._broker, part, result, self._asker.follower)
        now_ms = self._broker.clock.monotonic_ms()
        reply = yield from self._context.finish(cast("list[Result]", results), now_ms)
        topics = (yield from group_by_topic(reply.results)) if reply.results else ()
        if self._is_follower and reply.error is ErrorCode.NONE:
            yield from self._settle()
        if len(self._partitions) > PARTITIONS_PER_STEP:
            self._not_at_end = []
            yield from let_go(self._partitions)
        response = FetchResponse(
            error_code=reply.error, session_id=reply.session_id, responses=topics
        )
        if self._leaders and not self._is_follower:
            endpoints = node_endpoints(
                self._broker.image, self._leaders, self._listener, NodeEndpoint
            )
            response = response.replace(node_endpoints=endpoints)
        return response

    def _throttled(
        self, meter: FetchMeter, results: list[tuple[SessionPartition, PartitionData | Partition]]
    ) -> Steps[FetchResponse | None]:
        """Return the answer to a consumer that has had too much."""
        told = [
            (part, self._data(result, part, self._nothing, _NO_EPOCH))
            if isinstance(result, Partition)
            else (part, result)
            for part, result in results
        ]
        return throttled(meter, self._context, told, self._version)

    def read(self) -> Steps[None]:
        """Read every partition as far as the limits allow; unknown partitions come last."""
        self._results, self._bytes, self._copied, self._filled = [], 0, 0, 0
        self._at_once, self.remote = False, []
        self._not_at_end, self._change_count = [], self._broker.change_count
        if self._has_read:
            self._partitions = self._context.look_again()
        left = self._max_bytes
        missing: list[tuple[SessionPartition, PartitionData | Partition]] = []
        is_incremental = isinstance(self._context, IncrementalFetchContext)
        refused = self._refused
        step = PARTITIONS_PER_STEP
        for part in self._partitions:
            step -= 1
            if not step:
                step = PARTITIONS_PER_STEP
                yield None
            try:
                if refused and part.topic in refused:
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "it may not be read")
                if self._rack and (sent_on := self._sent_on(part)) is not None:
                    self._results.append((part, sent_on))
                    continue
                partition = self._follows(part) if self._is_follower else self._at_end(part)
                if partition is not None:
                    # A request may have very many, of which few have anything new.
                    if (
                        not is_incremental
                        or part.high_watermark != part.request.fetch_offset
                        or part.log_start_offset != partition.log.log_start_offset
                    ):
                        self._results.append((part, partition))
                    continue
                self._not_at_end.append(part)
                result, size = self._read_partition(part, left)
            except log_read.OffsetMovedToTier as error:
                self._at_once = True
                result, size = self._moved(part, left, error)
            except KafkaError as error:
                self._at_once = True
                result, size = self._failed(part, error.code), 0
                if error.code in _NO_LOG:
                    missing.append((part, result))
                    continue
            if result is not None:
                self._results.append((part, result))
            if size:
                self._filled += 1
                self._bytes += size
                left -= size
        self._results += missing
        self._has_read = True

    # The remote tier

    def _moved(
        self, part: SessionPartition, left: int, error: KafkaError
    ) -> tuple[PartitionData, int]:
        """Answer a follower where the log is, and have what a consumer wants read later (T12)."""
        partition = part.local
        if partition is None or self._broker.tier is None:
            return self._failed(part, ErrorCode.KAFKA_STORAGE_ERROR), 0
        if self._version < UNCONVERTED:
            # Out of range would make its client jump.
            return self._failed(part, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT), 0
        if self._version < 10 and partition.rules.codec is Codec.ZSTD:
            return self._failed(part, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), 0
        data = self._data(partition, part, self._nothing, _NO_EPOCH)
        if self._is_follower:
            return data.replace(error_code=error.code), 0
        limit = max(0, min(part.request.partition_max_bytes, left))
        if not limit:
            return data, 0
        wanted = RemotePart(
            len(self._results),
            partition,
            part.request.fetch_offset,
            limit,
            whole_batch=self._bytes == 0,
            reads_committed=self._reads_committed,
        )
        self.remote.append(wanted)
        return data, limit

    def filled_remotely(
        self, wanted: RemotePart, records: bytes, aborted: Sequence[AbortedTxn]
    ) -> None:
        """Answer with what was read of the remote tier."""
        part, data = self._results[wanted.place]
        assert isinstance(data, PartitionData)
        if self._reads_committed:
            data = data.replace(aborted_transactions=_told(aborted))
        self._results[wanted.place] = part, data.replace(records=records)

    def failed_remotely(self, wanted: RemotePart, code: ErrorCode) -> None:
        """Answer that it could not be read."""
        part, _ = self._results[wanted.place]
        self._results[wanted.place] = part, self._failed(part, code)

    # Waiting

    def may_wait_unread(self) -> Steps[bool]:
        """Look all partitions up, and tell whether their sizes alone decide when to answer.

        They do not if one is unknown, or no bytes are enough. A follower's are read at once, to
        take in how far it is, and those of a consumer that may be sent to another replica.
        """
        if self._is_follower or self._rack or self.min_bytes <= 0 or self._refused:
            return False
        for number, part in enumerate(self._partitions, 1):
            if not number % PARTITIONS_PER_STEP:
                yield None
            if part.local is None or part.local.is_gone:
                part.local = self._look_up(part)
                if part.local is None:
                    return False
        return True

    def wait(
        self, look: Callable[[SessionPartition], None]
    ) -> dict[TopicPartition, SessionPartition]:
        """Forget what was read, and return the partitions to watch, all of which were found.

        A follower's session is told by itself what happens to any of its partitions: it calls
        ``look``.
        """
        self._results = []
        self._told_by = self._context.unsettled
        if self._told_by is None:
            return {part.local.key: part for part in self._partitions if part.local is not None}
        self._told_by.wait(look)
        return {}

    def wait_no_more(self, look: Callable[[SessionPartition], None]) -> None:
        """End what ``wait`` has begun, unless the next request of the session waits by now."""
        if self._told_by is not None and self._told_by.waiting == look:
            self._told_by.waiting = None

    @property
    def unsettled(self) -> Sequence[SessionPartition]:
        """The partitions of which more may be readable than nothing.

        Those at whose end the reader was are not looked at again, if nothing has happened since.
        """
        is_settled = self._change_count == self._broker.change_count
        return self._not_at_end if is_settled else self._context.look_again()

    def readable_bytes(self, part: SessionPartition) -> int | None:
        """Tell how many bytes a partition has for this fetch, without reading it.

        As in Kafka no more than ``partition_max_bytes`` count, even if a first batch is larger.
        None if the fetch must be answered at once: for an error, a diverging epoch, or because
        waiting does not bring more.
        """
        if self._at_end(part) is not None:
            return 0
        asked = part.request
        try:
            partition = self._find(part)
            epoch, offset = asked.last_fetched_epoch, asked.fetch_offset
            if self._diverging_epoch(partition, epoch, offset) is not None:
                return None
            if self._is_held_back(partition):
                return 0
            limit = min(asked.partition_max_bytes, self.min_bytes)
            return log_read.readable_bytes(partition.log, offset, self._isolation, limit)
        except KafkaError:
            return None

    def _sent_on(self, part: SessionPartition) -> PartitionData | None:
        """Return what sends a consumer to another replica, without records (KIP-392).

        It is told at once. What it does not find there, it asks for here again.
        """
        partition = self._find(part)
        replica = replica_to_read(
            self._broker, partition, part.request.fetch_offset, self._rack, self._listener
        )
        if replica is None:
            return None
        self._at_once = True
        data = self._data(partition, part, FetchData(), _NO_EPOCH)
        return data.replace(preferred_read_replica=replica)

    def _at_end(self, part: SessionPartition) -> Partition | None:
        """Return a partition if a consumer has read it to its end and nothing else is to be told.

        ``_read_partition`` would come to the same result, but take longer.
        """
        partition: Partition | None = part.local
        if partition is None or partition.is_gone:
            partition = part.local = self._look_up(part)
            if partition is None:
                return None
        log, asked = partition.log, part.request
        if (
            asked.fetch_offset != log.high_watermark
            or asked.last_fetched_epoch >= 0
            or self._is_follower
            or not log.disk.is_online()
        ):
            return None
        epoch = asked.current_leader_epoch
        if (
            (epoch != ANY_EPOCH and epoch != partition.image.leader_epoch)
            or (self._asker.needs_leader and not partition.is_led)
            or (self._reads_committed and log.last_stable_offset != asked.fetch_offset)
        ):
            return None
        return partition

    def _follows(self, part: SessionPartition) -> Partition | None:
        """Return a partition if a follower has all of it, and all of it is committed.

        As ``_at_end``: it is noted how far the follower is, and that is all there is to do.
        """
        partition: Partition | None = part.local
        if partition is None or partition.is_gone:
            return None
        log, asked = partition.log, part.request
        offset = asked.fetch_offset
        if (
            not offset == log.log_end_offset == log.high_watermark
            or asked.current_leader_epoch != partition.image.leader_epoch
            or not partition.is_led
            or log.disk.failure is not None
            or self._asker.follower not in partition.image.replicas
            or self._diverging_epoch(partition, asked.last_fetched_epoch, offset) is not None
        ):
            return None
        if not self._has_read:
            self._note_follower(partition, part)
        return partition

    def _settle(self) -> Steps[None]:
        """Leave out of the next fetches what the follower has and knows to be committed."""
        follower = self._asker.follower
        assert follower is not None
        for number, part in enumerate(self._partitions, 1):
            if not number % PARTITIONS_PER_STEP:
                yield None
            unsettled = self._context.unsettled
            if unsettled is None:
                return
            try:
                partition = self._follows(part)
            except KafkaError:
                # It was told so when this was read.
                continue
            if partition is None or follower not in partition.replication.isr:
                # Out of the ISR, each fetch is an attempt to come into it.
                continue
            log, known = partition.log, partition.replication.follower(follower)
            if known is not None and (part.high_watermark, part.log_start_offset) == (
                log.high_watermark,
                log.log_start_offset,
            ):
                unsettled.settle(part, known)

    def _look_up(self, part: SessionPartition) -> Partition | None:
        partitions = self._broker.partitions
        if part.topic is None:
            return None
        if self._version >= 13:
            return partitions.get_by_id(part.topic_id, part.partition)
        return partitions.get(part.topic, part.partition)

    def _find(self, part: SessionPartition) -> Partition:
        if part.topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
        # Any negative one is none at all.
        epoch = max(part.request.current_leader_epoch, ANY_EPOCH)
        known: Partition | None = part.local
        if known is not None and not known.is_gone:
            known.log.disk.ensure_online()
            check_asker(self._broker, known, self._asker, epoch)
            return known
        if self._version >= 13:
            local = self._broker.partitions.get(part.topic, part.partition)
            if local is not None and local.topic_id != part.topic_id:
                local.log.disk.ensure_online()
                raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, "the log has another topic id")
        found = find_partition(self._broker, part.topic, part.partition, self._asker, epoch)
        part.local = found
        return found

    def _read_partition(
        self, part: SessionPartition, left: int
    ) -> tuple[PartitionData | None, int]:
        partition, asked = self._find(part), part.request
        log = partition.log
        diverging = self._diverging_epoch(partition, asked.last_fetched_epoch, asked.fetch_offset)
        if diverging is not None:
            self._at_once = True
            return self._data(partition, part, FetchData(), diverging), 0
        limit = max(0, min(asked.partition_max_bytes, left))
        is_first = self._bytes == 0 and self._version > 2
        if self._is_held_back(partition):
            limit, is_first, soon = 0, False, None
        else:
            soon = self._read_soon(partition, asked.fetch_offset, limit, is_first=is_first)
        answer: PartitionData | None = None
        if soon is not None:
            answer = self._data(partition, part, self._nothing, _NO_EPOCH, soon)
            if self._is_follower and not self._has_read:
                self._note_follower(partition, part)
            return answer, len(soon)
        found = log_read.read(
            log, asked.fetch_offset, limit, self._isolation, min_one_batch=is_first
        )
        if (found.first_batch_incomplete and self._version > 2) or (
            self._copied >= COPIED_BYTES_MAX and not self._may_stay(partition, found)
        ):
            found = found._replace(slice=None)
        if found.slice is not None or not self._context.may_omit(
            part, log.high_watermark, log.log_start_offset
        ):
            answer = self._data(partition, part, found, _NO_EPOCH)
        if self._is_follower and not self._has_read:
            self._note_follower(partition, part)
        return answer, found.size

    def _is_held_back(self, partition: Partition) -> bool:
        """Tell whether a follower is sent nothing now: throttled and out of sync (F18)."""
        if not (self._is_follower and partition.throttles_leading):
            return False
        quota, now_ms = self._broker.throttles.leader, self._broker.clock.monotonic_ms()
        return self._asker.follower not in partition.replication.isr and quota.is_exceeded(now_ms)

    def _read_soon(
        self, partition: Partition, offset: int, limit: int, *, is_first: bool
    ) -> bytes | None:
        """Read what takes one small read, and is copied into the answer; None if it takes more."""
        if (
            self._copied >= COPIED_BYTES_AT_ONCE
            or self._version < UNCONVERTED
            or partition.rules.codec is not None
        ):
            return None
        try:
            piece = log_read.read_soon(partition.log, offset, limit, self._isolation)
        except OSError:
            # The slow path runs into the same error, and handles it.
            return None
        # Only the first that has anything returns a batch that is larger than its limit.
        if not isinstance(piece, bytes) or (len(piece) > limit and not is_first):
            return None
        self._copied += len(piece)
        return piece

    def _note_follower(self, partition: Partition, part: SessionPartition) -> None:
        """Take in how far a follower is: it has everything below the offset that it asks for.

        The answer is already made, so it has the high watermark from before this.
        """
        asked, replica_id = part.request, self._asker.follower
        assert replica_id is not None
        self._broker.commits.fetched(
            partition,
            replica_id,
            asked.fetch_offset,
            asked.log_start_offset,
            self._replica_epoch,
        )

    def _diverging_epoch(
        self, partition: Partition, last_fetched_epoch: int, fetch_offset: int
    ) -> EpochEndOffset | None:
        """Return where the client's log diverges from this one, if it does (KIP-595, KIP-320)."""
        if last_fetched_epoch < 0:
            return None
        log = partition.log
        end = log.leader_epochs.end_offset_for(last_fetched_epoch, log.log_end_offset)
        if end.end_offset < 0:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, "the log has no epoch up to the one asked for"
            )
        if end.epoch < last_fetched_epoch or end.end_offset < fetch_offset:
            return EpochEndOffset(epoch=end.epoch, end_offset=end.end_offset)
        return None

    def _data(
        self,
        partition: Partition,
        part: SessionPartition,
        found: FetchData,
        diverging: EpochEndOffset,
        records: Records | None = None,
    ) -> PartitionData:
        """Tell of a partition; ``records`` are those that were found, if they are read already."""
        log = partition.log
        aborted = found.aborted_transactions
        if records is None:
            records = self._records(partition, found, part.request.fetch_offset)
        return PartitionData(
            partition_index=part.partition,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            diverging_epoch=diverging,
            aborted_transactions=None if aborted is None else _told(aborted),
            records=records,
        )

    def _records(self, partition: Partition, found: FetchData, fetch_offset: int) -> Records:
        piece = found.slice
        if piece is None or piece.size == 0:
            return b""
        if self._version < UNCONVERTED:
            return unconverted(partition, piece, self._version, fetch_offset)
        if self._version < 10 and partition.rules.codec is Codec.ZSTD:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs fetch version 10")
        is_cheap = piece.size < SENDFILE_BYTES_MIN and self._copied < COPIED_BYTES_AT_ONCE
        if is_cheap or not self._may_stay(partition, found):
            self._copied += piece.size
            return _read(partition, piece)
        # It has a length, as bytes have, and the connection knows how to send it.
        return cast("Records", FileRecords(piece))

    def _may_stay(self, partition: Partition, found: FetchData) -> bool:
        """Tell whether records may stay in their file until they are sent.

        The encoder takes them only if they are long enough to be a chunk of their own.
        """
        return found.size >= CHUNK_BYTES_MIN and partition.log.may_hold_file

    def _failed(self, part: SessionPartition, code: ErrorCode) -> PartitionData:
        return PartitionData(
            partition_index=part.partition,
            error_code=code,
            high_watermark=-1,
            current_leader=self._leader(part) if code in _ELSEWHERE else _NO_LEADER,
            # As in Kafka: null if there was a log to read.
            aborted_transactions=() if code in _NO_LOG else None,
            records=b"",
        )

    def _leader(self, part: SessionPartition) -> LeaderIdAndEpoch:
        if self._version < _TELLS_LEADER or part.topic is None:
            return _NO_LEADER
        image = self._broker.image.partition(part.topic, part.partition)
        if image is None:
            return _NO_LEADER
        self._leaders.add(image.leader)
        return LeaderIdAndEpoch(leader_id=image.leader, leader_epoch=image.leader_epoch)


def _told(aborted: Sequence[AbortedTxn]) -> tuple[AbortedTransaction, ...]:
    return tuple(
        AbortedTransaction(producer_id=ProducerId(txn.producer_id), first_offset=txn.first_offset)
        for txn in aborted
    )


def _read(partition: Partition, piece: LogSlice) -> bytes:
    try:
        return piece.read()
    except OSError as error:
        raise partition.log.disk.failed_to_read(f"reading {partition.key}", error) from error
