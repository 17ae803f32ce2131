"""Running the controller: decide, commit, answer; one command at a time.

A request is decided by a pure function of the image (``commands``). The records of the decision go
to the quorum as one batch. The request is answered when that is committed, is in the image, and
every listener on this node has been told.
"""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop, Lock, shield, sleep, timeout
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from dohle.core.errors import ErrorCode, KafkaError
from dohle.metadata.bootstrap import activation_records
from dohle.metadata.context import ControllerContext
from dohle.metadata.decision import ApiError, Decision, VersionedRecord
from dohle.metadata.heartbeats import BrokerHeartbeats
from dohle.metadata.image import ClusterImage
from dohle.protocol.messages.describe_quorum import DescribeQuorumRequest
from dohle.protocol.schema import Request, Response
from dohle.server.channel import ImageSource
from dohle.server.net.slices import Slices
from dohle.server.net.turns import Turns
from dohle.server.quorum.commands import COMMANDS, Command, Turn
from dohle.server.quorum.describe import describe_quorum
from dohle.server.quorum.metadata_log import UnrecordableChange
from dohle.server.quorum.quorum import Quorum

logger = logging.getLogger("dohle.server")

R = TypeVar("R", bound=Response)


class Controller:
    """The active controller, and the channel to it from within its process."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        quorum: Quorum,
        images: ImageSource,
        context: ControllerContext,
        *,
        turns: Turns,
        on_fatal: Callable[[str], None],
    ) -> None:
        self.context = context
        self.quorum = quorum
        self._loop = loop
        self._images = images
        self._turns = turns
        self._on_fatal = on_fatal
        self._heartbeats = BrokerHeartbeats()
        self._turn = Lock()
        #: How many commands wait for their turn.
        self.waiting_count = 0
        self._failure: str | None = None

    @property
    def image(self) -> ClusterImage:
        """The cluster as of the last committed record."""
        return self._images.image

    async def activate(self, bootstrap: Sequence[VersionedRecord] | None) -> None:
        """Complete a new log, or one that ends within a transaction, before the first request."""
        await self.write(activation_records(self.image, self.context, bootstrap))

    async def send(self, request: Request, answer: type[R], version: int | None = None) -> R:
        """Carry out a request, and respond when its decision is committed.

        If its turn does not come in time, it is not carried out: REQUEST_TIMED_OUT. Once begun it
        is completed, however long that takes.
        """
        if version is None:
            version = request.VERSIONS.highest
        if isinstance(request, DescribeQuorumRequest):
            # It only reads the current state, so it does not wait for commands that change it.
            steps = describe_quorum(self.quorum.progress(), request, version)
            response: Response = await Slices(self._turns).run(steps)
        else:
            command = COMMANDS[type(request)]
            # Shielded: once the records are written, what follows must not be interrupted.
            done = await shield(self._loop.create_task(self._carry_out(command, request, version)))
            response = command.fit(done, version)
        assert isinstance(response, answer), "a command responds to its own request"
        return response

    async def _carry_out(self, command: Command, request: Request, version: int) -> Response:
        try:
            async with self._in_turn(command.timeout_ms(request)):
                self._ensure_usable()
                turn = Turn(
                    self.image,
                    self.context,
                    self._heartbeats,
                    version,
                    self.quorum.next_offset,
                    self._images.kraft_version,
                )
                decision = command.decide(turn, request)
                if not isinstance(decision, Decision):
                    # Others have their turn in between, but no other command.
                    decision = await Slices(self._turns).run(decision)
                if decision.kraft_version is not None:
                    await self._commit(self.quorum.upgrade_kraft_version(decision.kraft_version))
                if decision.records:
                    # Deciding about many partitions takes long, and so does writing the records.
                    await sleep(0)
                    await self._commit(self.quorum.append(decision.records))
                if decision.reason is not None:
                    logger.warning("%s was refused: %s", type(request).__name__, decision.reason)
                response: Response = decision.reply
                return response
        except KafkaError as error:
            return command.failed(request, ApiError.of(error))

    async def write(self, records: Sequence[VersionedRecord]) -> None:
        """Commit records that no request asked for, when it is their turn."""
        await shield(self._loop.create_task(self._write(records)))

    async def _write(self, records: Sequence[VersionedRecord]) -> None:
        async with self._in_turn(None):
            self._ensure_usable()
            if records:
                await self._commit(self.quorum.append(records))

    @asynccontextmanager
    async def _in_turn(self, timeout_ms: int | None) -> AsyncIterator[None]:
        self.waiting_count += 1
        try:
            if timeout_ms is not None and timeout_ms <= 0:
                raise TimeoutError
            async with timeout(None if timeout_ms is None else timeout_ms / 1000):
                await self._turn.acquire()
        except TimeoutError:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The request timed out.") from None
        finally:
            self.waiting_count -= 1
        try:
            yield
        finally:
            self._turn.release()

    async def close(self) -> None:
        """Take no further commands, and return when none is being carried out.

        Raises KafkaError if the log has failed and must not be closed as if it were clean.
        """
        async with self._in_turn(None):
            self._ensure_usable()
            self.stop()

    def stop(self) -> None:
        """Take no further commands."""
        self._failure = "this node is stopping"

    @property
    def is_active(self) -> bool:
        """Tell whether it takes commands."""
        return self._failure is None

    def _ensure_usable(self) -> None:
        if self._failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self._failure)

    async def _commit(self, append: Coroutine[Any, Any, None]) -> None:
        try:
            await append
        except UnrecordableChange:
            raise
        except Exception as error:
            # It is not known what is on the disk, or whether it can be replayed. Only a restart
            # from there can tell, and until then nothing may be decided on top of it.
            logger.error(
                "a change of the metadata could not be committed; this node stops: %s",
                error,
                # What a disk does needs no traceback.
                exc_info=not isinstance(error, OSError | KafkaError),
            )
            self._failure = f"the metadata log cannot be used any more: {error}"
            self._on_fatal(self._failure)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self._failure) from error
