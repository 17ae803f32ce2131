"""A follower's next fetch, recognised by its bytes.

A follower keeps all partitions of a leader in a session, and names only those that it has got
something of: a few, with their offsets. The rest of the request is the same again and again, but
for the correlation id and the session's epoch. What is named is read off the bytes, and looked at
together with what else is unsettled in the session (``replication.settled``).

Where all of that is as it mostly is (led here, in the epoch that the follower knows, its log a
beginning of this one), the follower's offset is noted, and it is answered from prepared parts: at
once if there is anything to read, else when there is or its time is up (Kafka's DelayedFetch).
Everything else takes the slow path, also if it comes while the fetch waits.
"""

from __future__ import annotations

import struct
from asyncio import Future
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, NamedTuple, cast

from dohle.core.errors import KafkaError
from dohle.core.ids import TopicPartition, Uuid
from dohle.core.steps import Steps
from dohle.protocol.framing import encode_response
from dohle.protocol.messages.fetch import FetchPartition, FetchRequest
from dohle.protocol.response_errors import error_codes_of
from dohle.replication.fetch_sessions import IncrementalFetchContext, SessionPartition
from dohle.replication.follower_frames import (
    COMMON_PARTITIONS_MAX,
    COMMON_VERSIONS,
    Asked,
    pack_answer_head,
    pack_told,
    pack_topic_head,
    parts_of,
    read_asked,
)
from dohle.server.net.outcome import Chunk, FileRecords, Frame
from dohle.server.net.sending import SENDFILE_BYTES_MIN
from dohle.server.net.shortcut import Served
from dohle.server.net.slices import in_slices, result_of, work_for
from dohle.server.partitions.fetch_reader import FetchReader, fetching_replica
from dohle.server.partitions.partitions import Partition
from dohle.storage import log_read
from dohle.storage.log_values import Isolation

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer

# Where the API key and version end, and where the correlation id does.
_HEAD_END, _PREFIX_START = 4, 8
_KIND = "FetchFollower"
# Looking up a member of an enum is slow.
_LOG_END = Isolation.LOG_END

# Size, correlation id, and no tags.
_HEAD = struct.Struct(">iib")
_SIZE_BYTES = 4
_NO_TAGS = b"\0"

#: Correlation id, the session's epoch, and what is named.
Fields = tuple[int, int, list[Asked]]


class Found(NamedTuple):
    """A partition that is looked at, and what there is to read."""

    part: SessionPartition
    partition: Partition
    records: bytes | FileRecords


def learn_follower_fetch(broker: BrokerServer, served: Served) -> FollowerFetchShortcut | None:
    """Learn from a fetch within a follower's session that is content with one byte."""
    request: FetchRequest = served.request
    if (
        served.version not in COMMON_VERSIONS
        or not request.session_id
        or request.session_epoch <= 0
        or request.forgotten_topics_data
        or request.min_bytes != 1
        or request.max_bytes < 1
        or fetching_replica(request) == broker.node_id
    ):
        return None
    learnt = FollowerFetchShortcut(served, broker.fetch_max_bytes)
    fields = learnt.fits(served.frame)
    named = [Asked(topic.topic_id, asked) for topic in request.topics for asked in topic.partitions]
    # It does not fit if the client encodes something differently from this encoder.
    is_recognised = fields is not None and fields[1:] == (request.session_epoch, named)
    return learnt if is_recognised else None


