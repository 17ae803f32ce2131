"""A client that costs next to nothing: it sends requests that were built before, and drops answers.

Answers are taken off the socket with MSG_TRUNC, which does not even copy them; only the last one is
read, and tells whether all went well. So what a server can do is measured, and not the client.
"""

from __future__ import annotations

import random
import select
import socket
import struct
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass

from bench.broker.ceiling import APPEND, BARE_ANSWER, COMMAND, READ, RELAY, SENDFILE, WRITE
from bench.pacing import unpaced
from dohle.core.ids import TopicName, Uuid
from dohle.protocol.framing import encode_request, parse_response_header
from dohle.protocol.messages.api_versions import ApiVersionsRequest
from dohle.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from dohle.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from dohle.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from dohle.protocol.schema import Request
from dohle.records.builder import BatchBuilder

# The versions that librdkafka speaks.
PRODUCE_VERSION, FETCH_VERSION, METADATA_VERSION, API_VERSIONS_VERSION = 10, 16, 12, 3
_SIZE = struct.Struct(">i")
_TIMEOUT_S = 60
_RETRY_S = 0.01
_TIMEOUT = struct.pack("ll", _TIMEOUT_S, 0)
_BLOCK_BYTES = 4_000_000
_DROP_BYTES = 1 << 20


def connect(address: str) -> socket.socket:
    """Open a connection."""
    host, port = address.rsplit(":", 1)
    sock = socket.create_connection((host, int(port)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    unpaced(sock)
    # Python's own timeouts would make it non-blocking: a poll for each call, and no MSG_WAITALL.
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        sock.setsockopt(socket.SOL_SOCKET, option, _TIMEOUT)
    return sock


def build_batch(record_size: int, records: int) -> bytes:
    """Build a batch of records of random bytes, stamped with the current time."""
    now_ms = int(time.time() * 1000)
    rng = random.Random(7)
    builder = BatchBuilder()
    for _ in range(records):
        builder.append(now_ms, None, rng.randbytes(record_size))
    return bytes(builder.build())


def frame(request: Request, version: int) -> bytes:
    """Return a request as it is sent."""
    return b"".join(encode_request(request, version, 7, "bench"))


def produce_frame(topic: TopicName, batch: bytes, partition: int = 0, acks: int = -1) -> bytes:
    """Return a Produce request with one batch."""
    data = PartitionProduceData(index=partition, records=batch)
    request = ProduceRequest(
        acks=acks,
        timeout_ms=30_000,
        topic_data=(TopicProduceData(name=topic, partition_data=(data,)),),
    )
    return frame(request, PRODUCE_VERSION)


def fetch_frame(
    topic_id: Uuid, offset: int, size: int, wait_ms: int = 0, partition: int = 0
) -> bytes:
    """Return a Fetch request for one partition, outside of any session."""
    asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=size)
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=max(size, 1),
        topics=(FetchTopic(topic_id=topic_id, partitions=(asked,)),),
    )
    return frame(request, FETCH_VERSION)


def metadata_frame(*topics: TopicName) -> bytes:
    """Return a Metadata request for these topics, which creates what is not there."""
    asked = tuple(MetadataRequestTopic(name=topic) for topic in topics)
    return frame(MetadataRequest(topics=asked), METADATA_VERSION)


def api_versions_frame() -> bytes:
    """Return an ApiVersions request, the first that a client sends."""
    request = ApiVersionsRequest(client_software_name="bench", client_software_version="1")
    return frame(request, API_VERSIONS_VERSION)


def call(sock: socket.socket, request: bytes) -> bytes:
    """Send one request and return its answer, with its size."""
    sock.sendall(request)
    return receive(sock)


def receive(sock: socket.socket) -> bytes:
    """Return the next answer, with its size."""
    head = sock.recv(4, socket.MSG_WAITALL)
    if len(head) < 4:
        raise ConnectionError("the broker has closed the connection")
    return head + sock.recv(_SIZE.unpack(head)[0], socket.MSG_WAITALL)


