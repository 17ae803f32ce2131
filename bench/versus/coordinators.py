"""(g) Transactions and offset commits, one in flight for each of several clients.

Transactions are of the second kind (KIP-890): a produce request and an EndTxn, built before. A
server that is not yet done with a producer's last transaction says so to its next request, which
is then sent again at once.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TypeVar

from bench.comparison.figures import Measure
from bench.coordinators.client import (
    Conversation,
    again,
    answer_of,
    check_commit,
    commit_frame,
    connect_many,
    converse,
    expect,
    find_coordinators,
)
from bench.coordinators.transactions import (
    END_VERSION,
    PRODUCE_VERSION,
    TOPIC,
    Kind,
    TransactionalProducer,
)
from bench.raw_client import call
from bench.versus.figures import Figure
from bench.versus.topics import create_topic
from bench.versus.turns import Turn
from dohle.core.errors import ErrorCode
from dohle.protocol.messages.end_txn import EndTxnResponse
from dohle.protocol.messages.produce import ProduceResponse

TITLE = "coordinators"
SETTINGS = {"num.partitions": "1"}

PRODUCERS = 10
MEMBERS = 20
PARTITIONS = 100
_ONE, _TEN = Kind("1 partition", 1), Kind("10 partitions", 10)
_TRANSACTIONS = 2_000
_COMMITS = 20_000
_START_S_MAX = 60.0
_RETRY_S = 0.05
_UNFINISHED = {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS}

T = TypeVar("T")


def turn(turn: Turn) -> list[Figure]:
    """Run transactions of one producer and of several, and commit few and many offsets."""
    address = turn.server.address
    create_topic(address, TOPIC, PARTITIONS)
    for key_type in (0, 1):
        _persist(partial(find_coordinators, address, key_type))
    with ExitStack() as stack:
        sockets = connect_many(stack, address, MEMBERS)
        transactions, commits = _Transactions(turn, sockets[:PRODUCERS]), _Commits(turn, sockets)

        def warm_up(_: int) -> None:
            transactions.run(PRODUCERS, _TEN, 50)
            commits.run(1, 500)
            commits.run(PARTITIONS, 25)

        turn.warm_up(warm_up)
        count = turn.size(_TRANSACTIONS)
        return [
            *transactions.run(1, _ONE, count // 2),
            *transactions.run(PRODUCERS, _ONE, count),
            *transactions.run(PRODUCERS, _TEN, count),
            *commits.run(1, turn.size(_COMMITS)),
            *commits.run(PARTITIONS, turn.size(_COMMITS) // 20),
        ]


def _figures(case: str, rate: float, cpu_us: float) -> list[Figure]:
    return [Figure(case, Measure.RATE, rate), Figure(case, Measure.CPU_PER_REQUEST, cpu_us)]


def _persist(action: Callable[[], T]) -> T:
    """Ask again while a coordinator's topic is being made and its partitions are being loaded."""
    deadline = time.monotonic() + _START_S_MAX
    while True:
        try:
            return action()
        except RuntimeError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_S)


class _Transactions:
    """Transactional producers, each on a connection."""

    def __init__(self, turn: Turn, sockets: list[socket.socket]) -> None:
        self._server = turn.server
        self._producers = [
            _persist(partial(TransactionalProducer, sock, f"producer-{n}"))
            for n, sock in enumerate(sockets)
        ]

    def run(self, producers: int, kind: Kind, count: int) -> list[Figure]:
        """Run so many transactions, by so many producers."""
        each = max(1, count // producers)
        some = self._producers[:producers]
        talks = [(one.sock, _play(one.transactions(kind, each))) for one in some]
        sample = self._server.measure(0, each * producers, lambda: converse(talks))
        who = "1 producer" if producers == 1 else f"{producers} producers"
        case = f"transactions of {kind.name}, {who}"
        return _figures(case, sample.requests / sample.seconds, sample.cpu_us_per_request)


def _play(requests: Sequence[bytes]) -> Conversation:
    """Send a produce request and an EndTxn in turn; each until it has been carried out."""
    for number, request in enumerate(requests):
        codes = _produce_codes if number % 2 == 0 else _end_codes
        answer = yield request
        while not _UNFINISHED.isdisjoint(found := codes(answer)):
            answer = yield request
        expect("a request of a transaction", found)


def _produce_codes(answer: bytes) -> list[int]:
    response = answer_of(ProduceResponse, PRODUCE_VERSION, answer)
    return [one.error_code for one in response.responses[0].partition_responses]


def _end_codes(answer: bytes) -> list[int]:
    return [answer_of(EndTxnResponse, END_VERSION, answer).error_code]


def _commit(sock: socket.socket, request: bytes) -> None:
    check_commit(call(sock, request))


class _Commits:
    """Members of groups of their own, each on a connection."""

    def __init__(self, turn: Turn, sockets: list[socket.socket]) -> None:
        self._server, self._sockets = turn.server, sockets
        for request, sock in zip(self._requests(1), sockets, strict=True):
            _persist(partial(_commit, sock, request))

    def _requests(self, partitions: int) -> Iterable[bytes]:
        return (
            commit_frame(f"group-{n}", "", -1, TOPIC, partitions) for n in range(len(self._sockets))
        )

    def run(self, partitions: int, count: int) -> list[Figure]:
        """Commit so many times, the offsets of so many partitions each time."""
        each = max(1, count // len(self._sockets))
        talks = [
            (sock, again(request, each, check_commit))
            for sock, request in zip(self._sockets, self._requests(partitions), strict=True)
        ]
        sample = self._server.measure(0, each * len(talks), lambda: converse(talks))
        what = "1 partition" if partitions == 1 else f"{partitions} partitions"
        case = f"commits of {what}, {len(talks)} members"
        return _figures(case, sample.requests / sample.seconds, sample.cpu_us_per_request)
