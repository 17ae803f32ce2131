"""Requests to coordinators as frames, and many clients that talk to a coordinator at once.

A conversation is a generator: it yields a request and is sent the answer. So a member of a group is
written down as it thinks, and a thousand of them take part in one loop.
"""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import ExitStack
from typing import TypeVar

from bench.raw_client import call, connect, frame
from dohle.core.errors import ErrorCode
from dohle.core.ids import GroupId, ProducerId, TopicName, TransactionalId
from dohle.protocol.framing import parse_response_header
from dohle.protocol.messages.api_versions import ApiVersionsRequest
from dohle.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from dohle.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from dohle.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from dohle.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from dohle.protocol.schema import Response

#: Versions that clients of today speak.
COMMIT_VERSION, OFFSET_FETCH_VERSION, FIND_VERSION, INIT_VERSION = 9, 9, 4, 5
_PING_VERSION = 3
_SIZE = struct.Struct(">i")
_RECV_BYTES = 1 << 18
_TIMEOUT_S = 60

R = TypeVar("R", bound=Response)
Conversation = Generator[bytes, bytes, None]


def answer_of(kind: type[R], version: int, answer: bytes) -> R:
    """Read an answer."""
    _, start = parse_response_header(kind.API_KEY, version, answer, 4)
    return kind.decode(version, answer, start)[0]


def expect(what: str, codes: Iterable[int]) -> None:
    """Raise if one of these is an error code."""
    for code in codes:
        if code:
            raise RuntimeError(f"{what} failed: {ErrorCode(code).name}")


# Talking


def connect_many(stack: ExitStack, address: str, count: int) -> list[socket.socket]:
    """Open connections that are closed with the stack."""
    return [stack.enter_context(connect(address)) for _ in range(count)]


def converse(talks: Collection[tuple[socket.socket, Conversation]]) -> int:
    """Run all conversations to their end; return how many requests were sent."""
    open_ = {sock.fileno(): (sock, talk, bytearray()) for sock, talk in talks}
    count = len(open_)
    with select.epoll() as epoll:
        for sock, talk, _ in open_.values():
            epoll.register(sock, select.EPOLLIN)
            sock.sendall(next(talk))
        while open_:
            ready = epoll.poll(_TIMEOUT_S)
            if not ready:
                raise TimeoutError(f"{len(open_)} answers are missing")
            for fd, _ in ready:
                sock, talk, held = open_[fd]
                answer = _received(sock, held)
                if answer is None:
                    continue
                try:
                    request = talk.send(answer)
                except StopIteration:
                    del open_[fd]
                    epoll.unregister(fd)
                else:
                    count += 1
                    sock.sendall(request)
    return count


def _received(sock: socket.socket, held: bytearray) -> bytes | None:
    """Return an answer once it is complete; keep what has arrived of it until then."""
    data = sock.recv(_RECV_BYTES)
    if not data:
        raise ConnectionError("the broker has closed the connection")
    if held:
        held += data
        data = bytes(held)
    if len(data) < _SIZE.size or len(data) < _SIZE.size + _SIZE.unpack_from(data)[0]:
        held[:] = data
        return None
    held.clear()
    return data


def again(request: bytes, count: int, check: Callable[[bytes], object]) -> Conversation:
    """Send a request many times; only the last answer is checked."""
    answer = b""
    for _ in range(count):
        answer = yield request
    check(answer)


# What is asked


def ping_frame() -> bytes:
    """Return the cheapest request: it is decoded, and refused because it names no client."""
    return frame(ApiVersionsRequest(), _PING_VERSION)


def find_coordinators(address: str, key_type: int) -> None:
    """Make the server create the coordinators' topic if it does not exist yet."""
    with connect(address) as sock:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=("bench",))
        answer = call(sock, frame(request, FIND_VERSION))
    found = answer_of(FindCoordinatorResponse, FIND_VERSION, answer)
    expect("FindCoordinator", (each.error_code for each in found.coordinators))


def commit_frame(
    group_id: str, member_id: str, generation: int, topic: TopicName, partitions: int
) -> bytes:
    """Return an OffsetCommit of the first partitions of a topic."""
    committed = tuple(
        OffsetCommitRequestPartition(
            partition_index=index,
            committed_offset=1_000_000 + index,
            committed_leader_epoch=0,
            committed_metadata="",
        )
        for index in range(partitions)
    )
    request = OffsetCommitRequest(
        group_id=GroupId(group_id),
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=(OffsetCommitRequestTopic(name=topic, partitions=committed),),
    )
    return frame(request, COMMIT_VERSION)


def check_commit(answer: bytes) -> None:
    """Raise if a commit was refused."""
    response = answer_of(OffsetCommitResponse, COMMIT_VERSION, answer)
    expect("OffsetCommit", (each.error_code for one in response.topics for each in one.partitions))


def offset_fetch_frame(group_id: str, topic: TopicName, partitions: int) -> bytes:
    """Return an OffsetFetch of the first partitions of a topic."""
    asked = OffsetFetchRequestTopics(name=topic, partition_indexes=tuple(range(partitions)))
    group = OffsetFetchRequestGroup(group_id=GroupId(group_id), topics=(asked,))
    return frame(OffsetFetchRequest(groups=(group,), require_stable=True), OFFSET_FETCH_VERSION)


def check_offset_fetch(answer: bytes) -> None:
    """Raise if the fetch was refused or found no offsets."""
    response = answer_of(OffsetFetchResponse, OFFSET_FETCH_VERSION, answer)
    for topic in response.groups[0].topics:
        expect("OffsetFetch", (each.error_code for each in topic.partitions))
        if any(each.committed_offset < 0 for each in topic.partitions):
            raise RuntimeError("OffsetFetch has found no offset")


def init_producer(sock: socket.socket, transactional_id: str) -> tuple[ProducerId, int]:
    """Return the producer id and epoch of a transactional id."""
    request = InitProducerIdRequest(
        transactional_id=TransactionalId(transactional_id), transaction_timeout_ms=60_000
    )
    answer = call(sock, frame(request, INIT_VERSION))
    response = answer_of(InitProducerIdResponse, INIT_VERSION, answer)
    expect("InitProducerId", (response.error_code,))
    return response.producer_id, response.producer_epoch
