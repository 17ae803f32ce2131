"""The common produce request, recognised by its bytes.

A producer sends the same request again and again: but for the correlation id, the partition and the
records, every byte is the one of the request before. A connection remembers the last request to a
single partition as a template; when the next one fits, neither it nor its answer has to be taken
apart field by field. What is done with the records is the same (``handlers.produce.append``), and
whatever does not fit, or fails, goes the general way. So do a transaction's first records in a
partition: its coordinator may have to be asked.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from dohle.core.errors import KafkaError
from dohle.core.ids import TopicName, Uuid
from dohle.protocol.framing import encode_response
from dohle.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from dohle.server.net.outcome import Frame
from dohle.server.partitions.appends import Appended, append, partition_response
from dohle.server.transactions.verification import is_open
from dohle.storage.producers.append import NO_VERIFICATION

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer

# From the first version with batches on.
_VERSIONS = range(3, 14)
_FIRST_FLEXIBLE = 9
_FIRST_WITH_TOPIC_IDS = 13
# Where the api key and version end, and where the correlation id does.
_HEAD_END, _PREFIX_START = 4, 8
_SIZE = struct.Struct(">i")
# Behind the records of a flexible request: partition, topic and request end, without tagged fields.
_TAIL = b"\0\0\0"

# Values that stand out in an encoded answer, to find where the real ones go.
_MARK_INDEX, _MARK_OFFSET = 0x1BADB002, 0x1BADB0021BADB002
_MARK_ERROR = 0x1BAD


class ProduceTemplate:
    """A produce request to one partition, less what changes from one to the next."""

    __slots__ = (
        "_acks",
        "_answer",
        "_client_id",
        "_head",
        "_is_transactional",
        "_prefix",
        "_size_at",
        "_topic",
        "_topic_id",
        "_unpack",
        "_version",
    )

    def __init__(
        self, head: bytes, prefix: bytes, request: ProduceRequest, version: int, client_id: str
    ) -> None:
        self._head = head
        self._prefix = prefix
        # Head, correlation id, prefix and partition; behind that the size of the records.
        fields = struct.Struct(f">{_HEAD_END}si{len(prefix)}si")
        self._unpack, self._size_at = fields.unpack_from, fields.size
        self._version = version
        self._client_id = client_id
        self._acks = request.acks
        self._is_transactional = request.transactional_id is not None
        self._topic: TopicName = request.topic_data[0].name
        self._topic_id: Uuid = request.topic_data[0].topic_id
        self._answer = _answer_format(self._topic, self._topic_id, version)

    @classmethod
    def of(
        cls, frame: memoryview, request: ProduceRequest, version: int, client_id: str
    ) -> ProduceTemplate | None:
        """Make the template of a request, if it is of the common kind."""
        if version not in _VERSIONS or request.acks == 0:
            return None
        if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
            return None
        records = request.topic_data[0].partition_data[0].records
        if not records:
            return None
        if version < _FIRST_FLEXIBLE:
            index_at = len(frame) - len(records) - _SIZE.size - 4
        else:
            if frame[-3:] != _TAIL:
                return None
            size_bytes = (len(records) + 1).bit_length() + 6
            index_at = len(frame) - len(_TAIL) - len(records) - size_bytes // 7 - 4
        head, prefix = bytes(frame[:_HEAD_END]), bytes(frame[_PREFIX_START:index_at])
        return cls(head, prefix, request, version, client_id)

    def handle(self, broker: BrokerServer, frame: memoryview) -> Callable[[], Frame] | None:
        """Append the records of a request that fits; None if it does not fit."""
        try:
            head, correlation_id, prefix, index = self._unpack(frame)
            if prefix != self._prefix or head != self._head:
                return None
            start, end = self._size_at, len(frame)
            if self._version < _FIRST_FLEXIBLE:
                (size,) = _SIZE.unpack_from(frame, start)
                start += _SIZE.size
            else:
                # One more than the size, seven bits to a byte, the lowest first.
                size = frame[start]
                start += 1
                if size > 0x7F:
                    size = size & 0x7F | frame[start] << 7
                    start += 1
                    if size > 0x3FFF:
                        size = size & 0x3FFF | frame[start] << 14
                        start += 1
                        if size > 0x1F_FFFF:
                            return None
                size -= 1
                end -= len(_TAIL)
                if frame[end:] != _TAIL:
                    return None
        except (struct.error, IndexError):
            return None
        if size < 0 or start + size != end:
            return None
        if self._version < _FIRST_WITH_TOPIC_IDS:
            partition = broker.partitions.get(self._topic, index)
        else:
            partition = broker.partitions.get_by_id(self._topic_id, index)
        if partition is None:
            return None
        records = frame[start:end]
        guard = None
        if self._is_transactional:
            if not is_open(partition, records):
                return None
            guard = NO_VERIFICATION
        now_ms = broker.clock.now_ms()
        outcome = append(
            broker, partition, records, self._acks, self._version, self._client_id, now_ms, guard
        )
        return lambda: self._reply(correlation_id, index, outcome)

    def _reply(self, correlation_id: int, index: int, outcome: Appended | KafkaError) -> Frame:
        if not isinstance(outcome, KafkaError):
            log, info = outcome[0].log, outcome[1]
            try:
                log.owner.ensure_online()
            except KafkaError as error:
                outcome = error
            else:
                first, time = info.first_offset, info.log_append_time_ms
                return [self._answer(correlation_id, index, first, time, log.log_start_offset)]
        response = _response(self._topic, self._topic_id, partition_response(index, outcome))
        return list(encode_response(response, self._version, correlation_id))


def _response(
    topic: TopicName, topic_id: Uuid, partition: PartitionProduceResponse
) -> ProduceResponse:
    found = TopicProduceResponse(name=topic, topic_id=topic_id, partition_responses=(partition,))
    return ProduceResponse(responses=(found,))


def _answer_format(
    topic: TopicName, topic_id: Uuid, version: int
) -> Callable[[int, int, int, int, int], bytes]:
    """Return a function that packs a good answer from what changes, cut from an encoded one."""
    marked = PartitionProduceResponse(
        index=_MARK_INDEX,
        error_code=_MARK_ERROR,
        base_offset=_MARK_OFFSET,
        log_append_time_ms=_MARK_OFFSET,
        log_start_offset=_MARK_OFFSET,
    )
    encoded = b"".join(encode_response(_response(topic, topic_id, marked), version, 0))
    has_log_start = version >= 5
    fields = struct.Struct(">ihqqq" if has_log_start else ">ihqq")
    marks = (_MARK_INDEX, _MARK_ERROR, _MARK_OFFSET, _MARK_OFFSET, _MARK_OFFSET)
    pattern = fields.pack(*marks[: 5 if has_log_start else 4])
    at = encoded.rindex(pattern)
    before, after = encoded[8:at], encoded[at + len(pattern) :]
    size = len(encoded) - 4
    pack = struct.Struct(f">ii{len(before)}s{fields.format[1:]}{len(after)}s").pack

    def answer(correlation_id: int, index: int, base_offset: int, time: int, start: int) -> bytes:
        if has_log_start:
            return pack(size, correlation_id, before, index, 0, base_offset, time, start, after)
        return pack(size, correlation_id, before, index, 0, base_offset, time, after)

    return answer