class FollowerFetchShortcut:
    """The fetches of one follower's session."""

    joins: ClassVar[bool] = False
    __slots__ = (
        "_at",
        "_broker_epoch",
        "_head",
        "_max_bytes",
        "_max_wait_ms",
        "_prefix",
        "_replica",
        "_request",
        "_session_id",
        "_suffix",
        "_unpack",
        "_version",
        "served",
    )

    def __init__(self, served: Served, fetch_max_bytes: int) -> None:
        self.served = 0
        request: FetchRequest = served.request
        version, frame = served.version, served.frame
        prefix, self._suffix = parts_of(request, version)
        self._head = bytes(frame[:_HEAD_END])
        self._prefix = bytes(frame[_PREFIX_START : served.body_offset]) + prefix
        fields = struct.Struct(f">{_HEAD_END}si{len(self._prefix)}si")
        self._unpack, self._at = fields.unpack_from, fields.size
        self._request, self._version = request.replace(topics=()), version
        self._session_id = request.session_id
        replica = fetching_replica(request)
        assert replica is not None
        self._replica = replica
        self._broker_epoch = request.replica_state.replica_epoch
        self._max_bytes = min(request.max_bytes, fetch_max_bytes)
        self._max_wait_ms = request.max_wait_ms

    def fits(self, frame: memoryview) -> Fields | None:
        """Return the fields that may change, if everything else is the same."""
        at = self._at
        if len(frame) <= at:
            return None
        head, correlation_id, prefix, epoch = self._unpack(frame)
        if prefix != self._prefix or head != self._head:
            return None
        named = read_asked(bytes(frame[at:]), self._suffix)
        return None if named is None else (correlation_id, epoch, named)

    def handle(self, broker: BrokerServer, fields: Fields) -> Frame | Future[Frame] | None:
        """Answer, or wait for something to read; None if the request takes the slow path."""
        correlation_id, epoch, named = fields
        now_ms = broker.clock.monotonic_ms()
        session = broker.fetch_sessions.followed(
            self._session_id, epoch, self._broker_epoch, now_ms
        )
        if session is None or self._is_of_before(broker):
            return None
        moved: dict[SessionPartition, FetchPartition] = {}
        for topic_id, asked in named:
            part = session.partitions.get((topic_id, asked.partition))
            if part is None or part.request.current_leader_epoch != asked.current_leader_epoch:
                return None
            moved[part] = asked
        looked_at = {part: part.request for part in session.unsettled or ()}
        looked_at.update(moved)
        found = self._find(looked_at.items())
        if found is None:
            return None
        # From here on it is carried out.
        context = broker.fetch_sessions.go_on(session, [*moved.items()], now_ms)
        frame: Frame | None = None
        if self._max_wait_ms <= 0 or any(each.records for each in found):
            frame = self._answer(context, found, correlation_id)
        for part, partition, _ in found:
            asked = part.request
            broker.commits.fetched(
                partition,
                self._replica,
                asked.fetch_offset,
                asked.log_start_offset,
                self._broker_epoch,
            )
        if frame is not None:
            self._settle(context, found)
            return frame
        wait = _Wait(self, broker, context, correlation_id, now_ms + self._max_wait_ms)
        for part, _, _ in found:
            wait.look(part)
        return wait.future

    def _is_of_before(self, broker: BrokerServer) -> bool:
        """Tell whether the follower is that of an earlier registration (KIP-903)."""
        known_epoch = broker.commits.brokers.get(self._replica, -1)
        return -1 < self._broker_epoch < known_epoch

    # What there is

    def _find(
        self, looked_at: Iterable[tuple[SessionPartition, FetchPartition]]
    ) -> list[Found] | None:
        """Read all partitions, as far as the limits allow; None if one is for the slow path."""
        found: list[Found] = []
        left = self._max_bytes
        for part, asked in looked_at:
            if not self.is_common(part, asked) or len(found) >= COMMON_PARTITIONS_MAX:
                return None
            partition: Partition = part.local
            if asked.fetch_offset == partition.log.log_end_offset:
                found.append(Found(part, partition, b""))
                continue
            limit = max(0, min(asked.partition_max_bytes, left))
            is_first = left == self._max_bytes
            records = _read(partition, asked.fetch_offset, limit, is_first=is_first)
            if records is None:
                return None
            left -= len(records)
            found.append(Found(part, partition, records))
        return found

    def is_common(self, part: SessionPartition, asked: FetchPartition) -> bool:
        """Tell whether a partition can be read from where the follower is, as is mostly so."""
        partition: Partition | None = part.local
        if partition is None or partition.is_gone:
            return False
        log, image = partition.log, partition.image
        epoch = asked.last_fetched_epoch
        return (
            partition.is_led
            and not partition.throttles_leading
            and asked.current_leader_epoch == image.leader_epoch
            # In the newest epoch the logs cannot part before the end of either.
            and (epoch < 0 or epoch == log.leader_epochs.latest_epoch)
            and log.local_log_start_offset <= asked.fetch_offset <= log.log_end_offset
            and log.disk.is_online()
            and self._replica in image.replicas
            and partition.replication.follower(self._replica) is not None
        )

    # Answers

    def answer(
        self, broker: BrokerServer, context: IncrementalFetchContext, correlation_id: int
    ) -> Frame | None:
        """Answer after a wait, with what there is now; None if that is for the slow path."""
        unsettled = context.unsettled
        if unsettled is None:
            # The follower has given up waiting, and asked again.
            return None
        found = self._find([(part, part.request) for part in unsettled])
        if found is None:
            return None
        frame = self._answer(context, found, correlation_id)
        self._settle(context, found)
        return frame

    def slow_answer(
        self, broker: BrokerServer, context: IncrementalFetchContext, correlation_id: int
    ) -> Steps[Frame]:
        """Answer what is uncommon after a wait, as the slow path does."""
        reader = FetchReader(broker, self._request, self._version, context, "", has_waited=True)
        yield from reader.read()
        response = yield from reader.response()
        for code in error_codes_of(type(response))(response):
            if code:
                broker.requests.refused(_KIND, code)
        return cast("Frame", encode_response(response, self._version, correlation_id))

    def _answer(
        self, context: IncrementalFetchContext, found: list[Found], correlation_id: int
    ) -> Frame:
        """Take in what the follower is told, and tell it."""
        by_topic: list[tuple[Uuid, list[Chunk]]] = []
        for part, partition, records in found:
            log, size = partition.log, len(records)
            high_watermark, log_start = log.high_watermark, log.log_start_offset
            if not context.tell(part, high_watermark, log_start, has_records=size > 0):
                continue
            self._count(partition, size)
            if not by_topic or by_topic[-1][0] != part.topic_id:
                by_topic.append((part.topic_id, []))
            told = pack_told(
                part.partition, high_watermark, log.last_stable_offset, log_start, size
            )
            by_topic[-1][1].extend((told, records, _NO_TAGS))
        chunks: list[Chunk] = [pack_answer_head(self._session_id, len(by_topic))]
        for topic_id, pieces in by_topic:
            chunks += (pack_topic_head(topic_id, len(pieces) // 3), *pieces, _NO_TAGS)
        chunks.append(_NO_TAGS)
        size = _HEAD.size - _SIZE_BYTES + sum(map(len, chunks))
        head = _HEAD.pack(size, correlation_id, 0)
        return _joined(head, chunks)

    def _count(self, partition: Partition, size: int) -> None:
        traffic = partition.traffic
        traffic.fetch_requests += 1
        traffic.replication_bytes_out += size
        if self._replica in partition.image.adding_replicas:
            traffic.reassignment_bytes_out += size

    def _settle(self, context: IncrementalFetchContext, found: list[Found]) -> None:
        """Leave out of the next fetches what the follower has and knows to be committed."""
        unsettled, replica = context.unsettled, self._replica
        for part, partition, _ in found:
            log, replication = partition.log, partition.replication
            if (
                part.request.fetch_offset == log.log_end_offset == log.high_watermark
                and unsettled is not None
                and replica in replication.isr
                and (part.high_watermark, part.log_start_offset)
                == (log.high_watermark, log.log_start_offset)
                and (known := replication.follower(replica)) is not None
            ):
                unsettled.settle(part, known)


class _Wait:
    """A follower's fetch in the purgatory. Anything to read is enough for it."""

    __slots__ = (
        "_broker",
        "_context",
        "_correlation_id",
        "_delayed",
        "_is_answered",
        "_shortcut",
        "_unsettled",
        "future",
    )

    def __init__(
        self,
        shortcut: FollowerFetchShortcut,
        broker: BrokerServer,
        context: IncrementalFetchContext,
        correlation_id: int,
        deadline_ms: int,
    ) -> None:
        self._shortcut = shortcut
        self._broker = broker
        self._context = context
        self._correlation_id = correlation_id
        self._is_answered = False
        self._unsettled = context.unsettled
        assert self._unsettled is not None, "it is the newest of its session"
        self._unsettled.wait(self.look)
        self.future: Future[Frame] = broker.loop.create_future()
        self.future.add_done_callback(self._gone)
        self._delayed = broker.purgatory.watch(self, (), deadline_ms)
        broker.expire_delayed_at(deadline_ms)

    def _gone(self, future: Future[Frame]) -> None:
        """Wait no more: it was answered, or the follower has gone."""
        unsettled = self._unsettled
        if unsettled is not None and unsettled.waiting == self.look:
            unsettled.waiting = None
        self._broker.purgatory.cancel(self._delayed)

    def recheck(self, key: TopicPartition) -> None:
        """Do nothing: the session itself tells of what happens to its partitions."""

    def look(self, part: SessionPartition) -> None:
        """Answer if a partition has something to tell now."""
        asked = part.request
        if (
            self._shortcut.is_common(part, asked)
            and part.local.log.log_end_offset == asked.fetch_offset
        ):
            return
        self.answer()

    def answer(self) -> None:
        """Answer with what there is, unless the follower has gone: that is told a turn later."""
        if self._is_answered or self.future.done():
            return
        self._is_answered = True
        broker, asked = self._broker, (self._broker, self._context, self._correlation_id)
        broker.purgatory.cancel(self._delayed)
        # What goes wrong is this request's own trouble, not that of its waker.
        try:
            frame = self._shortcut.answer(*asked)
            if frame is None:
                steps = self._shortcut.slow_answer(*asked)
                found = in_slices(broker.turns, steps)
                if isinstance(found, Future):
                    work_for(broker.loop, self.future, result_of(found))
                    return
                frame = found
        except Exception as error:
            self.future.set_exception(error)
            return
        self.future.set_result(frame)


def _read(
    partition: Partition, offset: int, limit: int, *, is_first: bool
) -> bytes | FileRecords | None:
    """Read from an offset on, where there is something; None if that is for the slow path.

    Only the first that has anything returns a batch that is larger than its limit (KIP-74).
    """
    log = partition.log
    try:
        piece = log_read.read_soon(log, offset, limit, _LOG_END)
        if piece is None:
            found = log_read.read(log, offset, limit, _LOG_END, min_one_batch=is_first)
            piece = None if found.first_batch_incomplete else found.slice
            if piece is None:
                return b""
        if isinstance(piece, bytes):
            return piece if is_first or len(piece) <= limit else b""
        if piece.size > limit and not is_first:
            return b""
        if piece.size < SENDFILE_BYTES_MIN:
            return piece.read()
    except (KafkaError, OSError):
        # The slow path runs into the same error, and handles it.
        return None
    return FileRecords(piece) if log.may_hold_file else None


def _joined(head: bytes, chunks: list[Chunk]) -> Frame:
    """Put together what is in memory, between what is in files."""
    frame: Frame = []
    pieces: list[bytes | memoryview] = [head]
    for chunk in chunks:
        if isinstance(chunk, FileRecords):
            frame += (b"".join(pieces), chunk)
            pieces = []
        else:
            pieces.append(chunk)
    frame.append(b"".join(pieces))
    return frame
