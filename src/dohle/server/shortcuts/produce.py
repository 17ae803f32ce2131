"""The common produce request, recognised by its bytes.

A producer sends the same request again and again: except for the correlation id, the topics, the
partitions and the records, every byte equals that of the previous request. The records are handled
as on the slow path (``partitions.appends``), and a request that does not fit takes the slow path.
So do transactional records for several partitions, and a transaction's first records in one,
because its coordinator may have to be asked.
"""

from __future__ import annotations

import struct
from asyncio import Future
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, ClassVar, TypeVar, cast

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName, Uuid
from dohle.protocol.messages.produce import ProduceRequest
from dohle.records.batch import TRANSACTIONAL_FLAG
from dohle.server.net.outcome import Frame, Gate, LateFrame
from dohle.server.net.shortcut import Served
from dohle.server.net.slices import Begun, begin
from dohle.server.partitions.appends import (
    DONE,
    TOPIC_IDS,
    Appended,
    Part,
    append,
    appending_all,
    find_partition,
)
from dohle.server.shortcuts.produce_frames import (
    Topic,
    Topics,
    answer_to_one,
    request_parts,
    topic_reader,
)
from dohle.server.shortcuts.produce_replies import ReplyToSeveral, tell
from dohle.server.transactions.verification import FLAGS_AT, is_open, may_be_transactional
from dohle.storage.producers.append import NO_VERIFICATION

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer

# From the first version with batches on.
_VERSIONS = range(3, 14)
# Where the API key and version end, and where the correlation id does.
_HEAD_END, _PREFIX_START = 4, 8
_SIZE = struct.Struct(">i")
#: acks
_ALL = -1
# Looking up a member of an enum is slow.
_NO_ERROR = ErrorCode.NONE
_TOO_FEW = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

T = TypeVar("T")

#: Correlation id, and the index and records of the only partition, or the topics and all records.
Fields = tuple[int, int, memoryview] | tuple[int, Topics]


def learn_produce(broker: BrokerServer, served: Served) -> ProduceShortcut | None:
    """Learn from a request."""
    request: ProduceRequest = served.request
    if served.version not in _VERSIONS or request.acks == 0:
        return None
    if not (request.topic_data and request.topic_data[0].partition_data):
        return None
    learnt = ProduceShortcut(served)
    # It does not fit if the client encodes something differently from this encoder.
    return learnt if learnt.fits(served.frame) is not None else None


