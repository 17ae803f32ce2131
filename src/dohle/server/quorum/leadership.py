"""Being the active controller: from the claim of an epoch until it is renounced.

Before the first request of an epoch is decided, the log is completed (``activation_records``). What
is decided is replayed first, then appended, so that nothing is written that could not be replayed.
"""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop, Task, shield
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.seams import Clock
from dohle.metadata.bootstrap import activation_records
from dohle.metadata.context import ControllerContext
from dohle.metadata.decision import (
    RECORDS_PER_REQUEST_MAX,
    ApiError,
    Decision,
    VersionedRecord,
    too_many_records,
)
from dohle.metadata.heartbeats import BrokerHeartbeats
from dohle.metadata.replay import apply, apply_in_steps
from dohle.server.net.slices import Slices
from dohle.server.net.turns import Turns
from dohle.server.quorum.claim import Claim
from dohle.server.quorum.image_loader import Foreseen, ImageLoader
from dohle.server.quorum.periodic import PeriodicTask, PeriodicTasks, periodic_tasks
from dohle.server.quorum.quorum import Quorum

logger = logging.getLogger("dohle.server")


class Leadership:
    """Whether this controller is active, and what it has appended as such."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        quorum: Quorum,
        images: ImageLoader,
        context: ControllerContext,
        clock: Clock,
        *,
        turns: Turns,
        run_periodic: Callable[[PeriodicTask], Awaitable[bool]],
    ) -> None:
        self._loop = loop
        self._quorum = quorum
        self._images = images
        self._context = context
        self._clock = clock
        self._turns = turns
        self._run_periodic = run_periodic
        #: What ``storage format`` left for a new cluster, if it did.
        self.bootstrap: Sequence[VersionedRecord] | None = None
        self.claim: Claim | None = None
        self._activation: Task[None] | None = None
        self._periodic: PeriodicTasks | None = None

    # Claim and renounce

    def begin(self, epoch: int) -> None:
        """Claim an epoch of which everything before is committed."""
        session_ms = self._context.config.get_int("broker.session.timeout.ms")
        heartbeats = BrokerHeartbeats(session_ms, self._context.node_id)
        heartbeats.take_over(self._images.image, self._clock.monotonic_ms())
        self.claim = Claim(self._loop, epoch, self._images.image, heartbeats)
        logger.info("this node is the active controller, in epoch %d", epoch)
        self._activation = self._loop.create_task(self._activate(self.claim))

    async def _activate(self, claim: Claim) -> None:
        """Complete a new log, or one that ends within a transaction, before the first request."""
        try:
            records = activation_records(claim.image, self._context, self.bootstrap)
            if records:
                await self._append_batch(claim, records)
        except Exception as error:
            if not isinstance(error, KafkaError):
                self.give_up(claim, error)
            claim.fail(error)
            return
        if claim is self.claim:
            claim.activated.set_result(None)
            tasks = periodic_tasks(self._context, self._has_readers)
            self._periodic = PeriodicTasks(self._loop, tasks, self._run_periodic)
            self._periodic.start()

    def _has_readers(self) -> bool:
        """Tell whether another node reads the log."""
        progress = self._quorum.progress()
        return len(progress.voters) + len(progress.observers) > 1

    async def active(self) -> Claim | None:
        """Return the claim, once requests can be decided; None if there is none."""
        claim = self.claim
        if claim is not None:
            await shield(claim.activated)
        return claim

    def end(self, error: ApiError) -> None:
        """Throw away what is not committed, and tell those who wait for it."""
        claim, self.claim = self.claim, None
        if claim is None:
            return
        logger.info("this node is not the active controller any more")
        self.stop_periodic()
        self._images.forget_foreseen()
        claim.lose(error)

    def stop_periodic(self) -> None:
        """Do nothing more that was not asked for."""
        if self._periodic is not None:
            self._periodic.stop()
            self._periodic = None

    # Appending

    async def append(self, claim: Claim, decision: Decision[Any]) -> None:
        """Append what was decided; KafkaError if this node does not lead the epoch any more."""
        records = decision.records
        if decision.is_atomic and len(records) > RECORDS_PER_REQUEST_MAX:
            raise too_many_records()
        upgrade = decision.kraft_version
        if upgrade is not None:
            await self._quorum.upgrade_kraft_version(
                claim.epoch, upgrade.level, validate_only=upgrade.validate_only
            )
        for begin in range(0, len(records), RECORDS_PER_REQUEST_MAX):
            await self._append_batch(claim, records[begin : begin + RECORDS_PER_REQUEST_MAX])

    async def _append_batch(self, claim: Claim, versioned: Sequence[VersionedRecord]) -> None:
        records = [record for record, _ in versioned]
        foreseen = self._quorum.next_offset + len(records) - 1
        replay = apply_in_steps(claim.image, records, foreseen, claim.epoch)
        after, delta = await Slices(self._turns).run(replay)
        offset = await Slices(self._turns).run(self._quorum.append(claim.epoch, versioned))
        if offset != foreseen:
            # The quorum has appended something of its own meanwhile.
            after, delta = apply(claim.image, records, offset, claim.epoch)
        claim.image = after
        self._images.foresee(Foreseen(len(records), after, delta))

    def give_up(self, claim: Claim, error: Exception) -> KafkaError:
        """Let another controller try, which perhaps does not have the same trouble."""
        logger.error("a command failed in an unexpected way. Please report this.", exc_info=error)
        self._quorum.resign(claim.epoch)
        return KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, "The controller failed in an unexpected way."
        )
