"""The bytes of a follower's common fetch and of its common answer, on both sides.

Within a session nearly all requests name a few partitions and forget none, and nearly all answers
have records and offsets and no error. Such bodies are packed and read here in a few steps; whoever
finds anything else in one takes the slow path (``protocol.codec``), which means the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dohle.core.ids import Uuid
from dohle.protocol.codec.pattern import find_pattern
from dohle.protocol.codec.unsigned_varint import uvarint
from dohle.protocol.framing import encode_request
from dohle.protocol.messages.fetch import FetchPartition, FetchRequest
from dohle.protocol.schema import Buffer

#: From the first version with topic ids on.
COMMON_VERSIONS = range(13, 19)
#: With at most this many partitions: a few, which are dealt with in one step.
COMMON_PARTITIONS_MAX = 64

# Size, API key, version, correlation id.
_HEAD = struct.Struct(">ihhi")
_INT32 = struct.Struct(">i")
# Partition, leader epoch, offset, last epoch, log start, max bytes, and no tagged fields.
_ASKED = struct.Struct(">iiqiqib")
_ID_SIZE = 16
_EMPTY_ARRAY = b"\1"
_NO_TAGS = b"\0"
# No throttling, no error, the session, and how many topics there are, and one.
_ANSWER = struct.Struct(">ihib")
# The topic's id, and how many partitions, and one.
_TOPIC = struct.Struct(">16sb")
# Partition, no error, high watermark, last stable offset, log start, no list of aborted
# transactions, no preferred replica.
_TOLD = struct.Struct(">ihqqqbi")
_NOT_PREFERRED = -1


class Asked(NamedTuple):
    """A partition that a request names, and what it asks for."""

    topic_id: Uuid
    request: FetchPartition


class Told(NamedTuple):
    """What an answer says of a partition."""

    topic_id: Uuid
    partition: int
    high_watermark: int
    log_start_offset: int
    records: memoryview


class CommonRequests:
    """Frames requests that differ in their correlation id, session epoch and partitions alone."""

    __slots__ = ("_before", "_suffix", "_version")

    def __init__(self, like: FetchRequest, version: int, client_id: str) -> None:
        """Prepare for requests like this one, which neither names nor forgets a topic."""
        self._version = version
        prefix, self._suffix = parts_of(like, version)
        framed = b"".join(encode_request(like, version, 0, client_id))
        # What else of the header is before the body.
        header = framed[_HEAD.size : -len(like.encode(version))]
        self._before = header + prefix

    def frame(
        self, epoch: int, named: Mapping[tuple[Uuid, int], FetchPartition], correlation_id: int
    ) -> bytes:
        """Return a whole frame."""
        rest = b"".join((self._before, _INT32.pack(epoch), pack_asked(named), self._suffix))
        size = _HEAD.size - _INT32.size + len(rest)
        return _HEAD.pack(size, FetchRequest.API_KEY, self._version, correlation_id) + rest


class FetchRequestParts(NamedTuple):
    """The body of a request without what changes within its session."""

    #: Before the session's epoch.
    prefix: bytes
    #: Behind the topics.
    suffix: bytes


def parts_of(request: FetchRequest, version: int) -> FetchRequestParts:
    """Take the body of a request without forgotten topics apart."""
    bare = request.replace(topics=())
    zeros, ones = (bare.replace(session_epoch=number).encode(version) for number in (0, -1))
    before, behind = find_pattern(zeros, ones, {4: "i"}).constants
    assert behind.startswith(_EMPTY_ARRAY), "the topics follow the epoch"
    return FetchRequestParts(before, behind[1:])


def pack_asked(named: Mapping[tuple[Uuid, int], FetchPartition]) -> bytes:
    """Return the topics of a request, one after the other as they are named."""
    by_topic: dict[Uuid, list[bytes]] = {}
    for (topic_id, _), asked in named.items():
        packed = _ASKED.pack(
            asked.partition,
            asked.current_leader_epoch,
            asked.fetch_offset,
            asked.last_fetched_epoch,
            asked.log_start_offset,
            asked.partition_max_bytes,
            0,
        )
        of_topic = by_topic.get(topic_id)
        if of_topic is None:
            by_topic[topic_id] = [packed]
        else:
            of_topic.append(packed)
    pieces = [uvarint(len(by_topic) + 1)]
    for topic_id, asks in by_topic.items():
        pieces += (topic_id, uvarint(len(asks) + 1), *asks, _NO_TAGS)
    return b"".join(pieces)


def read_asked(rest: bytes, suffix: bytes) -> list[Asked] | None:
    """Read the topics of a request, behind which it ends like this; None if it is uncommon."""
    if not rest.endswith(suffix):
        return None
    found: list[Asked] = []
    unpack, step = _ASKED.unpack_from, _ASKED.size
    end, at = len(rest) - len(suffix), 1
    try:
        topics = rest[0]
        # A longer number, or none: 0 stands for no array at all.
        if not 0 < topics <= COMMON_PARTITIONS_MAX:
            return None
        for _ in range(topics - 1):
            topic_id, partitions = Uuid(rest[at : at + _ID_SIZE]), rest[at + _ID_SIZE]
            at += _ID_SIZE + 1
            if not 0 < partitions <= COMMON_PARTITIONS_MAX:
                return None
            for _ in range(partitions - 1):
                index, leader_epoch, offset, epoch, start, max_bytes, tags = unpack(rest, at)
                if tags:
                    return None
                asked = FetchPartition(
                    partition=index,
                    current_leader_epoch=leader_epoch,
                    fetch_offset=offset,
                    last_fetched_epoch=epoch,
                    log_start_offset=start,
                    partition_max_bytes=max_bytes,
                )
                found.append(Asked(topic_id, asked))
                at += step
            if rest[at]:
                return None
            at += 1
    except (IndexError, struct.error):
        return None
    return found if at == end else None


def pack_answer_head(session_id: int, topics: int) -> bytes:
    """Return the body of an answer up to its topics, of which there are so many."""
    return _ANSWER.pack(0, 0, session_id, topics + 1)


def pack_topic_head(topic_id: Uuid, partitions: int) -> bytes:
    """Return what stands before so many partitions of a topic; behind them are no tags."""
    return _TOPIC.pack(topic_id, partitions + 1)


def pack_told(
    partition: int, high_watermark: int, last_stable_offset: int, log_start: int, size: int
) -> bytes:
    """Return what stands before records of this size; behind them are no tags."""
    fields = partition, 0, high_watermark, last_stable_offset, log_start, 0, _NOT_PREFERRED
    return _TOLD.pack(*fields) + uvarint(size + 1)


def read_answer(frame: Buffer, body: int, session_id: int) -> Sequence[Told] | None:
    """Read the body of an answer of a session; None if it is uncommon, or not complete."""
    view = memoryview(frame)
    found: list[Told] = []
    try:
        _, error, session, topics = _ANSWER.unpack_from(view, body)
        if error or session != session_id or not 0 < topics <= COMMON_PARTITIONS_MAX:
            return None
        at = body + _ANSWER.size
        for _ in range(topics - 1):
            topic_id, partitions = _TOPIC.unpack_from(view, at)
            at += _TOPIC.size
            if not 0 < partitions <= COMMON_PARTITIONS_MAX:
                return None
            for _ in range(partitions - 1):
                index, error, high_watermark, _, start, aborted, preferred = _TOLD.unpack_from(
                    view, at
                )
                if error or aborted or preferred != _NOT_PREFERRED:
                    return None
                size, at = _read_uvarint(view, at + _TOLD.size)
                end = at + size - 1
                # Null is no records, too, but is not said in a common answer.
                if size == 0 or view[end]:
                    return None
                found.append(Told(topic_id, index, high_watermark, start, view[at:end]))
                at = end + 1
            if view[at]:
                return None
            at += 1
        if view[at]:
            return None
    except (IndexError, struct.error):
        return None
    return found


def _read_uvarint(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift <= 28:
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise IndexError("the number is too long")