class ProduceShortcut:
    """A produce request without what changes from one request to the next.

    A request to a single partition of the topic learnt from is read and answered in one go. Others,
    to any topics and partitions, are read and answered piece by piece (``produce_frames``).
    """

    joins: ClassVar[bool] = True
    __slots__ = (
        "_answer_one",
        "_client_id",
        "_head",
        "_is_flexible",
        "_is_transactional",
        "_prefix",
        "_prefix_of_one",
        "_read_topics",
        "_size_at",
        "_tail",
        "_topic",
        "_topic_id",
        "_unpack",
        "acks",
        "listener",
        "served",
        "timeout_ms",
        "version",
    )

    def __init__(self, served: Served) -> None:
        self.served = 0
        request, version, frame = served.request, served.version, served.frame
        self.version = version
        self.acks = request.acks
        self.timeout_ms = request.timeout_ms
        self.listener = served.sender.listener if served.sender is not None else ""
        topic = request.topic_data[0]
        self._topic: TopicName = topic.name
        self._topic_id: Uuid = topic.topic_id
        self._client_id = served.client_id
        self._is_transactional = request.transactional_id is not None
        self._is_flexible = ProduceRequest.FLEXIBLE.covers(version)
        before, before_one, self._tail = request_parts(request, version)
        self._head = bytes(frame[:_HEAD_END])
        header = bytes(frame[_PREFIX_START : served.body_offset])
        self._prefix, self._prefix_of_one = header + before, header + before_one
        fields = struct.Struct(f">{_HEAD_END}si{len(self._prefix_of_one)}si")
        self._unpack, self._size_at = fields.unpack_from, fields.size
        self._read_topics = topic_reader(version)
        self._answer_one = answer_to_one(topic.name, topic.topic_id, version)

    def fits(self, frame: memoryview) -> Fields | None:
        """Return the fields that may change, if everything else is the same."""
        try:
            head, correlation_id, prefix, index = self._unpack(frame)
            if head != self._head:
                return None
            if prefix != self._prefix_of_one:
                return self._fits_several(frame, correlation_id, prefix)
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
        except (struct.error, IndexError, UnicodeDecodeError):
            return None
        if size < 0 or start + size != end:
            return None
        return correlation_id, index, frame[start:end]

    def _fits_several(
        self, frame: memoryview, correlation_id: int, prefix: bytes
    ) -> tuple[int, Topics] | None:
        """Do the same with a request to several partitions, or to another topic."""
        if self._is_transactional or not prefix.startswith(self._prefix):
            return None
        read = self._read_topics(frame, _PREFIX_START + len(self._prefix))
        return None if read is None else (correlation_id, read)

    def handle(self, broker: BrokerServer, fields: Fields) -> LateFrame | Future[Frame] | None:
        """Append the records; None if the request must take the slow path."""
        if len(fields) == 2:
            correlation_id, (topics, all_records) = fields
            return self._handle_several(broker, correlation_id, topics, all_records)
        correlation_id, index, records = fields
        if self.version < TOPIC_IDS:
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
        elif len(records) > FLAGS_AT and records[FLAGS_AT] & TRANSACTIONAL_FLAG:
            # As ``may_be_transactional`` tells, without a call.
            return None
        now_ms = broker.clock.now_ms()
        outcome = append(
            broker, partition, records, self.acks, self.version, self._client_id, now_ms, guard
        )
        if not isinstance(outcome, DONE):
            begun = begin(broker.turns, outcome)
            if isinstance(begun, Begun):
                late = partial(self._late, broker, correlation_id, index)
                return broker.loop.create_task(_finish(broker, begun, late))
            outcome = begun
        done = outcome
        return lambda code=None: self._reply(broker, correlation_id, index, done, code)

    def _late(
        self,
        broker: BrokerServer,
        correlation_id: int,
        index: int,
        outcome: Appended | KafkaError,
    ) -> LateFrame:
        return lambda code=None: self._reply(broker, correlation_id, index, outcome, code)

    def _reply(
        self,
        broker: BrokerServer,
        correlation_id: int,
        index: int,
        outcome: Appended | KafkaError,
        code: ErrorCode | None = None,
    ) -> Frame | Gate:
        """Make the answer for one partition; ``code`` tells how the wait for the commit ended."""
        if not isinstance(outcome, KafkaError):
            partition, (first, last, _, time, _, _) = outcome
            log = partition.log
            if log.disk.is_online():
                is_committed = log.high_watermark > last
                if (is_committed or self.acks != _ALL) and code is not _TOO_FEW:
                    start = log.log_start_offset
                    return [self._answer_one(correlation_id, index, first, time, start)]
                if code is None:
                    return broker.commits.gate(partition, self.timeout_ms)
        topics = [(b"", self._topic, self._topic_id, [index])]
        return tell(broker, self, correlation_id, topics, [outcome], [code or _NO_ERROR])

    def _handle_several(
        self,
        broker: BrokerServer,
        correlation_id: int,
        topics: list[Topic],
        records: list[memoryview],
    ) -> LateFrame | Future[Frame] | None:
        if any(map(may_be_transactional, records)):
            return None
        parts = self._parts(broker, topics, records)
        appending = appending_all(broker, parts, self.acks, self.version, self._client_id)
        begun = begin(broker.turns, appending)
        if isinstance(begun, Begun):
            late = partial(ReplyToSeveral, self, broker, correlation_id, topics)
            return broker.loop.create_task(_finish(broker, begun, late))
        return ReplyToSeveral(self, broker, correlation_id, topics, begun)

    def _parts(
        self, broker: BrokerServer, topics: list[Topic], records: list[memoryview]
    ) -> Iterator[Part]:
        rest, version = iter(records), self.version
        for _, name, topic_id, indexes in topics:
            for index in indexes:
                yield find_partition(broker, version, name, topic_id, index), next(rest), None


async def _finish(
    broker: BrokerServer, begun: Begun[T], late_of: Callable[[T], LateFrame]
) -> Frame:
    """Append what takes long, in turns, and make the answer."""
    late = late_of(await begun.finish())
    broker.write_appends()
    made = late()
    if isinstance(made, Gate):
        if made.code is None:
            opened: Future[None] = broker.loop.create_future()
            made.on_open.append(lambda: opened.set_result(None))
            await opened
        made = late(made.code)
    return cast("Frame", made)
