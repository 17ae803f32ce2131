"""The timers of coordinators' machines: of each, one for its next deadline.

What is due is done one thing at a time, for a slice of the loop. The machines of many partitions
often have something to do at the same moment (they look for expired offsets at the same interval):
they take turns then, like everything that takes long.
"""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from dohle.coordination.effects import Effects
from dohle.core.seams import Clock
from dohle.server.coordinators.shard import Shard, ShardState
from dohle.server.net.turns import SLICE_S, Turns

logger = logging.getLogger("dohle.server")

#: How long to wait before a failed timer is retried.
_FAILED_TIMER_S = 1
#: A deadline before all others.
_DUE = -1


class _Timer(NamedTuple):
    """The next timer of a shard, with its deadline: uvloop's handles do not know theirs."""

    deadline_ms: int
    handle: TimerHandle | None


class MachineTimers:
    """The timers of all shards of one coordinator."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        clock: Clock,
        turns: Turns,
        carry_out: Callable[[Shard[Any], Effects], None],
        write_soon: Callable[[], None],
    ) -> None:
        """Prepare; ``carry_out`` gets what a machine's ``expire`` returns."""
        self._loop = loop
        self._clock = clock
        self._turns = turns
        self._carry_out = carry_out
        self._write_soon = write_soon
        self._timers: dict[int, _Timer] = {}

    def reschedule(self, shard: Shard[Any]) -> None:
        """Set the timer of a shard to the next deadline of its machine."""
        if shard.state is not ShardState.ACTIVE:
            return
        deadline_ms = shard.machine.next_deadline_ms()
        if deadline_ms is None:
            return
        timer = self._timers.get(shard.index)
        if timer is not None:
            # Nearly every heartbeat returns here: it only moves a deadline further away.
            if timer.deadline_ms <= deadline_ms:
                return
            self.cancel(shard.index)
        delay_s = max(0, deadline_ms - self._clock.monotonic_ms()) / 1000
        handle = self._loop.call_later(delay_s, self._expire, shard)
        self._timers[shard.index] = _Timer(deadline_ms, handle)

    def cancel(self, index: int) -> None:
        """Cancel the timer of a shard."""
        timer = self._timers.pop(index, None)
        if timer is not None and timer.handle is not None:
            timer.handle.cancel()

    def _expire(self, shard: Shard[Any]) -> None:
        if self._turns.is_crowded:
            self._timers[shard.index] = _Timer(_DUE, None)
            self._turns.wait(0.0, partial(self._expire_now, shard))
        else:
            self._expire_now(shard)

    def _expire_now(self, shard: Shard[Any]) -> None:
        if shard.state is not ShardState.ACTIVE:
            return
        self._timers.pop(shard.index, None)
        begun = self._loop.time()
        try:
            while (effects := shard.machine.expire()) is not None:
                self._carry_out(shard, effects)
                if self._loop.time() - begun >= SLICE_S:
                    break
        except Exception:
            logger.exception(
                "%s: a timer of the coordinator failed, and is retried in %d s. Please report"
                " this.",
                shard.partition.key,
                _FAILED_TIMER_S,
            )
            self._pause(shard)
        self._turns.spend(self._loop.time() - begun)
        self._write_soon()
        self.reschedule(shard)

    def _pause(self, shard: Shard[Any]) -> None:
        """Wait before the next attempt, whatever is due: it would only fail again at once."""
        if shard.state is not ShardState.ACTIVE:
            return
        self.cancel(shard.index)
        handle = self._loop.call_later(_FAILED_TIMER_S, self._expire, shard)
        self._timers[shard.index] = _Timer(_DUE, handle)