def create_topics(address: str, names: list[TopicName]) -> dict[TopicName, Uuid]:
    """Create topics by asking for them until they are there; return their ids."""
    deadline = time.monotonic() + _TIMEOUT_S
    with connect(address) as sock:
        while True:
            answer = call(sock, metadata_frame(*names))
            _, start = parse_response_header(MetadataRequest.API_KEY, METADATA_VERSION, answer, 4)
            response, _ = MetadataResponse.decode(METADATA_VERSION, answer, start)
            failed = [topic.name for topic in response.topics if topic.error_code]
            if not failed:
                break
            if time.monotonic() > deadline:
                raise RuntimeError(f"topics {failed} cannot be created")
            time.sleep(_RETRY_S)
    return {topic.name: topic.topic_id for topic in response.topics if topic.name is not None}


def appended_at(answer: bytes) -> int:
    """Return the offset in the answer to a Produce request of one partition."""
    _, start = parse_response_header(ProduceRequest.API_KEY, PRODUCE_VERSION, answer, 4)
    response, _ = ProduceResponse.decode(PRODUCE_VERSION, answer, start)
    partition = response.responses[0].partition_responses[0]
    if partition.error_code:
        raise RuntimeError(f"produce failed: {partition.error_code} {partition.error_message}")
    return partition.base_offset


def first_produced(sock: socket.socket, request: bytes) -> bytes:
    """Return the first good answer: very many partitions come a moment after their topic."""
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        answer = call(sock, request)
        try:
            appended_at(answer)
        except RuntimeError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_S)
        else:
            return answer


def fetched_size(answer: bytes) -> int:
    """Return how many bytes of records are in the answer to a Fetch request of one partition."""
    _, start = parse_response_header(FetchRequest.API_KEY, FETCH_VERSION, answer, 4)
    response, _ = FetchResponse.decode(FETCH_VERSION, answer, start)
    partition = response.responses[0].partitions[0]
    if response.error_code or partition.error_code:
        raise RuntimeError(f"fetch failed: {response.error_code or partition.error_code}")
    return len(partition.records or b"")


@dataclass(frozen=True, slots=True)
class Load:
    """Requests that were built before, as blocks to be sent one after the other."""

    blocks: list[bytes]
    requests: int

    @property
    def size(self) -> int:
        return sum(map(len, self.blocks))


