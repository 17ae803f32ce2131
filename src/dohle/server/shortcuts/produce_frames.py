"""Produce requests and their good answers as bytes: what the shortcut reads and writes itself.

A request is a head, which a producer repeats, and then topics with their partitions. The answer
names the same topics and partitions in the same order and encoding. So what goes before the
partitions of a topic (its name or id, and their number) is copied from the request into the answer.

Whatever is unusual is not read here, and takes the slow path: tagged fields, null, lengths in more
bytes than they need, very many partitions, bytes behind the end.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache, lru_cache
from typing import NamedTuple

from dohle.core.ids import TopicName, Uuid
from dohle.protocol.codec.pattern import find_pattern
from dohle.protocol.framing import encode_response
from dohle.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from dohle.server.partitions.appends import TOPIC_IDS

#: How many partitions a request may have, in all: their numbers take one byte each.
PARTITIONS_MAX = 126
NO_NAME, NO_ID = TopicName(""), Uuid(bytes(16))

_UUID_BYTES = 16
_INT16, _INT32, _TWO_INT32 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">ii")
#: An index, and as many bytes of the size behind it as are read: up to 2 MB.
_INDEX_AND_SIZE = struct.Struct(">iBBB")
_SIZE_AND_ID = struct.Struct(">ii")
# What changes in a good answer, by its size: partition, error, offset, time, start (v5).
_ANSWERED = {22: "ihqq", 30: "ihqqq"}

# For how many topics the form of the answer is cached.
_TOPICS_MAX = 256

#: A topic of a request: the bytes before its first partition, its name and its id (one of them is
#: none), and the indexes of its partitions.
Topic = tuple[bytes, TopicName, Uuid, list[int]]
#: The topics of a request, and the records of all partitions. (Records are used up sooner.)
Topics = tuple[list[Topic], list[memoryview]]
#: Reads the topics of a request, which begin at some place of the frame and fill the rest of it.
#: None if they are unusual; struct.error, IndexError or UnicodeDecodeError if they are wrong.
TopicReader = Callable[[memoryview, int], Topics | None]


def topic_reader(version: int) -> TopicReader:
    """Return what reads the topics of requests of a version."""
    if not ProduceRequest.FLEXIBLE.covers(version):
        return _read_topics
    return _read_topics_by_id if version >= TOPIC_IDS else _read_compact_topics


class RequestParts(NamedTuple):
    """What stays the same in the requests of a producer, from the body on."""

    #: Before the number of topics.
    before: bytes
    #: Before the index of the only partition of a topic, and behind its records.
    before_one: bytes
    behind_one: bytes


def request_parts(request: ProduceRequest, version: int) -> RequestParts:
    """Return what stays the same in requests like this one, some of them to its first topic."""
    is_flexible = ProduceRequest.FLEXIBLE.covers(version)
    nothing = request.replace(topic_data=(), unknown_tags=()).encode(version)
    topic = request.topic_data[0]
    zeros, ones = (
        request.replace(topic_data=(topic.replace(partition_data=(part,)),)).encode(version)
        for part in (PartitionProduceData(index=index, records=b"") for index in (0, -1))
    )
    before_one, behind = find_pattern(zeros, ones, {_INT32.size: "i"}).constants
    return RequestParts(
        # The number of topics is 0, and so is that of tagged fields.
        nothing[: -2 if is_flexible else -_INT32.size],
        before_one,
        # Behind the size of the records, which is 0 here.
        behind[1 if is_flexible else _INT32.size :],
    )


def _read_topics(frame: memoryview, at: int) -> Topics | None:
    """Read the topics of versions that are not flexible."""
    start = at
    (number,) = _INT32.unpack_from(frame, at)
    at += _INT32.size
    topics: list[Topic] = []
    records: list[memoryview] = []
    while len(topics) < number:
        (size,) = _INT16.unpack_from(frame, at)
        name_at = at + _INT16.size
        at = name_at + size
        (count,) = _INT32.unpack_from(frame, at)
        at += _INT32.size
        if size < 0 or not 0 < count <= PARTITIONS_MAX - len(records):
            return None
        name = TopicName(str(frame[name_at : name_at + size], "utf-8"))
        opening = bytes(frame[start:at])
        indexes: list[int] = []
        for _ in range(count):
            index, size = _TWO_INT32.unpack_from(frame, at)
            at += _TWO_INT32.size
            if size < 0:
                return None
            indexes.append(index)
            records.append(frame[at : at + size])
            at += size
        topics.append((opening, name, NO_ID, indexes))
        start = at
    return (topics, records) if topics and at == len(frame) else None


def _read_compact_topics(frame: memoryview, at: int) -> Topics | None:
    """Read the topics of flexible versions that name them."""
    start = at
    number = frame[at] - 1
    at += 1
    topics: list[Topic] = []
    records: list[memoryview] = []
    while len(topics) < number:
        size = frame[at]
        at += 1
        if size > 0x7F:
            if not 0 < frame[at] < 0x80:
                return None
            size += (frame[at] - 1) << 7
            at += 1
        name = TopicName(str(frame[at : at + size - 1], "utf-8"))
        at += size
        # Behind the name there is the number of partitions.
        count = frame[at - 1] - 1
        if not size or not 0 < count <= PARTITIONS_MAX - len(records):
            return None
        opening = bytes(frame[start:at])
        indexes: list[int] = []
        start = at = _read_partitions(frame, at, count, indexes, records)
        if not at:
            return None
        topics.append((opening, name, NO_ID, indexes))
    is_all = topics and at + 1 == len(frame) and not frame[at]
    return (topics, records) if is_all else None


def _read_topics_by_id(frame: memoryview, at: int) -> Topics | None:
    """Read the topics of versions that give their ids."""
    start = at
    number = frame[at] - 1
    at += 1
    topics: list[Topic] = []
    records: list[memoryview] = []
    while len(topics) < number:
        topic_id = Uuid(bytes(frame[at : at + _UUID_BYTES]))
        at += _UUID_BYTES + 1
        count = frame[at - 1] - 1
        if not 0 < count <= PARTITIONS_MAX - len(records):
            return None
        opening = bytes(frame[start:at])
        indexes: list[int] = []
        start = at = _read_partitions(frame, at, count, indexes, records)
        if not at:
            return None
        topics.append((opening, NO_NAME, topic_id, indexes))
    is_all = topics and at + 1 == len(frame) and not frame[at]
    return (topics, records) if is_all else None


def _read_partitions(
    frame: memoryview, at: int, count: int, indexes: list[int], records: list[memoryview]
) -> int:
    """Read the partitions of a topic, of flexible versions; return where it ends, 0 if unusual.

    A size is a varint: one more than it counts, seven bits to a byte, lowest bits first.
    """
    for _ in range(count):
        index, size, second, third = _INDEX_AND_SIZE.unpack_from(frame, at)
        if size < 0x80:
            at += 5
        elif second < 0x80:
            size += second - 1 << 7
            at += 6
        elif third < 0x80:
            size += (second - 1 << 7) + (third - 1 << 14)
            at += 7
        else:
            return 0
        end = at + size - 1
        # Behind the records there is the number of tagged fields, as behind the topic.
        if end < at or frame[end]:
            return 0
        indexes.append(index)
        records.append(frame[at:end])
        at = end + 1
    return 0 if frame[at] else at + 1


class AnswerFormat(NamedTuple):
    """What is in good answers of a version besides the topics' own bytes."""

    #: Between the correlation id and the first topic.
    head: bytes
    #: Packs index, error, offset, time, log start offset if there is one, and what is behind.
    pack: Callable[..., bytes]
    has_log_start: bool
    #: Behind a partition, behind the last one of a topic, and at the very end.
    behind_part: bytes
    behind_topic: bytes
    end: bytes

    def frame(self, correlation_id: int, body: list[bytes]) -> bytes:
        """Return the frame of an answer with these topics."""
        joined = b"".join((self.head, *body, self.end))
        return _SIZE_AND_ID.pack(len(joined) + _INT32.size, correlation_id) + joined


