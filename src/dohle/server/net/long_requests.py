"""Requests that take longer than a slice: decoded, handled and answered in later turns."""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop, Future, Lock, Task, iscoroutine, shield
from collections.abc import Coroutine
from types import GeneratorType
from typing import Any, NamedTuple, cast

from dohle.core.steps import let_go
from dohle.protocol.entries import entries_of
from dohle.protocol.errors import MalformedMessage
from dohle.protocol.schema import Request, Response
from dohle.server.net.answering import Answering
from dohle.server.net.handler import Concluded, Handler, RequestContext
from dohle.server.net.metering import Charge
from dohle.server.net.outcome import Answer, CloseConnection, EncodedResponse, Frame, LongAnswer
from dohle.server.net.request_entries import Entries, LargeRequest
from dohle.server.net.server import Server
from dohle.server.net.slices import Begun, Slices
from dohle.server.net.timing import TimedRequest, request_log


class Asked(NamedTuple):
    """What is known of a request before it is decoded."""

    handler: Handler
    context: RequestContext
    api_key: int
    correlation_id: int
    #: When its bytes had arrived, and when its turn came.
    arrived: float
    started: float
    request_bytes: int
    charge: Charge | None


class LongRequests:
    """Those that are being served."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        server: Server,
        answering: Answering,
        unattended: set[Task[Any]],
    ) -> None:
        """Serve requests; commands that are carried out in any case are ``unattended``."""
        self._loop = loop
        self._server = server
        self._answering = answering
        self._unattended = unattended
        #: They bring whole frames; what they are about is only read, so they may be stopped.
        self._tasks: set[Future[Any]] = set()
        self._large = Lock()

    def __contains__(self, future: Future[Any]) -> bool:
        return future in self._tasks

    def serve(self, asked: Asked, entries: Entries[Request]) -> Task[Frame]:
        """Serve a request that is so long that even decoding it is done in slices."""
        return self._begin(self._serve(asked, entries))

    def finish(
        self, begun: Begun[Answer], timed: TimedRequest, version: int, correlation_id: int
    ) -> Task[Frame]:
        """Do the rest of what did not fit into one slice."""
        return self._begin(self._finish(begun, timed, version, correlation_id))

    def wait_for(
        self, answer: LongAnswer, timed: TimedRequest, version: int, correlation_id: int
    ) -> Task[Frame]:
        """Wait for an answer that may be long."""
        return self._begin(self._wait_for(answer, timed, version, correlation_id))

    def _begin(self, work: Coroutine[Any, Any, Frame]) -> Task[Frame]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _serve(self, asked: Asked, entries: Entries[Request]) -> Frame:
        slices = Slices(self._server.turns)
        await slices.wait()
        large = LargeRequest(self._large)
        freed: list[Any] = []
        try:
            frame = await self._serve_in_slices(slices, large, asked, entries, freed)
            # Nobody refers to the request and its answer any more.
            await slices.run(let_go(freed))
            return frame
        finally:
            large.end()

    async def _serve_in_slices(
        self,
        slices: Slices,
        large: LargeRequest,
        asked: Asked,
        entries: Entries[Request],
        freed: list[Any],
    ) -> Frame:
        """Serve a request; what is to be let go of in slices is added to ``freed``."""
        handler, context, api_key, correlation_id, arrived, started, request_bytes, charge = asked
        connection, version, client_id = context
        try:
            request = await large.decode(slices, entries, connection.peer)
        except MalformedMessage as error:
            raise CloseConnection(str(error)) from None
        timed = self._answering.begin(
            connection.times,
            arrived,
            request_bytes,
            api_key,
            handler,
            request,
            version,
            always=True,
        )
        timed.started, timed.charge = started, charge
        if request_log.isEnabledFor(logging.DEBUG):
            timed.told = f"{connection.peer} {client_id} v{version} {type(request).__name__}"
        returned = handler.function(self._server, context, request)
        if isinstance(returned, GeneratorType):
            returned = await slices.run(returned)
        answer = cast("Concluded", returned)
        if isinstance(answer, Future | LongAnswer):
            # It may take as long as it likes.
            large.end()
        frame = await self._frame(slices, freed, timed, answer, version, correlation_id)
        freed += await slices.run(entries_of(request))
        return frame

    async def _finish(
        self, begun: Begun[Answer], timed: TimedRequest, version: int, correlation_id: int
    ) -> Frame:
        slices, freed = begun.slices, list[Any]()
        answer = await begun.finish()
        frame = await self._frame(slices, freed, timed, answer, version, correlation_id)
        del answer
        await slices.run(let_go(freed))
        return frame

    async def _wait_for(
        self, answer: LongAnswer, timed: TimedRequest, version: int, correlation_id: int
    ) -> Frame:
        slices, freed = Slices(self._server.turns), list[Any]()
        frame = await self._frame(slices, freed, timed, answer, version, correlation_id)
        del answer
        await slices.run(let_go(freed))
        return frame

    async def _frame(
        self,
        slices: Slices,
        freed: list[Any],
        timed: TimedRequest,
        answer: Concluded,
        version: int,
        correlation_id: int,
    ) -> Frame:
        """Encode an answer when it is known; what is to be let go of is added to ``freed``."""
        has_waited = False
        if not isinstance(answer, EncodedResponse) and callable(answer):
            self._server.write_appends()
            answer = answer()
        if iscoroutine(answer):
            # A command is carried out even if its client has gone and the rest is cancelled.
            command = self._loop.create_task(answer)
            self._unattended.add(command)
            command.add_done_callback(self._unattended.discard)
            answer = await slices.wait_for(shield(command))
        elif isinstance(answer, Future | LongAnswer):
            timed.handled, has_waited = self._server.clock.monotonic_s(), True
            future = answer.future if isinstance(answer, LongAnswer) else answer
            answer = await slices.wait_for(future)
            del future
        assert answer is None or isinstance(answer, Response | EncodedResponse)
        frame = await self._answering.frame_in_slices(
            slices, timed, answer, version, correlation_id, has_waited=has_waited
        )
        if isinstance(answer, Response):
            freed += await slices.run(entries_of(answer))
        return frame