def repeat(request: bytes, requests: int) -> Load:
    """Return a load of the same request many times over, in memory once."""
    each = max(1, min(requests, _BLOCK_BYTES // len(request)))
    whole, rest = divmod(requests, each)
    blocks = [request * each] * whole
    return Load([*blocks, request * rest] if rest else blocks, requests)


def pour(sock: socket.socket, load: Load, answer_size: int, wake_bytes: int = 1) -> bytes:
    """Send a load as fast as it is taken, drop the answers, return the last one.

    Who drops them is woken when so many bytes have come.
    """
    failures: list[OSError] = []

    def send() -> None:
        try:
            for block in load.blocks:
                sock.sendall(block)
        except OSError as error:
            failures.append(error)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        drop(sock, (load.requests - 1) * answer_size, wake_bytes)
        return receive(sock)
    except OSError:
        sock.shutdown(socket.SHUT_RDWR)
        raise
    finally:
        sender.join()
        if failures:
            raise failures[0]


def pour_first(sock: socket.socket, load: Load, answer_size: int) -> bytes:
    """Send a load, and look at the answers only then: they must fit into the socket's buffer.

    So nobody has to be woken for each answer, which the server would have to pay for.
    """
    for block in load.blocks:
        sock.sendall(block)
    drop(sock, (load.requests - 1) * answer_size)
    return receive(sock)


def drop(sock: socket.socket, size: int, wake_bytes: int = 1) -> None:
    """Discard bytes from a socket unread, once so many have arrived or all of them."""
    nowhere = bytearray(_DROP_BYTES)
    if wake_bytes > 1:
        # Waited for by poll: a receive that has begun would wait for as many again.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wake_bytes)
        ready = select.poll()
        ready.register(sock, select.POLLIN)
        while size > wake_bytes:
            # A slow server may not have sent so many in that time: any are enough to go on.
            ready.poll(_TIMEOUT_S * 1000)
            try:
                size -= _dropped(sock, nowhere, size, socket.MSG_DONTWAIT)
            except BlockingIOError:
                raise TimeoutError(f"{size} bytes have not come") from None
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
    while size:
        size -= _dropped(sock, nowhere, size)


def _dropped(sock: socket.socket, nowhere: bytearray, size: int, flags: int = 0) -> int:
    count = sock.recv_into(nowhere, min(size, _DROP_BYTES), socket.MSG_TRUNC | flags)
    if not count:
        raise ConnectionError(f"the connection was closed with {size} bytes to come")
    return count


def ping_pong(sockets: list[socket.socket], request: bytes, answer_size: int, total: int) -> None:
    """Keep one request in flight on every connection until ``total`` are answered."""
    nowhere = bytearray(answer_size)
    by_fd = {sock.fileno(): sock for sock in sockets}
    sent = done = 0
    with select.epoll() as epoll:
        for sock in sockets:
            epoll.register(sock, select.EPOLLIN)
            sock.send(request)
            sent += 1
        while done < total:
            ready = epoll.poll(_TIMEOUT_S)
            if not ready:
                raise TimeoutError("an answer is missing")
            for fd, _ in ready:
                sock = by_fd[fd]
                if sock.recv_into(nowhere, answer_size, socket.MSG_WAITALL) != answer_size:
                    raise ConnectionError("an answer was cut off")
                done += 1
                if sent < total:
                    sock.send(request)
                    sent += 1


def ping(sock: socket.socket, request: bytes, answer_size: int) -> float:
    """Return how many seconds one request takes to be answered."""
    start = time.perf_counter()
    sock.send(request)
    sock.recv(answer_size, socket.MSG_WAITALL)
    return time.perf_counter() - start


# The same against the bare loops


def ceiling_write(sock: socket.socket, load: Load, recv_size: int) -> None:
    """Let the bare loop receive a load and append it to this connection's file."""
    command = COMMAND.pack(WRITE, load.size, recv_size)
    pour_first(sock, Load([command, *load.blocks], 1), len(BARE_ANSWER))


def ceiling_sendfile(sock: socket.socket, size: int, piece: int) -> None:
    """Let the bare loop send the last bytes that it wrote for this connection."""
    sock.sendall(COMMAND.pack(SENDFILE, size, piece))
    drop(sock, size)


def ceiling_appending(
    stack: ExitStack, address: str, batch_at: int, connections: int = 1
) -> list[socket.socket]:
    """Open connections on which every batch, at this place in its frame, is appended."""
    return _ceiling_answering(stack, address, connections, APPEND, batch_at)


def ceiling_reading(stack: ExitStack, address: str, piece: int) -> socket.socket:
    """Open a connection on which every request is answered with a piece of a file."""
    return _ceiling_answering(stack, address, 1, READ, piece)[0]


def _ceiling_answering(
    stack: ExitStack, address: str, connections: int, kind: int, number: int
) -> list[socket.socket]:
    sockets = [stack.enter_context(connect(address)) for _ in range(connections)]
    sockets[0].sendall(COMMAND.pack(kind, connections, number))
    return sockets


def ceiling_relay(stack: ExitStack, address: str) -> tuple[socket.socket, socket.socket]:
    """Open the connection of a writer and that of a reader who gets what it writes."""
    writer = stack.enter_context(connect(address))
    writer.sendall(COMMAND.pack(RELAY, 0, 0))
    return writer, stack.enter_context(connect(address))
