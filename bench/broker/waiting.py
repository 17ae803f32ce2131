"""Fetches that wait: what they cost those who write meanwhile, and the memory they take.

A consumer of very many partitions asks for all of them outside of a session, as librdkafka does,
and has read them to their ends. Every batch that is appended to one of them gives it an answer; it
then asks again.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bench.processes import Process, Sample, broker, rounds_of
from bench.raw_client import (
    FETCH_VERSION,
    api_versions_frame,
    appended_at,
    build_batch,
    call,
    connect,
    create_topics,
    first_produced,
    frame,
    ping_pong,
    produce_frame,
    receive,
)
from bench.report import Row
from dohle.core.ids import TopicName, Uuid
from dohle.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

PARTITIONS = 1_000
FETCHES = 60
_PIECES, _PIECE_BYTES = 100, 10_000
_PRODUCERS = 4
_WAIT_MS = 60_000
_TOPIC, _QUIET = TopicName("waiting"), TopicName("quiet")
#: How much longer a producer may wait. (It was 16 when all was read anew for each request.)
_LONGER_MAX = 4.0
#: A delayed fetch keeps no records.
_MEMORY_MAX = 0.25
# Where the first partition's high watermark stands in an answer: behind size, correlation id, tags;
# throttle time, error, session; topics, topic id, partitions (two bytes); partition, error.
_WATERMARK_AT = struct.calcsize(">iibihib16s2sih")
_WATERMARK = struct.Struct(">q")


def rows(quick: bool) -> list[Row]:
    """Measure all cases."""
    with broker(num_partitions=str(PARTITIONS)) as server:
        ids = create_topics(server.address, [_TOPIC, _QUIET])
        return [
            *_beside_consumer(server, ids[_TOPIC], quick),
            _memory(server, _QUIET, ids[_QUIET]),
        ]


def _beside_consumer(server: Process, topic_id: Uuid, quick: bool) -> list[Row]:
    count = 400 if quick else 2_000
    batch = build_batch(100, 1)

    def produce(topic: TopicName) -> Sample:
        request = produce_frame(topic, batch)
        with ExitStack() as stack:
            sockets = [stack.enter_context(connect(server.address)) for _ in range(_PRODUCERS)]
            size = len(first_produced(sockets[0], request))
            ping_pong(sockets, request, size, 10 * _PRODUCERS)
            return server.measure(1, count, lambda: ping_pong(sockets, request, size, count))

    def produce_beside(topic: TopicName) -> Sample:
        with _consumer(server, topic_id):
            return produce(topic)

    found = rounds_of(
        {
            "alone": lambda: produce(_TOPIC),
            "to one of them": lambda: produce_beside(_TOPIC),
            "elsewhere": lambda: produce_beside(_QUIET),
        },
        3 if quick else 7,
    )
    alone = found.pop("alone")
    return [
        Row(
            "waiting",
            f"producing {where}, beside a consumer of {PARTITIONS:,} partitions"
            f" ({sample.requests / sample.seconds:,.0f}/s)",
            "ms",
            sample.seconds / sample.requests * 1e3,
            "without it",
            alone.seconds / alone.requests * 1e3,
            _LONGER_MAX,
        )
        for where, sample in found.items()
    ]


@contextmanager
def _consumer(server: Process, topic_id: Uuid) -> Iterator[None]:
    """Have a consumer wait at all partitions for as long as the block lasts."""
    with connect(server.address) as sock:
        waits = threading.Event()
        thread = threading.Thread(target=_consume, args=(sock, topic_id, waits), daemon=True)
        thread.start()
        try:
            if not waits.wait(_WAIT_MS / 1000):
                raise TimeoutError("the consumer has got no answer")
            yield
        finally:
            sock.shutdown(socket.SHUT_RDWR)
            thread.join()


def _consume(sock: socket.socket, topic_id: Uuid, waits: threading.Event) -> None:
    """Follow the end of the first partition until the connection is shut down."""
    first = _wide_frame(topic_id, 0, wait_ms=0)
    before, behind = _around_offset(topic_id)
    try:
        answer = call(sock, first)
        while True:
            (offset,) = _WATERMARK.unpack_from(answer, _WATERMARK_AT)
            sock.sendall(before + _WATERMARK.pack(offset) + behind)
            waits.set()
            answer = receive(sock)
    except OSError:
        return


def _around_offset(topic_id: Uuid) -> tuple[bytes, bytes]:
    """Return what stands before and behind the first partition's offset in a request."""
    zeros, ones = (_wide_frame(topic_id, offset, _WAIT_MS) for offset in (0, -1))
    start = next(at for at in range(len(zeros)) if zeros[at] != ones[at])
    return zeros[:start], zeros[start + _WATERMARK.size :]


def _wide_frame(topic_id: Uuid, offset: int, wait_ms: int) -> bytes:
    """Return a request for all partitions: the first from an offset on, the others are empty."""
    asked = tuple(
        FetchPartition(
            partition=number, fetch_offset=0 if number else offset, partition_max_bytes=1 << 20
        )
        for number in range(PARTITIONS)
    )
    return _frame(topic_id, asked, 1, wait_ms)


def _frame(
    topic_id: Uuid, asked: tuple[FetchPartition, ...], min_bytes: int, wait_ms: int
) -> bytes:
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=50 << 20,
        topics=(FetchTopic(topic_id=topic_id, partitions=asked),),
    )
    return frame(request, FETCH_VERSION)


def _memory(server: Process, topic: TopicName, topic_id: Uuid) -> Row:
    """Let fetches wait that have found a megabyte each, in pieces that are copied, and want more.

    An answer to another request on the same connections would stand behind theirs; one on a
    connection that was opened later shows that they have been looked at.
    """
    batch = build_batch(_PIECE_BYTES, 1)
    with connect(server.address) as sock:
        for partition in range(_PIECES):
            appended_at(call(sock, produce_frame(topic, batch, partition)))
    asked = tuple(
        FetchPartition(partition=number, partition_max_bytes=1 << 20) for number in range(_PIECES)
    )
    request = _frame(topic_id, asked, 50 << 20, _WAIT_MS)
    before = server.rss_mb
    with ExitStack() as stack:
        for _ in range(FETCHES):
            stack.enter_context(connect(server.address)).sendall(request)
        for _ in range(2):
            with connect(server.address) as sock:
                call(sock, api_versions_frame())
        grown = server.rss_mb - before
    found = FETCHES * _PIECES * _PIECE_BYTES / 1e6
    case = f"{FETCHES} delayed fetches that have found {_PIECES * _PIECE_BYTES / 1e6:.0f} MB each"
    return Row("waiting", case, "MB", max(grown, 0.1), "what they found", found, _MEMORY_MAX)
