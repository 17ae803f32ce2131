"""The common fetch request, recognised by its bytes.

A consumer without a fetch session that reads one partition sends the same request again and again:
only the correlation id and the offset change. When there is enough to read, the answer is put
together from prepared parts. Everything else (errors, waiting, aborted transactions, sessions)
takes the slow path; the fetches of followers have a shortcut of their own (``follower_fetch``).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, ClassVar, cast

from dohle.core.errors import KafkaError
from dohle.protocol.codec.pattern import find_pattern
from dohle.protocol.codec.unsigned_varint import RecordsElsewhere, uvarint
from dohle.protocol.framing import encode_response
from dohle.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from dohle.protocol.schema import CHUNK_BYTES_MIN, Records
from dohle.server.net.outcome import FileRecords, Frame
from dohle.server.net.sending import SENDFILE_BYTES_MIN
from dohle.server.net.shortcut import Served, Shortcut
from dohle.server.partitions.fetch_reader import fetching_replica, isolation_of
from dohle.server.partitions.lookup import ANY_EPOCH, fetching
from dohle.server.partitions.read_replicas import client_rack
from dohle.server.shortcuts.follower_fetch import learn_follower_fetch
from dohle.storage import log_read
from dohle.storage.log_values import Isolation

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer

# From the first version that sends batches as they are on.
_VERSIONS = range(4, 18)
_FIRST_WITH_TOPIC_IDS = 13
_SESSIONLESS = -1
# Where the API key and version end, and where the correlation id does.
_HEAD_END, _PREFIX_START = 4, 8
_ASKED = {8: "q"}
# What changes in a good answer, by its size: high watermark, last stable offset, start (v5).
_ANSWERED = {16: "2q", 24: "3q"}

#: Correlation id and offset.
Fields = tuple[int, int]


def learn_fetch(broker: BrokerServer, served: Served) -> Shortcut | None:
    """Learn from a follower's fetch, or a consumer's of a single partition without a session."""
    request: FetchRequest = served.request
    if fetching_replica(request) is not None:
        return learn_follower_fetch(broker, served)
    if served.version not in _VERSIONS or request.session_epoch != _SESSIONLESS:
        return None
    if request.session_id:
        return None
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return None
    (asked,) = request.topics[0].partitions
    if asked.last_fetched_epoch != -1:
        return None
    sends_on = bool(client_rack(broker, request, served.version))
    learnt = FetchShortcut(served, broker.fetch_max_bytes, sends_on=sends_on)
    fields = learnt.fits(served.frame)
    # It does not fit if the client encodes something differently from this encoder.
    is_recognised = fields is not None and fields[1] == asked.fetch_offset
    return learnt if is_recognised else None


class FetchShortcut:
    """A fetch of one partition, without what changes from one request to the next."""

    joins: ClassVar[bool] = False
    __slots__ = (
        "_answer",
        "_by_id",
        "_epoch",
        "_head",
        "_index",
        "_isolation",
        "_limit",
        "_min_bytes",
        "_needs_leader",
        "_prefix",
        "_sends_on",
        "_size",
        "_suffix",
        "_topic_id",
        "_topic_name",
        "_unpack",
        "served",
    )

    def __init__(self, served: Served, fetch_max_bytes: int, *, sends_on: bool) -> None:
        """Learn; ``sends_on`` tells whether a leader may send its client to another replica."""
        self.served = 0
        self._sends_on = sends_on
        request, version, frame = served.request, served.version, served.frame
        topic = request.topics[0]
        asked = topic.partitions[0]
        zeros, ones = (_with_offset(request, offset).encode(version) for offset in (0, -1))
        before, self._suffix = find_pattern(zeros, ones, _ASKED).constants
        self._head = bytes(frame[:_HEAD_END])
        self._prefix = bytes(frame[_PREFIX_START : served.body_offset]) + before
        fields = struct.Struct(f">{_HEAD_END}si{len(self._prefix)}sq{len(self._suffix)}s")
        self._unpack, self._size = fields.unpack, fields.size
        self._topic_id, self._topic_name = topic.topic_id, topic.topic
        self._index, self._epoch = asked.partition, max(asked.current_leader_epoch, ANY_EPOCH)
        self._by_id = version >= _FIRST_WITH_TOPIC_IDS
        self._limit = max(0, min(asked.partition_max_bytes, request.max_bytes, fetch_max_bytes))
        self._min_bytes = request.min_bytes
        self._needs_leader = fetching(None, version).needs_leader
        self._isolation = isolation_of(request)
        self._answer = _Answer(request, version)

    def fits(self, frame: memoryview) -> Fields | None:
        """Return the fields that may change, if everything else is the same."""
        if len(frame) != self._size:
            return None
        head, correlation_id, prefix, offset, suffix = self._unpack(frame)
        if prefix != self._prefix or suffix != self._suffix or head != self._head:
            return None
        return correlation_id, offset

    def handle(self, broker: BrokerServer, fields: Fields) -> Frame | None:
        """Answer if there is enough to read; None if the request must take the slow path."""
        correlation_id, offset = fields
        if self._by_id:
            partition = broker.partitions.get_by_id(self._topic_id, self._index)
        else:
            partition = broker.partitions.get(self._topic_name, self._index)
        if partition is None or partition.rules.codec is not None:
            return None
        if self._sends_on if partition.is_led else self._needs_leader:
            return None
        log = partition.log
        try:
            if self._epoch != ANY_EPOCH:
                partition.check_epoch(self._epoch)
            limit, isolation = self._limit, self._isolation
            piece = log_read.read_soon(log, offset, limit, isolation)
            if piece is None:
                found = log_read.read(log, offset, limit, isolation, min_one_batch=True)
                piece = found.slice
                if piece is None or found.aborted_transactions:
                    return None
            if not isinstance(piece, bytes) and (
                piece.size < SENDFILE_BYTES_MIN or not log.may_hold_file
            ):
                piece = piece.read()
        except (KafkaError, OSError):
            # The slow path runs into the same error, and handles it.
            return None
        size = len(piece) if isinstance(piece, bytes) else piece.size
        if size < self._min_bytes:
            return None
        traffic = partition.traffic
        traffic.fetch_requests += 1
        traffic.bytes_out += size
        answer = self._answer
        head = answer.head(
            size, correlation_id, log.high_watermark, log.last_stable_offset, log.log_start_offset
        )
        if isinstance(piece, bytes):
            return [b"".join((head, piece, answer.tail))]
        if tail := answer.tail:
            return [head, FileRecords(piece), tail]
        return [head, FileRecords(piece)]


class _RecordsOfAnswer(RecordsElsewhere):
    """Records just long enough for the encoder to make them a chunk of their own."""

    def __len__(self) -> int:
        return CHUNK_BYTES_MIN


class _Answer:
    """The parts of a good answer that do not change, cut from an encoded one."""

    __slots__ = (
        "_before",
        "_behind",
        "_behind_sized",
        "_has_log_start",
        "_head_size",
        "_is_flexible",
        "_pack",
        "_sized",
        "_total",
        "tail",
    )

    def __init__(self, request: FetchRequest, version: int) -> None:
        self._is_flexible = FetchResponse.FLEXIBLE.covers(version)
        zeros, ones = (
            encode_response(_response(request, number), version, 0) for number in (0, -1)
        )
        # The size of the records stands before them, and ends the first chunk.
        end = len(zeros[0]) - len(self._size_field(CHUNK_BYTES_MIN))
        pattern = find_pattern(bytes(zeros[0][8:end]), bytes(ones[0][8:end]), _ANSWERED)
        self._before, self._behind = pattern.constants
        self._has_log_start = _ANSWERED[24] in pattern.format
        #: What stands behind the records.
        self.tail = b"".join(zeros[2:])
        self._behind_sized = b""
        self._size_for(0)

    def _size_field(self, size: int) -> bytes:
        return uvarint(size + 1) if self._is_flexible else size.to_bytes(4, "big")

    def _size_for(self, size: int) -> None:
        """Prepare for records of this size: the next ones often have the same size."""
        behind = self._behind + self._size_field(size)
        if len(behind) != len(self._behind_sized):
            offsets = "3q" if self._has_log_start else "2q"
            head = struct.Struct(f">ii{len(self._before)}s{offsets}{len(behind)}s")
            self._pack, self._head_size = head.pack, head.size
        self._sized, self._behind_sized = size, behind
        self._total = self._head_size - 4 + size + len(self.tail)

    def head(
        self,
        size: int,
        correlation_id: int,
        high_watermark: int,
        last_stable_offset: int,
        log_start_offset: int,
    ) -> bytes:
        """Return what stands before ``size`` bytes of records; ``tail`` stands behind them."""
        if size != self._sized:
            self._size_for(size)
        if self._has_log_start:
            return self._pack(
                self._total,
                correlation_id,
                self._before,
                high_watermark,
                last_stable_offset,
                log_start_offset,
                self._behind_sized,
            )
        return self._pack(
            self._total,
            correlation_id,
            self._before,
            high_watermark,
            last_stable_offset,
            self._behind_sized,
        )


def _with_offset(request: FetchRequest, offset: int) -> FetchRequest:
    (topic,) = request.topics
    (asked,) = topic.partitions
    topic = topic.replace(partitions=(asked.replace(fetch_offset=offset),))
    return request.replace(topics=(topic,))


def _response(request: FetchRequest, number: int) -> FetchResponse:
    (topic,) = request.topics
    partition = PartitionData(
        partition_index=topic.partitions[0].partition,
        high_watermark=number,
        last_stable_offset=number,
        log_start_offset=number,
        aborted_transactions=() if isolation_of(request) is Isolation.TXN_COMMITTED else None,
        records=cast("Records", _RecordsOfAnswer()),
    )
    found = FetchableTopicResponse(
        topic=topic.topic, topic_id=topic.topic_id, partitions=(partition,)
    )
    return FetchResponse(responses=(found,))
