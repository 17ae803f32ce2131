"""Transactions (v2, KIP-890): produce to some partitions, commit offsets or not, and end.

One request is in flight for each producer, as with a client that commits and waits. The requests
are built before: a producer's epoch is one more with each transaction, and is known in advance.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from time import time
from typing import NamedTuple

from bench.coordinators.client import (
    Conversation,
    again,
    answer_of,
    connect_many,
    converse,
    expect,
    find_coordinators,
    init_producer,
)
from bench.processes import Process, Sample, broker, rounds_of
from bench.raw_client import appended_at, build_batch, create_topics, frame, produce_frame
from bench.report import Row
from dohle.core.ids import GroupId, TopicName, TransactionalId
from dohle.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from dohle.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from dohle.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from dohle.records.builder import BatchBuilder

PRODUCE_VERSION, END_VERSION, OFFSETS_VERSION = 12, 5, 5
PRODUCERS = 10
PARTITIONS = 10
_RECORD = bytes(100)
_NOW_MS = int(time() * 1000)
TOPIC = TopicName("transactional")


class Kind(NamedTuple):
    """What is done in each transaction."""

    name: str
    partitions: int
    offsets: int = 0


_KINDS = (
    Kind("1 partition", 1),
    Kind(f"{PARTITIONS} partitions", PARTITIONS),
    Kind("1 partition and an offset", 1, 1),
)


def rows(quick: bool) -> list[Row]:
    """Measure all cases."""
    count, rounds = (300, 2) if quick else (500, 5)
    found = []
    with broker(num_partitions=str(PARTITIONS)) as server, ExitStack() as stack:
        create_topics(server.address, [TOPIC])
        find_coordinators(server.address, 0)
        find_coordinators(server.address, 1)
        sockets = connect_many(stack, server.address, PRODUCERS)
        producers = [TransactionalProducer(sock, f"producer-{n}") for n, sock in enumerate(sockets)]
        for some in (producers[:1], producers):
            found += _compared(server, some, count, rounds)
    return found


def _play(requests: Sequence[bytes], cycle: int, last_epoch: int) -> Conversation:
    """Send the requests of transactions, of which each has so many; see that all went well.

    An answer with an error is longer than one without. And had one transaction not been committed,
    the epoch would not be what it is in the end.
    """
    sizes: list[int] = []
    answer = b""
    for number, request in enumerate(requests):
        answer = yield request
        if number < cycle:
            sizes.append(len(answer))
        elif len(answer) != sizes[number % cycle]:
            raise RuntimeError(f"request {number % cycle + 1} of a transaction failed: {answer!r}")
    response = answer_of(EndTxnResponse, END_VERSION, answer)
    expect("EndTxn", (response.error_code,))
    if response.producer_epoch != last_epoch:
        raise RuntimeError(f"the epoch is {response.producer_epoch}, not {last_epoch}")


def _compared(
    server: Process, producers: list[TransactionalProducer], count: int, rounds: int
) -> list[Row]:
    each = count // len(producers)
    plain = f"{len(producers)} producers, plain"

    def transactions(kind: Kind) -> Sample:
        talks = []
        for one in producers:
            requests = one.transactions(kind, each)
            talks.append((one.sock, _play(requests, len(requests) // each, one.next_epoch)))
        return server.measure(0, each * len(producers), lambda: converse(talks))

    def produces() -> Sample:
        batch = build_batch(len(_RECORD), 1)
        talks = [
            (one.sock, again(produce_frame(TOPIC, batch, n), 5 * each, appended_at))
            for n, one in enumerate(producers)
        ]
        return server.measure(0, 5 * each * len(producers), lambda: converse(talks))

    medians = rounds_of(
        {
            plain: produces,
            **{kind.name: partial(transactions, kind) for kind in _KINDS},
        },
        rounds,
    )
    floor = medians[plain]
    who = "1 producer" if len(producers) == 1 else f"{len(producers)} producers"
    return [
        Row(
            "transactions",
            f"{who}, {kind.name} ({ours.requests / ours.seconds:,.0f}/s)",
            "CPU µs",
            ours.cpu_us_per_request,
            f"plain produce ({floor.requests / floor.seconds:,.0f}/s)",
            floor.cpu_us_per_request,
        )
        for kind in _KINDS
        for ours in (medians[kind.name],)
    ]


class TransactionalProducer:
    """A transactional producer."""

    def __init__(self, sock: socket.socket, transactional_id: str) -> None:
        self.sock = sock
        self._transactional_id = TransactionalId(transactional_id)
        self._id, self.next_epoch = init_producer(sock, transactional_id)

    def transactions(self, kind: Kind, count: int) -> list[bytes]:
        """Return the requests of its next transactions."""
        requests = []
        for _ in range(count):
            requests.append(self._produce(kind.partitions))
            if kind.offsets:
                requests.append(self._commit(kind.offsets))
            requests.append(self._end())
            self.next_epoch += 1
        return requests

    def _produce(self, partitions: int) -> bytes:
        builder = BatchBuilder(
            producer_id=self._id,
            producer_epoch=self.next_epoch,
            base_sequence=0,
            is_transactional=True,
        )
        builder.append(_NOW_MS, None, _RECORD)
        batch = bytes(builder.build())
        data = tuple(PartitionProduceData(index=n, records=batch) for n in range(partitions))
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=(TopicProduceData(name=TOPIC, partition_data=data),),
        )
        return frame(request, PRODUCE_VERSION)

    def _commit(self, partitions: int) -> bytes:
        committed = tuple(
            TxnOffsetCommitRequestPartition(
                partition_index=n, committed_offset=self.next_epoch, committed_metadata=""
            )
            for n in range(partitions)
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self._transactional_id,
            group_id=GroupId(f"group-of-{self._transactional_id}"),
            producer_id=self._id,
            producer_epoch=self.next_epoch,
            topics=(TxnOffsetCommitRequestTopic(name=TOPIC, partitions=committed),),
        )
        return frame(request, OFFSETS_VERSION)

    def _end(self) -> bytes:
        request = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=self._id,
            producer_epoch=self.next_epoch,
            committed=True,
        )
        return frame(request, END_VERSION)
