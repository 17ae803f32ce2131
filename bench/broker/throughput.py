"""Large loads, beside bare system calls, both fed by a client that costs next to nothing.

What is compared has the same sizes on both sides: the bytes of a receive and of a ``sendfile``,
what is in the page cache, the connection's age. The machine's speed may change by half from one
second to the next, so the two take turns every few hundredths of a second, on connections that
stay, and many rounds make a median.
"""

from __future__ import annotations

from contextlib import ExitStack

from bench.processes import Process, Sample, broker, ceiling, middle
from bench.raw_client import (
    Load,
    appended_at,
    build_batch,
    call,
    ceiling_sendfile,
    ceiling_write,
    connect,
    create_topics,
    fetch_frame,
    fetched_size,
    pour_first,
    produce_frame,
    repeat,
)
from bench.report import Row
from dohle.core.ids import TopicName
from dohle.server.net.receive_buffer import BUFFER_BYTES, BUFFER_BYTES_KEPT

PRODUCE_REACH, CONSUME_REACH = 1.5, 1.3
_WARM_UP_ROUNDS = 3
#: What is produced in a turn, and how many times that is consumed in one.
_TURN_BYTES = 30_000_000
_PASSES = 3

#: (name, bytes of a record, records of a batch, whether it is to reach the ceiling)
BATCHES = (
    ("1 MB batches", 1_000, 1_000, True),
    ("16 KB batches", 1_000, 16, False),
)
#: What is measured, beside what, and what is to be reached.
_ACTIONS = (("produce", "recv → write", PRODUCE_REACH), ("consume", "sendfile", CONSUME_REACH))


def rows(quick: bool) -> list[Row]:
    """Measure all cases, each with new processes: memory is used again when they have gone."""
    rounds = 11 if quick else 31
    found: dict[str, dict[str, Sample]] = {}
    for name, record_size, records, _ in BATCHES:
        with broker() as server, ceiling() as bare, ExitStack() as stack:
            turns = _Turns(stack, server, bare, build_batch(record_size, records), records)
            samples = [turns.run() for _ in range(_WARM_UP_ROUNDS + rounds)][_WARM_UP_ROUNDS:]
        found[name] = {case: middle([sample[case] for sample in samples]) for case in samples[0]}
    return [
        Row(
            action,
            f"raw client, {name} ({found[name][action]})",
            "CPU s/GB",
            found[name][action].cpu_s_per_gb,
            peer,
            found[name][peer].cpu_s_per_gb,
            reach if reaches else None,
        )
        for action, peer, reach in _ACTIONS
        for name, _, _, reaches in BATCHES
    ]


class _Turns:
    """A broker and the bare loops, each on one connection, and what both are fed with."""

    def __init__(
        self, stack: ExitStack, server: Process, bare: Process, batch: bytes, records: int
    ) -> None:
        topic = TopicName("turns")
        self._topic_id = create_topics(server.address, [topic])[topic]
        self._server, self._bare = server, bare
        self._records, self._batch_size = records, len(batch)
        self._socket = stack.enter_context(connect(server.address))
        self._bare_socket = stack.enter_context(connect(bare.address))
        request = produce_frame(topic, batch)
        self._count = _TURN_BYTES // len(request)
        self._load = repeat(request, self._count)
        # As large a buffer as a connection has for such frames.
        is_large = len(request) > BUFFER_BYTES
        self._recv_size = BUFFER_BYTES_KEPT if is_large else BUFFER_BYTES
        # The first of each kind tells how long an answer is; the bare file has as many bytes.
        self._produced_size = len(call(self._socket, request))
        fetched = call(self._socket, self._fetch(0))
        if fetched_size(fetched) != len(batch):
            raise RuntimeError("a fetch has not brought one batch")
        self._fetched_size = len(fetched)
        ceiling_write(self._bare_socket, repeat(request, 1), self._recv_size)
        self._end_offset = records

    def _fetch(self, offset: int) -> bytes:
        return fetch_frame(self._topic_id, offset, self._batch_size)

    def run(self) -> dict[str, Sample]:
        """Take one turn each: write something, and send what was written."""
        load, count, size = self._load, self._count, self._count * self._batch_size
        server, bare, bare_socket = self._server, self._bare, self._bare_socket
        first_offset = self._end_offset
        self._end_offset += count * self._records
        offsets = range(first_offset, self._end_offset, self._records)
        fetches = Load([b"".join(map(self._fetch, offsets)) * _PASSES], count * _PASSES)
        return {
            "produce": server.measure(load.size, count, self._produce),
            "recv → write": bare.measure(
                load.size, count, lambda: ceiling_write(bare_socket, load, self._recv_size)
            ),
            "consume": server.measure(
                _PASSES * size, fetches.requests, lambda: self._consume(fetches)
            ),
            "sendfile": bare.measure(_PASSES * size, fetches.requests, self._bare_consume),
        }

    def _produce(self) -> None:
        last = pour_first(self._socket, self._load, self._produced_size)
        if appended_at(last) != self._end_offset - self._records:
            raise RuntimeError("not every request was appended")

    def _consume(self, fetches: Load) -> None:
        if fetched_size(pour_first(self._socket, fetches, self._fetched_size)) != self._batch_size:
            raise RuntimeError("not every fetch has brought one batch")

    def _bare_consume(self) -> None:
        for _ in range(_PASSES):
            size = self._count * self._batch_size
            ceiling_sendfile(self._bare_socket, size, self._batch_size)
