"""The common produce request, recognised by its bytes.

A producer sends the same request again and again: except for the correlation id, the partition and
the records, every byte equals that of the previous request. The records are handled as on the slow
path (``partitions.appends.append``), and a request that does not fit takes the slow path. So do a
transaction's first records in a partition, because its coordinator may have to be asked.
"""

from __future__ import annotations

import struct
from asyncio import Future
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, cast

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName, Uuid
from dohle.protocol.codec.pattern import find_pattern
from dohle.protocol.framing import encode_response
from dohle.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from dohle.server.net.outcome import Frame, Gate, LateFrame
from dohle.server.net.shortcut import Served
from dohle.server.net.slices import Begun, begin
from dohle.server.partitions.appends import DONE, Appended, append, partition_response
from dohle.server.transactions.verification import is_open
from dohle.storage.producers.append import NO_VERIFICATION

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer

# From the first version with batches on.
_VERSIONS = range(3, 14)
_FIRST_WITH_TOPIC_IDS = 13
# Where the API key and version end, and where the correlation id does.
_HEAD_END, _PREFIX_START = 4, 8
_SIZE = struct.Struct(">i")
# What changes in a good answer, by its size: partition, error, offset, time, start (v5).
_ANSWERED = {22: "ihqq", 30: "ihqqq"}
# For how many topics the form of the answer is cached.
_TOPICS_MAX = 256

#: Correlation id, partition and records.
Fields = tuple[int, int, memoryview]


def learn_produce(broker: BrokerServer, served: Served) -> ProduceShortcut | None:
    """Learn from a request to a single partition."""
    request: ProduceRequest = served.request
    if served.version not in _VERSIONS or request.acks == 0:
        return None
    if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
        return None
    (data,) = request.topic_data[0].partition_data
    if not data.records:
        return None
    learnt = ProduceShortcut(served)
    fields = learnt.fits(served.frame)
    # It does not fit if the client encodes something differently from this encoder.
    is_recognised = fields is not None and fields[1] == data.index
    return learnt if is_recognised else None


#: acks
_ALL = -1
# Looking up a member of an enum is slow.
_NO_ERROR = ErrorCode.NONE
_TOO_FEW = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


