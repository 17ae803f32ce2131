"""(e) A thousand partitions, and small batches to and from all of them.

Requests go to one partition, as librdkafka sends them, or to a hundred, as the Java producer does.
A consumer keeps a fetch session over all partitions, of which some have something new each time.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import ExitStack

from bench.comparison.figures import Measure
from bench.coordinators.client import Conversation, answer_of, connect_many, converse, expect
from bench.raw_client import (
    FETCH_VERSION,
    build_batch,
    call,
    frame,
    produce_frame,
)
from bench.versus.figures import Figure
from bench.versus.pouring import produce_cycles, produce_many_frame
from bench.versus.topics import create_topic
from bench.versus.turns import Turn
from dohle.core.ids import TopicName, Uuid
from dohle.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

TITLE = "1,000 partitions"
SETTINGS = {"num.partitions": "1"}

PARTITIONS = 1_000
CONNECTIONS = 4
#: Partitions of a request to many, and partitions that have something new.
_OF_REQUEST, _NEW = 100, 10
_TOPIC = TopicName("many")
_RECORDS, _RECORD_BYTES = 10, 100
#: A request without a session.
_NO_SESSION = (0, -1)
_SINGLE, _MULTIPLE, _FETCHES = 40_000, 1_000, 4_000


def turn(turn: Turn) -> list[Figure]:
    """Produce both ways, and fetch."""
    topic_id = create_topic(turn.server.address, _TOPIC, PARTITIONS)
    with ExitStack() as stack:
        sockets = connect_many(stack, turn.server.address, CONNECTIONS)
        many = _Many(turn, sockets, topic_id)

        def warm_up(_: int) -> None:
            many.produce_to_one(2_000)
            many.produce_to_many(100)
            many.fetch(200)

        turn.warm_up(warm_up)
        return [
            *many.produce_to_one(turn.size(_SINGLE)),
            *many.produce_to_many(turn.size(_MULTIPLE)),
            *many.fetch(turn.size(_FETCHES)),
        ]


class _Many:
    """The loads, shared out among connections."""

    def __init__(self, turn: Turn, sockets: list[socket.socket], topic_id: Uuid) -> None:
        self._server, self._sockets, self._topic_id = turn.server, sockets, topic_id
        self._batch = build_batch(_RECORD_BYTES, _RECORDS)
        self._to_one = [produce_frame(_TOPIC, self._batch, n) for n in range(PARTITIONS)]
        self._to_many = [
            produce_many_frame(_TOPIC, self._batch, range(first, first + _OF_REQUEST))
            for first in range(0, PARTITIONS, _OF_REQUEST)
        ]
        # Every partition is written to once before anything counts.
        for request in self._to_many:
            call(sockets[0], request)

    def produce_to_one(self, count: int) -> list[Figure]:
        """Send requests of one batch each."""
        return self._produce("produce, 1 partition a request", self._to_one, count, 1)

    def produce_to_many(self, count: int) -> list[Figure]:
        """Send requests of a hundred batches each."""
        case = f"produce, {_OF_REQUEST} partitions a request"
        return self._produce(case, self._to_many, count, _OF_REQUEST)

    def _produce(
        self, case: str, requests: Sequence[bytes], count: int, batches: int
    ) -> list[Figure]:
        # Each begins elsewhere, so that they are not all at the same partition.
        firsts = (number * len(requests) // CONNECTIONS for number in range(CONNECTIONS))
        cycles = [[*requests[first:], *requests[:first]] for first in firsts]
        return produce_cycles(case, self._server, self._sockets, cycles, count, batches)

    def fetch(self, count: int) -> list[Figure]:
        """Fetch in sessions, one request in flight in each."""
        each = max(1, count // CONNECTIONS)
        talks = [(sock, self._begin_session(sock, each)) for sock in self._sockets]
        sample = self._server.measure(0, each * CONNECTIONS, lambda: converse(talks))
        case = f"fetch, a session of {PARTITIONS:,}, {_NEW} with something new"
        return [
            Figure(case, Measure.RATE, sample.requests / sample.seconds),
            Figure(case, Measure.CPU_PER_REQUEST, sample.cpu_us_per_request),
        ]

    def _begin_session(self, sock: socket.socket, count: int) -> Conversation:
        """Begin a session where there is nothing new in any partition."""
        everything = [(n, 0) for n in range(PARTITIONS)]
        answer = call(sock, self._fetch_frame(everything, _NO_SESSION, partition_bytes=1))
        (topic,) = answer_of(FetchResponse, FETCH_VERSION, answer).responses
        ends = {one.partition_index: one.high_watermark for one in topic.partitions}
        answer = call(sock, self._fetch_frame(list(ends.items()), (0, 0)))
        session_id = answer_of(FetchResponse, FETCH_VERSION, answer).session_id
        return _play(self._session_frames(session_id, ends, count))

    def _session_frames(self, session_id: int, ends: dict[int, int], count: int) -> list[bytes]:
        """Go back to the beginning of some partitions each time, and to the end of the last."""
        found, last = [], range(0)
        for number in range(count):
            first = number * _NEW % PARTITIONS
            new = range(first, first + _NEW)
            asked = [(n, ends[n]) for n in last] + [(n, 0) for n in new]
            found.append(self._fetch_frame(asked, (session_id, number + 1)))
            last = new
        return found

    def _fetch_frame(
        self,
        offsets: Sequence[tuple[int, int]],
        session: tuple[int, int],
        partition_bytes: int | None = None,
    ) -> bytes:
        size = partition_bytes or len(self._batch)
        partitions = tuple(
            FetchPartition(partition=n, fetch_offset=offset, partition_max_bytes=size)
            for n, offset in offsets
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=size * PARTITIONS,
            session_id=session[0],
            session_epoch=session[1],
            topics=(FetchTopic(topic_id=self._topic_id, partitions=partitions),),
        )
        return frame(request, FETCH_VERSION)


def _play(requests: Sequence[bytes]) -> Conversation:
    answer = b""
    for request in requests:
        answer = yield request
    response = answer_of(FetchResponse, FETCH_VERSION, answer)
    expect("Fetch", (response.error_code,))
    filled = [one for topic in response.responses for one in topic.partitions if one.records]
    if len(filled) != _NEW:
        raise RuntimeError(f"a fetch has brought {len(filled)} partitions, not {_NEW}")
