"""The common fetch request, recognised by its bytes.

A consumer without a fetch session that reads one partition sends the same request again and again:
only the correlation id and the offset change. A connection remembers the last such request; when
the next one fits and there is enough to read, the answer is put together from its parts. Everything
else (errors, waiting, aborted transactions, sessions, replicas) goes the general way.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from dohle.core.errors import KafkaError
from dohle.protocol.codec.pattern import find_pattern
from dohle.protocol.codec.unsigned_varint import uvarint
from dohle.protocol.framing import encode_response
from dohle.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from dohle.server.net.outcome import FileRecords, Frame
from dohle.server.partitions.fetch_reader import SENDFILE_BYTES_MIN, fetching_replica, isolation_of
from dohle.storage.log_values import Isolation

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer

# From the first version that sends batches as they are on.
_VERSIONS = range(4, 18)
_FIRST_FLEXIBLE = 12
_SESSIONLESS = -1
_HEAD_END, _PREFIX_START = 4, 8
_OFFSET_SIZE = 8
_MARK = 0x1BADB0021BADB002


class FetchTemplate:
    """A fetch of one partition, less what changes from one to the next."""

    __slots__ = (
        "_answer",
        "_by_id",
        "_epoch",
        "_head",
        "_index",
        "_isolation",
        "_limit",
        "_min_bytes",
        "_prefix",
        "_size",
        "_suffix",
        "_topic_id",
        "_topic_name",
        "_unpack",
    )

    def __init__(
        self, broker: BrokerServer, head: bytes, prefix: bytes, suffix: bytes, request: FetchRequest
    ) -> None:
        version = int.from_bytes(head[2:4], "big")
        topic = request.topics[0]
        asked = topic.partitions[0]
        self._head, self._prefix, self._suffix = head, prefix, suffix
        self._topic_id, self._topic_name = topic.topic_id, topic.topic
        self._index, self._epoch = asked.partition, asked.current_leader_epoch
        self._by_id = version >= 13
        self._limit = min(asked.partition_max_bytes, request.max_bytes, broker.fetch_max_bytes)
        self._min_bytes = request.min_bytes
        self._isolation = isolation_of(request)
        self._answer = _Answer(request, version)
        fields = struct.Struct(f">{_HEAD_END}si{len(prefix)}sq{len(suffix)}s")
        self._unpack, self._size = fields.unpack, fields.size

    @classmethod
    def of(
        cls,
        broker: BrokerServer,
        frame: memoryview,
        body_offset: int,
        request: FetchRequest,
        version: int,
    ) -> FetchTemplate | None:
        """Make the template of a request, if it is of the common kind."""
        if version not in _VERSIONS or request.session_epoch != _SESSIONLESS or request.session_id:
            return None
        if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
            return None
        if fetching_replica(request) is not None:
            return None
        asked = request.topics[0].partitions[0]
        if asked.last_fetched_epoch != -1 or request.encode(version) != frame[body_offset:]:
            return None
        zeros, ones = (
            _with_partition(request, asked.replace(fetch_offset=offset)).encode(version)
            for offset in (0, -1)
        )
        before, behind = find_pattern(zeros, ones, {_OFFSET_SIZE: "q"}).constants
        prefix = bytes(frame[_PREFIX_START:body_offset]) + before
        return cls(broker, bytes(frame[:_HEAD_END]), prefix, behind, request)

    def handle(self, broker: BrokerServer, frame: memoryview) -> Frame | None:
        """Answer a request that fits and finds enough; None if it has to go the general way."""
        if len(frame) != self._size:
            return None
        start, correlation_id, prefix, offset, suffix = self._unpack(frame)
        if prefix != self._prefix or suffix != self._suffix or start != self._head:
            return None
        if self._by_id:
            partition = broker.partitions.get_by_id(self._topic_id, self._index)
        else:
            partition = broker.partitions.get(self._topic_name, self._index)
        if partition is None or partition.rules.codec is not None:
            return None
        log = partition.log
        try:
            if self._epoch != -1:
                partition.check_epoch(self._epoch)
            limit, isolation = self._limit, self._isolation
            piece = log.read_soon(offset, limit, isolation)
            if piece is None:
                found = log.read(offset, limit, isolation, min_one_batch=True)
                piece = found.slice
                if piece is None or found.aborted_transactions:
                    return None
            if not isinstance(piece, bytes) and piece.size < SENDFILE_BYTES_MIN:
                piece = piece.read()
        except (KafkaError, OSError):
            # The general way meets the same, and knows what to do about it.
            return None
        records = piece if isinstance(piece, bytes) else FileRecords(piece)
        size = len(records)
        if size < self._min_bytes:
            return None
        answer = self._answer
        head = answer.head(
            size, correlation_id, log.high_watermark, log.last_stable_offset, log.log_start_offset
        )
        if isinstance(records, bytes):
            return [b"".join((head, records, answer.tail))]
        if tail := answer.tail:
            return [head, records, tail]
        return [head, records]


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
        topic = request.topics[0]
        partition = PartitionData(
            partition_index=topic.partitions[0].partition,
            high_watermark=_MARK,
            last_stable_offset=_MARK,
            log_start_offset=_MARK,
            aborted_transactions=() if isolation_of(request) is Isolation.TXN_COMMITTED else None,
            records=b"",
        )
        responses = FetchableTopicResponse(
            topic=topic.topic, topic_id=topic.topic_id, partitions=(partition,)
        )
        encoded = b"".join(encode_response(FetchResponse(responses=(responses,)), version, 0))
        self._is_flexible = version >= _FIRST_FLEXIBLE
        #: Behind the records, which come last, there are only the ends of three structs.
        self.tail = b"\0\0\0" if self._is_flexible else b""
        records_at = len(encoded) - len(self.tail) - (1 if self._is_flexible else 4)
        self._has_log_start = version >= 5
        offsets = struct.pack(">q", _MARK) * (3 if self._has_log_start else 2)
        at = encoded.index(offsets)
        self._before, self._behind = encoded[8:at], encoded[at + len(offsets) : records_at]
        self._behind_sized = b""
        self._size_for(0)

    def _size_for(self, size: int) -> None:
        """Prepare for records of this size: those that follow often have it too."""
        length = uvarint(size + 1) if self._is_flexible else size.to_bytes(4, "big")
        behind = self._behind + length
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


def _with_partition(request: FetchRequest, partition: FetchPartition) -> FetchRequest:
    return request.replace(topics=(request.topics[0].replace(partitions=(partition,)),))
