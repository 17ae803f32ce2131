"""A model of brokers for the steps of the sink, and a scheduler that decides who goes on.

Whatever asks the brokers waits at a gate before and after the broker has acted. The scheduler opens
one gate at a time, and so decides in which order everything happens; who is killed at a gate never
comes back, whether or not the broker has acted.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import AsyncIterator, Collection, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from dohle.client import PreparedTransaction, TimedOut
from dohle.client.producer.batch import ProducerIdentity
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import ProducerId, TransactionalId
from dohle.spark.sink.protocol import (
    EMPTY,
    ONGOING,
    Standing,
    decode_standing,
    encode_standing,
)

PREFIX = "model"


@dataclass
class Transaction:
    """What a coordinator knows of a transactional id."""

    identity: ProducerIdentity
    state: str = "Empty"
    rows: list[str] = field(default_factory=list)


class ModelBrokers:
    """Coordinators and logs, by the rules of one of the two protocols of transactions."""

    def __init__(self, *, is_v2: bool) -> None:
        self.is_v2 = is_v2
        self.transactions: dict[str, Transaction] = {}
        self.committed: list[str] = []
        self.ledger: dict[str, bytes] = {}
        self.ledger_holders: dict[str, int] = {}

    def init(self, transactional_id: str) -> ProducerIdentity:
        known = self.transactions.get(transactional_id)
        if known is None:
            identity = ProducerIdentity(ProducerId(len(self.transactions)), 0)
            self.transactions[transactional_id] = Transaction(identity)
            return identity
        if known.state == "Ongoing":
            self.abort(known)
        known.identity = known.identity._replace(epoch=known.identity.epoch + 1)
        known.state = "Empty"
        return known.identity

    def abort(self, known: Transaction) -> None:
        """Abort against the producer's will."""
        known.identity = known.identity._replace(epoch=known.identity.epoch + 1)
        known.state = "CompleteAbort"
        known.rows = []

    def produce(self, transactional_id: str, identity: ProducerIdentity, row: str) -> None:
        known = self.transactions[transactional_id]
        if known.identity != identity:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, transactional_id)
        known.state = "Ongoing"
        known.rows.append(row)

    def end(self, prepared: PreparedTransaction, *, commit: bool) -> None:
        known = self.transactions[prepared.transactional_id]
        outcome = "CompleteCommit" if commit else "CompleteAbort"
        epoch = prepared.identity.epoch
        if self.is_v2 and known.state == outcome and known.identity.epoch == epoch + 1:
            return
        if known.identity.epoch != epoch:
            raise KafkaError(ErrorCode.PRODUCER_FENCED, prepared.transactional_id)
        if not self.is_v2 and known.state == outcome:
            return
        if known.state != "Ongoing":
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, prepared.transactional_id)
        if commit:
            self.committed += known.rows
        known.rows = []
        known.state = outcome
        if self.is_v2:
            known.identity = known.identity._replace(epoch=epoch + 1)


class Scheduler:
    """Opens gates in an order of its own."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        #: How often those go first that came last, while others wait for long.
        self._starvation = rng.choice((0.0, 0.7, 0.9))
        self._gates: list[asyncio.Future[None]] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    async def gate(self) -> None:
        """Wait for one's turn."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._gates.append(future)
        await future

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Let something run on its own."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # who waits for it is told; others need not be

    async def run(self, until: asyncio.Task[Any]) -> None:
        """Open gates until something is done."""
        while not until.done():
            await asyncio.sleep(0)
            self._gates = [gate for gate in self._gates if not gate.done()]
            if self._gates:
                is_unfair = self.rng.random() < self._starvation
                place = -1 if is_unfair else self.rng.randrange(len(self._gates))
                self._gates.pop(place).set_result(None)
            else:
                # Somebody waits for time to pass, which it does when nothing else happens.
                await asyncio.sleep(0.01)

    async def run_out(self) -> None:
        """Open gates until nobody is left."""
        while self._tasks:
            await self.run(next(iter(self._tasks)))
            await asyncio.sleep(0)  # lets the one that is done be forgotten

    async def kill_all(self) -> None:
        """Let nobody come back."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class ModelSinkCluster:
    """The brokers as one process sees them."""

    prefix = PREFIX

    def __init__(self, brokers: ModelBrokers, scheduler: Scheduler, answers_lost: float) -> None:
        self.brokers = brokers
        self._scheduler = scheduler
        self._answers_lost = answers_lost

    async def gate(self) -> None:
        await self._scheduler.gate()

    async def answer(self) -> None:
        """Have the answer come, or not."""
        await self.gate()
        if self._scheduler.rng.random() < self._answers_lost:
            raise TimedOut("the answer was lost")

    async def peek(self, query_id: str) -> Standing | None:
        await self.gate()
        value = self.brokers.ledger.get(query_id)
        await self.gate()
        return None if value is None else decode_standing(value)

    @asynccontextmanager
    async def hold(self, query_id: str) -> AsyncIterator[ModelHold]:
        await self.gate()
        holders = self.brokers.ledger_holders
        holder = holders[query_id] = holders.get(query_id, 0) + 1
        await self.answer()
        yield ModelHold(self, query_id, holder, await self.peek(query_id))

    async def claim(self, transactional_id: TransactionalId) -> ProducerIdentity:
        await self.gate()
        identity = self.brokers.init(transactional_id)
        await self.answer()
        return identity

    async def describe(
        self, ids: Collection[TransactionalId]
    ) -> Mapping[str, tuple[str, ProducerIdentity]]:
        await self.gate()
        found: dict[str, tuple[str, ProducerIdentity]] = {
            each: (known.state, known.identity)
            for each in ids
            if (known := self.brokers.transactions.get(each)) is not None
        }
        await self.gate()
        return found

    async def states(self, begin: str) -> Mapping[str, str]:
        await self.gate()
        found = {
            each: known.state
            for each, known in self.brokers.transactions.items()
            if each.startswith(begin) and known.state in (ONGOING, EMPTY)
        }
        await self.gate()
        return found

    async def end(self, transaction: PreparedTransaction, *, commit: bool) -> None:
        await self.gate()
        self.brokers.end(transaction, commit=commit)
        await self.answer()

    async def fence(self, ids: Collection[TransactionalId]) -> None:
        for each in ids:
            await self.gate()
            self.brokers.init(each)
        await self.gate()


class ModelHold:
    """The right to write a standing, until somebody else has it."""

    def __init__(
        self, cluster: ModelSinkCluster, query_id: str, holder: int, standing: Standing | None
    ) -> None:
        self.standing = standing
        self._cluster = cluster
        self._query_id = query_id
        self._holder = holder

    async def write(self, standing: Standing) -> None:
        await self._cluster.gate()
        brokers = self._cluster.brokers
        if brokers.ledger_holders[self._query_id] != self._holder:
            raise KafkaError(ErrorCode.PRODUCER_FENCED, self._query_id)
        brokers.ledger[self._query_id] = encode_standing(standing)
        await self._cluster.answer()


class _NoWaiting(selectors.SelectSelector):
    """Lets the loop's time pass instead of waiting for it."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout:
            self.passed_s += timeout
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop in which sleeping takes no time."""

    def __init__(self) -> None:
        self._virtual = _NoWaiting()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.passed_s


def run_virtually(work: Coroutine[Any, Any, None]) -> None:
    """Run something to its end, in no time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(work)
