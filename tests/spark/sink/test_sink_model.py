"""The steps of the sink against a model of brokers, with everything that can go wrong.

A world runs a query of some batches: attempts of tasks are killed, speculative ones run beside
them, answers get lost, drivers die or are only thought to be dead, the number of tasks differs from
one attempt at a batch to the next. In the end every row is there once and nothing is left open.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dohle.client import PreparedTransaction
from dohle.core.errors import KafkaError
from dohle.spark.sink.commit import (
    NotOpen,
    Place,
    RowsLost,
    abort_batch,
    begin_task,
    choose_id,
    commit_batch,
    confirm_task,
)
from dohle.spark.sink.protocol import Batch, OutOfStep, Superseded, TaskResult, TooLate
from tests.spark.sink.sink_model import ModelBrokers, ModelSinkCluster, Scheduler, run_virtually

_QUERY = "q"
_ATTEMPTS_MAX = 3
_EXPECTED = (KafkaError, Superseded, OutOfStep, NotOpen, TooLate)


@dataclass(frozen=True)
class Faults:
    """How likely each is, at each occasion."""

    answer_lost: float = 0.0
    task_killed: float = 0.0
    speculation: float = 0.0
    driver_killed: float = 0.0
    driver_replaced: float = 0.0
    timed_out: float = 0.0
    no_rows: float = 0.0


class World:
    """A query with its checkpoint, and the drivers that have run it."""

    def __init__(self, rng: random.Random, batches: int, faults: Faults, *, is_v2: bool) -> None:
        self.rng = rng
        self.batches = batches
        self.faults = faults
        self.brokers = ModelBrokers(is_v2=is_v2)
        self.scheduler = Scheduler(rng)
        #: The checkpoint: how many batches Spark counts as committed.
        self.done = 0
        self.lost: list[RowsLost] = []
        self._without_rows = {each for each in range(batches) if self.chance(faults.no_rows)}
        self._runs = 0
        self._attempts = 0

    def rows_of(self, batch_id: int) -> list[str]:
        count = 0 if batch_id in self._without_rows else 4
        return [f"{batch_id}:{number}" for number in range(count)]

    async def run(self) -> None:
        for _ in range(60):
            if self.done >= self.batches:
                break
            driver = self.scheduler.start(self.driver())
            if self.chance(self.faults.driver_replaced):
                # It is thought to be dead, and goes on beside the next one.
                for _ in range(self.rng.randrange(60)):
                    self.scheduler.start(self._nothing())
                other = self.scheduler.start(self.driver())
                await self.scheduler.run(other)
            elif self.chance(self.faults.driver_killed):
                steps = self.scheduler.start(self._some_steps())
                await self.scheduler.run(steps)
                driver.cancel()
            else:
                await self.scheduler.run(driver)
        if self.chance(0.5):
            await self.scheduler.kill_all()
        self.faults = Faults()
        self.batches = self.done + 1
        # Attempts and drivers of before may go on beside it, and must leave nothing behind. One
        # that has not begun to write may still take over, but then it is known.
        for _ in range(20):
            if self.done < self.batches:
                await self.scheduler.run(self.scheduler.start(self.driver()))
        # A query whose rows are lost says so, and does not go on.
        assert self.done == self.batches or self.lost
        await self.scheduler.run_out()

    async def _nothing(self) -> None:
        await self.scheduler.gate()

    async def _some_steps(self) -> None:
        for _ in range(self.rng.randrange(80)):
            await self.scheduler.gate()

    def cluster(self) -> ModelSinkCluster:
        return ModelSinkCluster(self.brokers, self.scheduler, self.faults.answer_lost)

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    async def driver(self) -> None:
        self._runs += 1
        run_id = f"run-{self._runs}"
        while self.done < self.batches:
            batch_id = self.done
            batch = Batch(_QUERY, run_id, batch_id)
            results = await self.job(batch)
            try:
                if None in results:
                    raise NotOpen("the job failed")
                if self.chance(self.faults.timed_out):
                    self.time_passes()
                await commit_batch(self.cluster(), [each for each in results if each is not None])
            except RowsLost as error:
                self.lost.append(error)
                return
            except _EXPECTED:
                try:
                    known = [each for each in results if each is not None]
                    await abort_batch(self.cluster(), known)
                except _EXPECTED:
                    pass
                return
            if self.done != batch_id:
                return  # Spark finds that another driver has written to the checkpoint
            self.done += 1

    def time_passes(self) -> None:
        """Let the time of an open transaction be up."""
        open_ones = [each for each in self.brokers.transactions.values() if each.state == "Ongoing"]
        if open_ones:
            self.brokers.abort(self.rng.choice(open_ones))

    async def job(self, batch: Batch) -> list[TaskResult | None]:
        tasks = self.rng.randrange(1, 4)
        rows = self.rows_of(batch.batch_id)
        return list(
            await asyncio.gather(
                *(self.task(batch, number, rows[number::tasks]) for number in range(tasks))
            )
        )

    async def task(self, batch: Batch, number: int, rows: list[str]) -> TaskResult | None:
        """Run attempts until one succeeds; those that run beside it go on."""
        for attempt in range(_ATTEMPTS_MAX):
            running: list[asyncio.Task[TaskResult]] = [
                self.scheduler.start(self.attempt(batch, number, attempt, rows))
            ]
            if self.chance(self.faults.speculation):
                other = self.attempt(batch, number, attempt + self.rng.randrange(2), rows)
                running.append(self.scheduler.start(other))
            if self.chance(self.faults.task_killed):
                victim = self.rng.choice(running)
                self.scheduler.start(self._kill_after_some_steps(victim))
            for finished in asyncio.as_completed(running):
                try:
                    return await finished
                except (*_EXPECTED, asyncio.CancelledError):
                    if asyncio.current_task().cancelling():  # type: ignore[union-attr]
                        raise
        return None

    async def _kill_after_some_steps(self, victim: asyncio.Task[TaskResult]) -> None:
        for _ in range(self.rng.randrange(12)):
            await self.scheduler.gate()
        victim.cancel()

    async def attempt(self, batch: Batch, number: int, attempt: int, rows: list[str]) -> TaskResult:
        self._attempts += 1
        cluster = self.cluster()
        place = Place(number, attempt, self._attempts)
        standing = await begin_task(cluster, batch, place)
        if standing is None:
            return TaskResult(batch, number, None, is_skipped=True)
        if not rows:
            return TaskResult(batch, number, None)
        chosen = await choose_id(cluster, standing, batch, place)
        transactional_id = chosen.transactional_id
        await cluster.gate()
        identity = self.brokers.init(transactional_id)
        await confirm_task(cluster, batch)
        for row in rows:
            await cluster.gate()
            self.brokers.produce(transactional_id, identity, row)
        await cluster.gate()
        prepared = PreparedTransaction(transactional_id, identity, is_v2=self.brokers.is_v2)
        is_two_phase = not self.faults.timed_out
        return TaskResult(batch, number, prepared, is_two_phase=is_two_phase, claim=chosen.claim)


def _open(world: World) -> list[str]:
    transactions = world.brokers.transactions.items()
    return [each for each, known in transactions if known.state == "Ongoing"]


_CHAOS = Faults(
    answer_lost=0.02,
    task_killed=0.2,
    speculation=0.3,
    driver_killed=0.3,
    driver_replaced=0.3,
    no_rows=0.2,
)


@pytest.mark.parametrize("is_v2", [False, True])
@settings(max_examples=400, deadline=None)
@given(rng=st.randoms(use_true_random=True))
def test_every_row_is_written_once_whatever_dies(rng: random.Random, is_v2: bool) -> None:
    world = World(rng, 3, _CHAOS, is_v2=is_v2)
    run_virtually(world.run())
    expected = [row for batch_id in range(world.done) for row in world.rows_of(batch_id)]
    assert not world.lost
    assert Counter(world.brokers.committed) == Counter(expected)
    assert _open(world) == []


@pytest.mark.parametrize("is_v2", [False, True])
@settings(max_examples=100, deadline=None)
@given(rng=st.randoms(use_true_random=True))
def test_a_timeout_never_writes_twice_and_never_loses_in_silence(
    rng: random.Random, is_v2: bool
) -> None:
    faults = Faults(
        answer_lost=0.02, task_killed=0.1, driver_killed=0.2, driver_replaced=0.2, timed_out=0.3
    )
    world = World(rng, 3, faults, is_v2=is_v2)
    try:
        run_virtually(world.run())
    except RowsLost as error:
        world.lost.append(error)
    written = Counter(world.brokers.committed)
    assert max(written.values(), default=1) == 1
    expected = {row for batch_id in range(world.done) for row in world.rows_of(batch_id)}
    if not world.lost:
        assert expected <= set(written)


def test_without_faults_batches_take_the_same_ids_again() -> None:
    world = World(random.Random(1), 20, Faults(), is_v2=True)
    run_virtually(world.run())
    # Two runs, two turns and a claim, three tasks at most.
    assert len(world.brokers.transactions) <= 2 * 3 * 3


def _play(story: Callable[[World], Awaitable[None]]) -> World:
    """Let a story happen step by step, with nobody beside it."""
    world = World(random.Random(1), 1, Faults(), is_v2=True)

    async def play() -> None:
        async def told() -> None:
            await story(world)

        task = world.scheduler.start(told())
        await world.scheduler.run(task)
        task.result()

    run_virtually(play())
    return world


async def _write(world: World, batch: Batch, *rows: str, attempt: int = 0) -> None:
    """Have a batch written by one task."""
    result = await world.attempt(batch, 0, attempt, list(rows))
    await commit_batch(world.cluster(), [result])


def test_what_an_attempt_left_open_after_a_batch_without_rows_is_aborted() -> None:
    async def story(world: World) -> None:
        await _write(world, Batch(_QUERY, "run-1", 0), "a")
        await _write(world, Batch(_QUERY, "run-1", 1))
        killed = await world.attempt(Batch(_QUERY, "run-1", 2), 0, 0, ["b"])
        assert killed.transaction is not None
        await _write(world, Batch(_QUERY, "run-1", 2), "b", attempt=1)

    world = _play(story)
    assert world.brokers.committed == ["a", "b"]
    assert _open(world) == []


def test_what_a_driver_left_open_after_a_batch_without_rows_is_aborted_by_the_next() -> None:
    async def story(world: World) -> None:
        await _write(world, Batch(_QUERY, "run-1", 0), "a")
        await world.attempt(Batch(_QUERY, "run-1", 2), 0, 0, ["b"])
        await _write(world, Batch(_QUERY, "run-2", 2), "b")

    world = _play(story)
    assert world.brokers.committed == ["a", "b"]
    assert _open(world) == []


def test_the_batch_before_one_without_rows_is_known_to_be_written_still() -> None:
    async def story(world: World) -> None:
        await _write(world, Batch(_QUERY, "run-1", 0), "a")
        await world.attempt(Batch(_QUERY, "run-1", 2), 0, 0, ["b"])
        await _write(world, Batch(_QUERY, "run-2", 0), "a")

    assert _play(story).brokers.committed == ["a"]


def test_attempts_that_lost_are_not_shut_out_again_by_every_later_batch() -> None:
    def epochs(world: World) -> int:
        return max(each.identity.epoch for each in world.brokers.transactions.values())

    async def story(world: World) -> None:
        for number in range(40):
            batch = Batch(_QUERY, f"run-{number // 4}", number)
            await world.attempt(batch, 0, 0, ["killed"])
            await _write(world, batch, "a", attempt=1)

    assert epochs(_play(story)) < 10
