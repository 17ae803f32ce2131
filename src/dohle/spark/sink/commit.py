"""The steps of writing a batch exactly once (ADR 8).

:mod:`dohle.spark.sink.protocol` decides what to do; here it is done, in an order that holds
whatever dies in between:

    task    read the standing, take over if the run is new, claim a transactional id and get its
            identity, read the standing again, write, flush
    driver  hold the ledger (from here on earlier holders cannot write there), make sure that all
            transactions are open, abort strays, write the decision, commit each transaction, fence
            late attempts

All requests to brokers go through :class:`SinkCluster`: a test replaces it by a model of a cluster,
or by something that kills the process between two steps.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from dohle.client import PreparedTransaction
from dohle.client.producer.batch import ProducerIdentity
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TransactionalId
from dohle.spark.sink.protocol import (
    ONGOING,
    Batch,
    Decide,
    Decision,
    Standing,
    TaskResult,
    Turn,
    attempt_id,
    check_in_time,
    claim_id,
    commit_turn,
    gave_up,
    is_first_claim,
    may_abort,
    query_prefix,
    strays,
    taken_over,
    task_turn,
    transactions_of,
    usual_id,
)

_log = logging.getLogger("dohle.spark.sink")

#: The transaction is no longer open, or is another one.
_NOT_OPEN = frozenset(
    {
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
_FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_ENDS_AT_ONCE = 16
#: Tasks of a new run let those with lower numbers take over first: each waits this much longer.
_TAKE_OVER_DELAY_S = 0.2
_TAKE_OVER_DELAYS_MAX = 20
_TAKE_OVER_LOOK_S = 0.05
_TAKE_OVER_TRIES = 20


class RowsLost(RuntimeError):
    """A decided transaction was aborted by somebody else, most likely by its timeout."""


class NotOpen(RuntimeError):
    """A transaction ended before the batch was decided; nothing of the batch is written."""


class LedgerHold(Protocol):
    """The right to write a query's standing, until somebody else takes it."""

    standing: Standing | None

    async def write(self, standing: Standing) -> None:
        """Write a new standing, durably; PRODUCER_FENCED if somebody else holds the ledger."""


class SinkCluster(Protocol):
    """The requests to brokers."""

    #: The prefix of the transactional ids of all queries.
    prefix: str

    async def peek(self, query_id: str) -> Standing | None:
        """Return a query's standing as last written; a newer one may be on its way."""

    def hold(self, query_id: str) -> AbstractAsyncContextManager[LedgerHold]:
        """Fence everyone who may write the standing, and return it."""

    async def claim(self, transactional_id: TransactionalId) -> ProducerIdentity:
        """Get an identity that is never given to anyone else."""

    async def describe(
        self, ids: Collection[TransactionalId]
    ) -> Mapping[str, tuple[str, ProducerIdentity]]:
        """Return the state and the producer of those ids that are known."""

    async def states(self, begin: str) -> Mapping[str, str]:
        """Return the ids with this prefix that are open or empty, and which of both."""

    async def end(self, transaction: PreparedTransaction, *, commit: bool) -> None:
        """Commit or abort a transaction."""

    async def fence(self, ids: Collection[TransactionalId]) -> None:
        """Abort what is open under these ids, whoever uses them."""


@dataclass(frozen=True, slots=True)
class Place:
    """The task and attempt."""

    task: int
    attempt: int
    task_attempt_id: int


@dataclass(frozen=True, slots=True)
class TaskId:
    """The transactional id of an attempt, and the claim by which it got it."""

    transactional_id: TransactionalId
    claim: ProducerIdentity | None = None


async def begin_task(cluster: SinkCluster, batch: Batch, place: Place) -> Standing | None:
    """Return the standing with which an attempt starts; None if the batch is decided."""
    standing = await _standing_of_run(cluster, batch, place)
    return None if task_turn(standing, batch) is Turn.SKIP else standing


