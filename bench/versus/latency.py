"""(d) Latency at a fixed, moderate rate.

Requests are sent when it is time, whether or not earlier ones have been answered, and each one's
time runs from when it was sent: a server that stops for a while is charged for all who wait.
Beside each writer a second connection fetches, with requests that wait for records: the time until
it has a record is from end to end. One thread does all of it, so that only the server is in the
way.
"""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import quantiles
from time import perf_counter

from bench.comparison.figures import Measure
from bench.raw_client import build_batch, connect, fetch_frame, fetched_size, produce_frame
from bench.versus.figures import Figure
from bench.versus.topics import Place, delete_topics, place
from bench.versus.turns import Turn

TITLE = "latency"
SETTINGS = {"num.partitions": "1"}

#: So many writers, and as many readers, since Kafka serves one request of a connection at a time.
CONNECTIONS = 4
#: The first of each connection do not count: connections and topics are new.
_SETTLING = 50
_FETCH_WAIT_MS = 500
_FETCH_BYTES = 1_000_000
_RECV_BYTES = 1 << 20
_TIMEOUT_S = 30.0
_SIZE = struct.Struct(">i")
_OFFSET = struct.Struct(">q")
_MARK = 0x1BADB0021BADB002


@dataclass(frozen=True, slots=True)
class Beat:
    """What is sent, how often and for how long."""

    records: int
    rate: int
    seconds: float

    @property
    def count(self) -> int:
        """How often in all."""
        return int(self.rate * self.seconds)

    def __str__(self) -> str:
        batch = "1 KiB" if self.records == 1 else f"{self.records} KiB"
        return f"{batch} at {self.rate:,}/s"


BEATS = (Beat(1, 1_000, 5.0), Beat(16, 500, 4.0))
#: Java compiles what has been done often: it is done more often before.
WARM_UP_BEAT = Beat(1, 4_000, 1.0)


def turn(turn: Turn) -> list[Figure]:
    """Measure at each rate."""
    turn.warm_up(lambda number: _warm_up(turn, number), paced=True)
    found = []
    for number, beat in enumerate(BEATS):
        loop = Loop(places_of(turn, f"paced-{number}"), beat, turn.size(beat.count))
        loop.run()
        found += loop.figures()
    return found


def _warm_up(turn: Turn, number: int) -> None:
    places = places_of(turn, f"warm-{number}")
    Loop(places, WARM_UP_BEAT, turn.size(WARM_UP_BEAT.count)).run()
    delete_topics(turn.server.address, *(one.topic for one in places))


def places_of(turn: Turn, topic: str) -> list[Place]:
    """Create a topic for each pair."""
    return [place(turn.server.address, f"{topic}-{n}") for n in range(CONNECTIONS)]


class Loop:
    """Pairs of a writer that keeps time and a reader that waits, each with a topic of its own."""

    def __init__(self, places: Sequence[Place], beat: Beat, count: int) -> None:
        batch = build_batch(1024, beat.records)
        self._beat, self._count = beat, count
        self._pairs = [_Pair(one, batch, beat.records) for one in places]
        self._period_s = 1 / beat.rate

    @property
    def produced_s(self) -> list[float]:
        return [took for pair in self._pairs for took in pair.produced_s[_SETTLING:]]

    @property
    def fetched_s(self) -> list[float]:
        return [took for pair in self._pairs for took in pair.fetched_s[_SETTLING:]]

    def figures(self) -> list[Figure]:
        """Tell how long writes have taken, and how long it was until they were read."""
        found = []
        for action, each in (("produce", self.produced_s), ("end to end", self.fetched_s)):
            cuts = [cut * 1e3 for cut in quantiles(each, n=1_000)]
            case = f"{action}, {self._beat}"
            found += [
                Figure(f"{case}, p50", Measure.LATENCY, cuts[499]),
                Figure(f"{case}, p99", Measure.LATENCY_P99, cuts[989]),
                Figure(f"{case}, p99.9", Measure.LATENCY, cuts[998]),
            ]
        return found

    def run(self) -> None:
        """Send all, and take the time of each."""
        with ExitStack() as stack:
            owners: dict[socket.socket, _Pair] = {}
            for pair in self._pairs:
                owners |= dict.fromkeys(pair.connect(stack), pair)
            sent, begun = 0, perf_counter()
            while sent < self._count or not all(pair.is_done for pair in self._pairs):
                left = sent * self._period_s - (perf_counter() - begun)
                if sent == self._count:
                    left = _TIMEOUT_S
                elif left <= 0:
                    self._pairs[sent % len(self._pairs)].send()
                    sent += 1
                    continue
                ready, _, _ = select.select(owners, [], [], left)
                now = perf_counter()
                if not ready and sent == self._count:
                    raise TimeoutError("an answer is missing")
                for sock in ready:
                    owners[sock].receive(sock, now)


class _Pair:
    """A writer, and a reader that long-polls for what was written."""

    def __init__(self, place: Place, batch: bytes, records: int) -> None:
        self._address, topic, topic_id = place
        self._records, self._batch_bytes = records, len(batch)
        self._request = produce_frame(topic, batch)
        self._fetch = bytearray(fetch_frame(topic_id, _MARK, _FETCH_BYTES, _FETCH_WAIT_MS))
        self._offset_at = self._fetch.index(_OFFSET.pack(_MARK))
        self._sent_at: list[float] = []
        self.produced_s: list[float] = []
        self.fetched_s: list[float] = []

    @property
    def is_done(self) -> bool:
        """Tell whether everything that was sent has been acknowledged and fetched."""
        return len(self._sent_at) == len(self.produced_s) == len(self.fetched_s)

    def connect(self, stack: ExitStack) -> tuple[socket.socket, socket.socket]:
        """Open both connections, and send the first fetch."""
        self._writer = stack.enter_context(connect(self._address))
        self._reader = stack.enter_context(connect(self._address))
        self._held = {self._writer: bytearray(), self._reader: bytearray()}
        self._ask()
        return self._writer, self._reader

    def send(self) -> None:
        """Write once."""
        self._sent_at.append(perf_counter())
        self._writer.send(self._request)

    def receive(self, sock: socket.socket, now: float) -> None:
        """Read what has arrived, and take the time of each complete answer."""
        held = self._held[sock]
        _receive(sock, held)
        while (answer := _taken(held)) is not None:
            if sock is self._writer:
                self.produced_s.append(now - self._sent_at[len(self.produced_s)])
            else:
                first = len(self.fetched_s)
                count = fetched_size(answer) // self._batch_bytes
                self.fetched_s += [now - at for at in self._sent_at[first : first + count]]
                self._ask()

    def _ask(self) -> None:
        _OFFSET.pack_into(self._fetch, self._offset_at, len(self.fetched_s) * self._records)
        self._reader.sendall(self._fetch)


def _receive(sock: socket.socket, held: bytearray) -> None:
    data = sock.recv(_RECV_BYTES)
    if not data:
        raise ConnectionError("the server has closed the connection")
    held += data


def _taken(held: bytearray) -> bytes | None:
    """Remove and return the first answer if it has arrived completely."""
    if len(held) < _SIZE.size:
        return None
    end = _SIZE.size + _SIZE.unpack_from(held)[0]
    if len(held) < end:
        return None
    answer = bytes(held[:end])
    del held[:end]
    return answer
