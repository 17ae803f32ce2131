"""What the active controller does from time to time, without being asked.

Each task takes its turn like a request. One that is not done yet goes on after a short pause, so
that requests come in between.
"""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop, Task, TimerHandle
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from dohle.core.errors import KafkaError
from dohle.core.steps import PlainSteps
from dohle.metadata.brokers import fence_broker
from dohle.metadata.context import ControllerContext
from dohle.metadata.decision import Decision, VersionedRecord
from dohle.metadata.leader_elections import balance_leaders, elect_unclean_leaders
from dohle.protocol.messages.records.cluster_metadata import NoOpRecord
from dohle.server.quorum.commands import CommandTurn

logger = logging.getLogger("dohle.server")

#: The pause of a task that is not done yet.
_MORE_MS = 10
#: How often the session of each broker is looked at while it lasts.
_LOOKS_PER_SESSION = 8


class PeriodicTask(NamedTuple):
    """Something that recurs; its decision says whether there is more to be done."""

    interval_ms: int
    decide: Callable[[CommandTurn], Decision[bool] | PlainSteps[Decision[bool]]]


def periodic_tasks(
    context: ControllerContext, has_readers: Callable[[], bool]
) -> Sequence[PeriodicTask]:
    """Return what recurs; ``has_readers`` tells whether another node reads the log."""
    config = context.config
    session_ms = config.get_int("broker.session.timeout.ms")
    tasks = [
        PeriodicTask(max(1, session_ms // _LOOKS_PER_SESSION), _fence_stale_broker),
        PeriodicTask(
            config.get_int("unclean.leader.election.interval.ms"),
            lambda turn: elect_unclean_leaders(turn.image, turn.context),
        ),
    ]
    if config.get_bool("auto.leader.rebalance.enable"):
        interval_ms = 1000 * config.get_int("leader.imbalance.check.interval.seconds")
        tasks.append(
            PeriodicTask(interval_ms, lambda turn: balance_leaders(turn.image, turn.context))
        )
    idle_ms = config.get_int("metadata.max.idle.interval.ms")
    if idle_ms > 0:
        tasks.append(PeriodicTask(idle_ms, lambda _: _move_log(has_readers())))
    return tasks


def _fence_stale_broker(turn: CommandTurn) -> PlainSteps[Decision[bool]]:
    """Fence one broker whose session has ended: others see that before the next is fenced."""
    broker = turn.heartbeats.find_stale(turn.image, turn.now_ms)
    if broker is None:
        return Decision((), reply=False)
    session_ms = turn.context.config.get_int("broker.session.timeout.ms")
    logger.warning(
        "broker %d is fenced: it has not been heard from for %d ms. Other replicas lead its"
        " partitions: check that it runs, and what its log says",
        broker.id,
        session_ms,
    )
    records = yield from fence_broker(turn.image, broker.id, turn.context)
    return Decision(records, reply=True, is_atomic=False)


def _move_log(has_readers: bool) -> Decision[bool]:
    """Let those who read the log see that the controller is there (KIP-835).

    Kafka does so in any case. If nobody else reads it, nobody can tell the difference, except that
    an idle node need not write and sync something twice a second.
    """
    return Decision((VersionedRecord(NoOpRecord(), 0),) if has_readers else (), reply=False)


class PeriodicTasks:
    """The tasks of one controller while it is active."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        tasks: Sequence[PeriodicTask],
        carry_out: Callable[[PeriodicTask], Awaitable[bool]],
    ) -> None:
        self._loop = loop
        self._tasks = tasks
        self._carry_out = carry_out
        self._timers: dict[PeriodicTask, TimerHandle] = {}
        self._running: dict[PeriodicTask, Task[None]] = {}
        self._is_stopped = False

    def start(self) -> None:
        """Run each task after its interval, again and again."""
        for task in self._tasks:
            self._later(task, task.interval_ms)

    def stop(self) -> None:
        """Begin no more of them."""
        self._is_stopped = True
        for timer in self._timers.values():
            timer.cancel()

    def _later(self, task: PeriodicTask, delay_ms: int) -> None:
        self._timers[task] = self._loop.call_later(delay_ms / 1000, self._begin, task)

    def _begin(self, task: PeriodicTask) -> None:
        self._running[task] = self._loop.create_task(self._run(task))

    async def _run(self, task: PeriodicTask) -> None:
        has_more = False
        try:
            has_more = await self._carry_out(task)
        except KafkaError as error:
            # The controller is not active any more, or has told of it itself.
            logger.debug("a periodic task of the controller was not carried out: %s", error)
        if not self._is_stopped:
            self._later(task, _MORE_MS if has_more else task.interval_ms)