async def choose_id(cluster: SinkCluster, standing: Standing, batch: Batch, place: Place) -> TaskId:
    """Return the id for an attempt that has rows to write.

    A stage that runs again has first attempts again, and an earlier one may still be running: only
    one of them has the claim.
    """
    if place.attempt == 0:
        claim = await cluster.claim(claim_id(cluster.prefix, standing, batch, place.task))
        if is_first_claim(standing, place.task, claim):
            return TaskId(usual_id(cluster.prefix, standing, batch, place.task), claim)
    number = place.task_attempt_id
    return TaskId(attempt_id(cluster.prefix, standing, batch, place.task, number))


async def confirm_task(cluster: SinkCluster, batch: Batch) -> None:
    """Raise if the batch is over; called when the task's producer has its identity."""
    check_in_time(await cluster.peek(batch.query_id), batch)


async def _standing_of_run(cluster: SinkCluster, batch: Batch, place: Place) -> Standing:
    """Return the standing, after the run has taken over."""
    delay_s = _TAKE_OVER_DELAY_S * min(place.task, _TAKE_OVER_DELAYS_MAX)
    for tries in range(_TAKE_OVER_TRIES):
        standing = await cluster.peek(batch.query_id)
        waited_s = 0.0
        while waited_s < delay_s and task_turn(standing, batch) is Turn.TAKE_OVER:
            await asyncio.sleep(_TAKE_OVER_LOOK_S)
            waited_s += _TAKE_OVER_LOOK_S
            standing = await cluster.peek(batch.query_id)
        try:
            if task_turn(standing, batch) is Turn.TAKE_OVER:
                standing = await _take_over(cluster, batch)
        except KafkaError as error:
            # Another task takes over for the same run; or another run does, which is reported then.
            if error.code not in _FENCED or tries == _TAKE_OVER_TRIES - 1:
                raise
            continue
        assert standing is not None
        return standing
    raise AssertionError("the last try returns or raises")


async def _take_over(cluster: SinkCluster, batch: Batch) -> Standing:
    async with cluster.hold(batch.query_id) as held:
        if task_turn(held.standing, batch) is Turn.TAKE_OVER:
            standing = taken_over(held.standing, batch)
            await held.write(standing)
            return standing
        assert held.standing is not None
        return held.standing


async def commit_batch(
    cluster: SinkCluster, results: Collection[TaskResult], *, fail_on_data_loss: bool = True
) -> None:
    """Get all rows of a batch written, once; or, if allowed, go on although some are lost."""
    if not any(each.transaction is not None or each.is_skipped for each in results):
        return  # there were no rows
    batch = next(iter(results)).batch
    # A run that was replaced must not even take the ledger from its successor.
    commit_turn(await cluster.peek(batch.query_id), results)
    async with cluster.hold(batch.query_id) as held:
        before = held.standing
        turn = commit_turn(before, results)
        assert before is not None
        if isinstance(turn, Decide):
            await check_open(cluster, turn.decision.transactions)
            await _sweep(cluster, batch, before, turn.decision.ids)
            await held.write(turn.standing)
        else:
            _log.info("batch %d of %s was decided before", batch.batch_id, batch.query_id)
            await _abort_all(cluster, turn.abort)
        lost = await _commit_all(cluster, turn.decision)
        if lost:
            _tell_of_loss(batch, lost, fail=fail_on_data_loss)
        await _sweep(cluster, batch, before, turn.decision.ids)


async def abort_batch(cluster: SinkCluster, results: Collection[TaskResult]) -> None:
    """Abort what the tasks of a failed batch have left open, unless the batch is decided."""
    if not results:
        return  # no task has said which batch of which query it is
    batch = next(iter(results)).batch
    if not may_abort(await cluster.peek(batch.query_id), batch):
        return
    async with cluster.hold(batch.query_id) as held:
        if may_abort(held.standing, batch):
            assert held.standing is not None
            await held.write(gave_up(held.standing, batch))
            await _abort_all(cluster, transactions_of(results))
            await _sweep(cluster, batch, held.standing, ())