class ProduceShortcut:
    """A produce request to one partition, without what changes from one request to the next."""

    joins: ClassVar[bool] = True
    __slots__ = (
        "_acks",
        "_answer",
        "_client_id",
        "_head",
        "_is_flexible",
        "_is_transactional",
        "_prefix",
        "_size_at",
        "_tail",
        "_timeout_ms",
        "_topic",
        "_topic_id",
        "_unpack",
        "_version",
        "served",
    )

    def __init__(self, served: Served) -> None:
        self.served = 0
        request, version, frame = served.request, served.version, served.frame
        topic = request.topic_data[0]
        self._version = version
        self._is_flexible = ProduceRequest.FLEXIBLE.covers(version)
        zeros, ones = (_without_records(request, index).encode(version) for index in (0, -1))
        before, behind = find_pattern(zeros, ones, {4: "i"}).constants
        self._head = bytes(frame[:_HEAD_END])
        self._prefix = bytes(frame[_PREFIX_START : served.body_offset]) + before
        # Behind the size of the records, which is 0 here.
        self._tail = behind[1 if self._is_flexible else _SIZE.size :]
        fields = struct.Struct(f">{_HEAD_END}si{len(self._prefix)}si")
        self._unpack, self._size_at = fields.unpack_from, fields.size
        self._client_id = served.client_id
        self._acks = request.acks
        self._timeout_ms = request.timeout_ms
        self._is_transactional = request.transactional_id is not None
        self._topic: TopicName = topic.name
        self._topic_id: Uuid = topic.topic_id
        self._answer = _answer_format(topic.name, topic.topic_id, version)

    def fits(self, frame: memoryview) -> Fields | None:
        """Return the fields that may change, if everything else is the same."""
        try:
            head, correlation_id, prefix, index = self._unpack(frame)
            if prefix != self._prefix or head != self._head:
                return None
            start, end = self._size_at, len(frame)
            if not self._is_flexible:
                (size,) = _SIZE.unpack_from(frame, start)
                start += _SIZE.size
            else:
                # A varint: the size plus one, seven bits to a byte, lowest bits first.
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
                end -= len(self._tail)
                if frame[end:] != self._tail:
                    return None
        except (struct.error, IndexError):
            return None
        if size < 0 or start + size != end:
            return None
        return correlation_id, index, frame[start:end]

    def handle(self, broker: BrokerServer, fields: Fields) -> LateFrame | Future[Frame] | None:
        """Append the records; None if the request must take the slow path."""
        correlation_id, index, records = fields
        if self._version < _FIRST_WITH_TOPIC_IDS:
            partition = broker.partitions.get(self._topic, index)
        else:
            partition = broker.partitions.get_by_id(self._topic_id, index)
        if partition is None:
            return None
        guard = None
        if self._is_transactional:
            if not is_open(partition, records):
                return None
            guard = NO_VERIFICATION
        now_ms = broker.clock.now_ms()
        outcome = append(
            broker, partition, records, self._acks, self._version, self._client_id, now_ms, guard
        )
        if not isinstance(outcome, DONE):
            begun = begin(broker.turns, outcome)
            if isinstance(begun, Begun):
                finishing = self._finish(broker, correlation_id, index, begun)
                return broker.loop.create_task(finishing)
            outcome = begun
        done = outcome
        return lambda code=None: self._reply(broker, correlation_id, index, done, code)

    async def _finish(
        self,
        broker: BrokerServer,
        correlation_id: int,
        index: int,
        begun: Begun[Appended | KafkaError],
    ) -> Frame:
        """Append what takes long, in turns, and make the answer."""
        outcome = await begun.finish()
        broker.write_appends()
        reply = self._reply(broker, correlation_id, index, outcome, None)
        if isinstance(reply, Gate):
            opened: Future[None] = broker.loop.create_future()
            reply.on_open.append(lambda: opened.set_result(None))
            await opened
            return cast("Frame", self._reply(broker, correlation_id, index, outcome, reply.code))
        return reply

    def _reply(
        self,
        broker: BrokerServer,
        correlation_id: int,
        index: int,
        outcome: Appended | KafkaError,
        code: ErrorCode | None,
    ) -> Frame | Gate:
        """Make the answer; ``code`` tells how the wait for the commit ended."""
        if not isinstance(outcome, KafkaError):
            partition, (first, last, _, time, _, _) = outcome
            log = partition.log
            if log.disk.is_online():
                is_committed = log.high_watermark > last
                if (is_committed or self._acks != _ALL) and code is not _TOO_FEW:
                    return [self._answer(correlation_id, index, first, time, log.log_start_offset)]
                if code is None:
                    return broker.commits.gate(partition, self._timeout_ms)
        told = partition_response(index, outcome, code or _NO_ERROR)
        if told.error_code:
            broker.requests.refused("Produce", told.error_code)
        return self._tell(correlation_id, told)

    def _tell(self, correlation_id: int, partition: PartitionProduceResponse) -> Frame:
        response = _response(self._topic, self._topic_id, partition)
        return list(encode_response(response, self._version, correlation_id))


def _response(
    topic: TopicName, topic_id: Uuid, partition: PartitionProduceResponse
) -> ProduceResponse:
    found = TopicProduceResponse(name=topic, topic_id=topic_id, partition_responses=(partition,))
    return ProduceResponse(responses=(found,))


def _without_records(request: ProduceRequest, index: int) -> ProduceRequest:
    """Return a request to one partition with another index, and no records."""
    (topic,) = request.topic_data
    data = topic.partition_data[0].replace(index=index, records=b"")
    return request.replace(topic_data=(topic.replace(partition_data=(data,)),))


@lru_cache(_TOPICS_MAX)
def _answer_format(
    topic: TopicName, topic_id: Uuid, version: int
) -> Callable[[int, int, int, int, int], bytes]:
    """Return a function that packs a good answer from the values that change."""
    zeros, ones = (
        b"".join(encode_response(_response(topic, topic_id, _partition_of(number)), version, 0))
        for number in (0, -1)
    )
    size = len(zeros) - 4
    # Behind the size and the correlation id.
    pattern = find_pattern(zeros[8:], ones[8:], _ANSWERED)
    before, after = pattern.constants
    pack = struct.Struct(f">ii{pattern.format}").pack
    has_log_start = _ANSWERED[30] in pattern.format

    def answer(correlation_id: int, index: int, base_offset: int, time: int, start: int) -> bytes:
        if has_log_start:
            return pack(size, correlation_id, before, index, 0, base_offset, time, start, after)
        return pack(size, correlation_id, before, index, 0, base_offset, time, after)

    return answer


def _partition_of(number: int) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=number,
        error_code=number,
        base_offset=number,
        log_append_time_ms=number,
        log_start_offset=number,
    )