@cache
def answer_format(version: int) -> AnswerFormat:
    """Return how good answers of a version are made."""
    zeros, ones = (_encoded(number, 1, version) for number in (0, -1))
    pattern = find_pattern(zeros, ones, _ANSWERED)
    _, after = pattern.constants
    has_log_start = _ANSWERED[30] in pattern.format
    numbers = _ANSWERED[30 if has_log_start else 22]
    # Another partition has another set of numbers, and once more what is behind them.
    part_size = len(_encoded(0, 2, version)) - len(zeros)
    behind_part = after[: part_size - struct.calcsize(f">{numbers}")]
    after = after.removeprefix(behind_part)
    # That there are no tagged fields takes a byte: in the header, and behind each topic.
    untagged = b"\0" if ProduceResponse.FLEXIBLE.covers(version) else b""
    return AnswerFormat(
        untagged,
        struct.Struct(f">{numbers}{len(behind_part)}s").pack,
        has_log_start,
        behind_part,
        untagged,
        after.removeprefix(untagged),
    )


@lru_cache(_TOPICS_MAX)
def answer_to_one(
    topic: TopicName, topic_id: Uuid, version: int
) -> Callable[[int, int, int, int, int], bytes]:
    """Return a function that makes a good answer for one partition from what changes in it."""
    zeros, ones = (_encoded(number, 1, version, topic, topic_id) for number in (0, -1))
    size = len(zeros) + _INT32.size
    pattern = find_pattern(zeros, ones, _ANSWERED)
    before, after = pattern.constants
    pack = struct.Struct(f">ii{pattern.format}").pack
    has_log_start = _ANSWERED[30] in pattern.format

    def answer(correlation_id: int, index: int, base_offset: int, time: int, start: int) -> bytes:
        if has_log_start:
            return pack(size, correlation_id, before, index, 0, base_offset, time, start, after)
        return pack(size, correlation_id, before, index, 0, base_offset, time, after)

    return answer


def _encoded(
    number: int, partitions: int, version: int, topic: TopicName = NO_NAME, topic_id: Uuid = NO_ID
) -> bytes:
    """Return an answer behind the correlation id, with the same number wherever there is one."""
    partition = PartitionProduceResponse(
        index=number,
        error_code=number,
        base_offset=number,
        log_append_time_ms=number,
        log_start_offset=number,
    )
    found = TopicProduceResponse(
        name=topic, topic_id=topic_id, partition_responses=(partition,) * partitions
    )
    response = ProduceResponse(responses=(found,))
    return b"".join(encode_response(response, version, 0))[_SIZE_AND_ID.size :]