async def check_open(cluster: SinkCluster, transactions: Collection[PreparedTransaction]) -> None:
    """Raise unless each is still open: once the batch is decided it would be too late."""
    found = await cluster.describe([each.transactional_id for each in transactions])
    for each in transactions:
        state = found.get(each.transactional_id)
        if state != (ONGOING, each.identity):
            seen = "is not known" if state is None else f"is {state[0]} under {state[1]}"
            raise NotOpen(
                f"the transaction of {each.transactional_id} {seen}, not {ONGOING} under "
                f"{each.identity}: it timed out, or another attempt of its task has ended it. "
                "The batch is not decided; start the query again to write it"
            )


async def _sweep(
    cluster: SinkCluster, batch: Batch, standing: Standing, keep: Collection[str]
) -> None:
    """Fence what failed attempts, or earlier runs, have left open or may still open.

    What an earlier run has decided is committed first: Spark may have forgotten that it was not.
    """
    states = await cluster.states(query_prefix(cluster.prefix, batch.query_id))
    left = standing.decision.transactions if standing.decision is not None else ()
    for each in left:
        if states.get(each.transactional_id) == ONGOING:
            await end_quietly(cluster, each, commit=True)
    found = strays(cluster.prefix, batch, states, standing, keep)
    if found:
        _log.info("aborting transactions that were left open: %s", ", ".join(found))
        await cluster.fence(found)


async def _commit_all(cluster: SinkCluster, decision: Decision) -> list[TransactionalId]:
    """Commit each transaction of a decision, even if others fail; raise what went wrong.

    Returns those that somebody else has ended.
    """
    lost: list[TransactionalId] = []

    async def commit(transaction: PreparedTransaction) -> None:
        try:
            await cluster.end(transaction, commit=True)
        except KafkaError as error:
            if error.code not in _NOT_OPEN:
                raise
            forgotten = error.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
            if not (forgotten and decision.is_two_phase):
                lost.append(transaction.transactional_id)

    await all_at_once(commit, decision.transactions)
    return lost


def _tell_of_loss(batch: Batch, lost: Collection[TransactionalId], *, fail: bool) -> None:
    what = (
        f"batch {batch.batch_id} of query {batch.query_id} was decided, but transactions of it "
        f"were ended by somebody else: {', '.join(lost)}. Their rows are lost if they timed out "
        "(transaction.timeout.ms) before they could be committed. Set "
        "transaction.two.phase.commit.enable on the brokers to avoid the timeout"
    )
    if fail:
        raise RowsLost(
            f"{what}. Set the option failOnDataLoss to false, for one start of the query, to go on "
            "without them"
        )
    _log.warning("%s; the query goes on, since failOnDataLoss is false", what)


async def _abort_all(cluster: SinkCluster, transactions: Collection[PreparedTransaction]) -> None:
    await all_at_once(partial(end_quietly, cluster, commit=False), transactions)


async def all_at_once(
    end: Callable[[PreparedTransaction], Awaitable[None]],
    transactions: Collection[PreparedTransaction],
) -> None:
    """End each, even if others fail; raise what went wrong."""
    limit = asyncio.Semaphore(_ENDS_AT_ONCE)

    async def end_one(transaction: PreparedTransaction) -> None:
        async with limit:
            await end(transaction)

    outcomes = await asyncio.gather(*map(end_one, transactions), return_exceptions=True)
    for outcome in outcomes:
        if outcome is not None:
            raise outcome


async def end_quietly(
    cluster: SinkCluster, transaction: PreparedTransaction, *, commit: bool
) -> None:
    """End a transaction; it does not matter if it has already ended."""
    try:
        await cluster.end(transaction, commit=commit)
    except KafkaError as error:
        if error.code not in _NOT_OPEN:
            raise
