"""Running the controller: decide, write, sync, replay, publish, answer; one command at a time.

A command is a pure function of the image (``dohle.metadata.controller``). What it decides is
written as one batch; when that is on the disk it is replayed into the image, the broker is told
what changed, and only then is the command answered. The sync happens in a thread, so that a slow
disk does not hold up produce and fetch.
"""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop, Lock, shield, sleep, timeout
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.seams import Clock
from dohle.metadata.context import ControllerContext
from dohle.metadata.decision import Decision, VersionedRecord
from dohle.metadata.delta import Delta
from dohle.metadata.image import ClusterImage
from dohle.protocol.schema import Response
from dohle.server.quorum.metadata_log import MetadataLog

logger = logging.getLogger("dohle.server")

R = TypeVar("R", bound=Response)


class Controller:
    """The active controller of a quorum of one."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        log: MetadataLog,
        context: ControllerContext,
        clock: Clock,
        *,
        run_in_thread: Callable[[Callable[[], None]], Awaitable[None]],
        publish: Callable[[ClusterImage, Delta], Awaitable[None]],
        on_fatal: Callable[[str], None],
    ) -> None:
        self.context = context
        self.log = log
        self._loop = loop
        self._clock = clock
        self._run_in_thread = run_in_thread
        self._publish = publish
        self._on_fatal = on_fatal
        self._turn = Lock()
        self._failure: str | None = None

    @property
    def image(self) -> ClusterImage:
        """The cluster as of the last committed record."""
        return self.log.image

    async def submit(
        self,
        decide: Callable[[ClusterImage, ControllerContext], Decision[R]],
        timeout_ms: int | None = None,
    ) -> R:
        """Run a command; its reply comes when what it decided is committed and has taken effect.

        If its turn does not come in time it is not carried out: REQUEST_TIMED_OUT. Once begun it is
        brought to its end, however long that takes.
        """
        return await shield(self._loop.create_task(self._submit(decide, timeout_ms)))

    async def _submit(
        self,
        decide: Callable[[ClusterImage, ControllerContext], Decision[R]],
        timeout_ms: int | None,
    ) -> R:
        # Behind the shield: between writing and replaying nobody may interrupt it.
        async with self._in_turn(timeout_ms):
            self._ensure_usable()
            decision = decide(self.image, self.context)
            if decision.records:
                # A decision about many partitions takes its time; so does writing it down.
                await sleep(0)
                await self._commit(decision.records)
            return decision.reply

    async def write(
        self,
        decide: Callable[[ClusterImage, ControllerContext], Sequence[VersionedRecord]],
        *,
        is_last: bool = False,
    ) -> None:
        """Commit what the node itself decides, upon the image as it is when its turn has come.

        Behind the last no command has its turn any more: the metadata log can be closed.
        """
        await shield(self._loop.create_task(self._write(decide, is_last=is_last)))

    async def _write(
        self,
        decide: Callable[[ClusterImage, ControllerContext], Sequence[VersionedRecord]],
        *,
        is_last: bool,
    ) -> None:
        async with self._turn:
            try:
                self._ensure_usable()
                records = decide(self.image, self.context)
                if records:
                    await self._commit(records)
            finally:
                if is_last:
                    self.stop()

    @asynccontextmanager
    async def _in_turn(self, timeout_ms: int | None) -> AsyncIterator[None]:
        if timeout_ms is not None:
            try:
                if timeout_ms <= 0:
                    raise TimeoutError
                async with timeout(timeout_ms / 1000):
                    await self._turn.acquire()
            except TimeoutError:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The request timed out.") from None
        else:
            await self._turn.acquire()
        try:
            yield
        finally:
            self._turn.release()

    def stop(self) -> None:
        """Take no further commands."""
        self._failure = "this node is stopping"

    def _ensure_usable(self) -> None:
        if self._failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self._failure)

    async def _commit(self, records: Sequence[VersionedRecord]) -> None:
        try:
            self.log.append(records)
            job = self.log.prepare_flush()
            if job is not None:
                await self._run_in_thread(job.run)
            delta = self.log.commit(job, records)
            await self._publish(self.image, delta)
        except Exception as error:
            # What is on the disk, or whether it can be replayed, is not known: only a start from
            # there can tell. Nothing may be decided on top of it.
            logger.exception("a change of the metadata failed")
            self._failure = f"the metadata log cannot be used any more: {error}"
            self._on_fatal(self._failure)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self._failure) from error
        self.maybe_snapshot()

    def maybe_snapshot(self) -> None:
        """Write a snapshot if it is time for one; without it the log is longer, and no worse."""
        if self.log.snapshot_due(self._clock.now_ms()):
            try:
                self.log.write_snapshot()
            except (OSError, KafkaError) as error:
                logger.error("a metadata snapshot could not be written: %s", error)
