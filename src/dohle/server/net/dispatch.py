"""From a frame to its handler and from the answer back to a frame.

Handlers register here with the versions they serve, and ApiVersions lists exactly those. There is
no answer to an unknown API or version that its sender could read: the connection is closed, as
Kafka does, unless the handler can answer any version. No code here depends on a particular API.
"""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop, CancelledError, Future, Task, iscoroutine
from collections.abc import Coroutine, Mapping
from functools import partial
from types import GeneratorType
from typing import Any, NamedTuple, cast

from dohle.core.steps import finish
from dohle.protocol.apis import ApiKey, find_api
from dohle.protocol.errors import MalformedMessage, UnsupportedVersion
from dohle.protocol.framing import RequestHead, parse_request_header
from dohle.protocol.schema import Request, Response
from dohle.server.net.answering import Answering
from dohle.server.net.connection import Connection
from dohle.server.net.group_commit import GroupCommit
from dohle.server.net.handler import Concluded, Handler, RequestContext
from dohle.server.net.long_requests import Asked, LongRequests
from dohle.server.net.metering import Charge
from dohle.server.net.outcome import (
    CloseConnection,
    EncodedResponse,
    Frame,
    LateFrame,
    LongAnswer,
    PendingFrame,
)
from dohle.server.net.request_entries import Entries
from dohle.server.net.server import Server
from dohle.server.net.shortcut import Learn, Served, learn_shortcut, may_take_shortcuts
from dohle.server.net.slices import Begun, begin
from dohle.server.net.timing import TimedRequest, request_log

logger = logging.getLogger("dohle.server")

#: A longer request may have so many entries that even decoding it takes too long for one turn.
_LONG_FRAME_BYTES = 8 * 1024
_FEW_ENTRIES = 1_000
#: The version of an answer that a shortcut encodes itself.
_ENCODED = -1
# Made once: a union of types takes longer to make than to look at.
_ENCODABLE = (Response, EncodedResponse)


class _Awaited(NamedTuple):
    """How to answer when a future is done."""

    timed: TimedRequest
    version: int
    correlation_id: int


class Dispatcher:
    """What connections hand their frames to."""

    def __init__(
        self, loop: AbstractEventLoop, server: Server, handlers: Mapping[ApiKey, Handler]
    ) -> None:
        self._loop = loop
        self._server = server
        self._handlers: dict[int, Handler] = {int(key): value for key, value in handlers.items()}
        self._requests: dict[int, type[Request]] = {}
        self._answering = Answering(server)
        self._awaited: dict[Future[Any], _Awaited] = {}
        self._now = server.clock.monotonic_s
        self._unattended: set[Task[Any]] = set()
        self._long_requests = LongRequests(loop, server, self._answering, self._unattended)
        self._pending: set[Future[Any]] = set()
        #: Writes what the requests handled so far have appended.
        self.settle = server.write_appends
        #: Tells whether a connection must wait for others; its ``settle`` is called then.
        self.may_settle_later = GroupCommit(loop.call_soon).take

    def handle(
        self, frame: memoryview, connection: Connection
    ) -> Frame | LateFrame | Future[Any] | None:
        """Handle one request; None if it has to wait until those before it are answered."""
        server = self._server
        try:
            # Only the second byte of the API key is in use.
            shortcut = connection.shortcuts.get(frame[1])
        except IndexError:
            raise MalformedMessage("a request without an API key") from None
        fits = False
        if shortcut is not None and may_take_shortcuts(connection, server.metering):
            fields = shortcut.fits(frame)
            if fields is not None:
                if not (shortcut.joins or self._may_go_ahead(connection)):
                    return None
                reply = shortcut.handle(server, fields)
                if reply is not None:
                    shortcut.served += 1
                    if isinstance(reply, Future):
                        self._time_awaited(reply, frame, connection)
                    return reply
                fits = True
        return self._take_slow_path(frame, connection, fits_shortcut=fits)

    def _time_awaited(self, answer: Future[Any], frame: memoryview, connection: Connection) -> None:
        """Time a request whose answer a shortcut waits for, if it is one of those that are."""
        times = connection.times
        usage = times.usages.get(frame[1])
        if usage is not None:
            timed = self._answering.again(
                times, connection.last_active, len(frame), usage.metrics.name
            )
            if timed.times is not None:
                timed.handled = self._now()
                self._awaited[answer] = _Awaited(timed, _ENCODED, 0)

    def is_patient(self, api_key: int) -> bool:
        """Tell whether a request may wait for others in a crowded turn."""
        handler = self._handlers.get(api_key)
        return handler is not None and handler.is_patient

    def _take_slow_path(
        self, frame: memoryview, connection: Connection, *, fits_shortcut: bool
    ) -> Frame | LateFrame | Future[Any] | None:
        server, size = self._server, len(frame)
        is_logged = request_log.isEnabledFor(logging.DEBUG)
        try:
            head = parse_request_header(frame)
        except UnsupportedVersion as error:
            raise CloseConnection(str(error)) from None
        api_key, version, correlation_id, client_id, body_offset = head
        handler = self._handlers.get(api_key)
        if handler is None:
            raise CloseConnection(f"API key {api_key} is not served")
        metering, charge = server.metering, None
        if metering is not None:
            charge = metering.begin(connection, api_key, client_id or "", size)
        if charge is not None:
            # One at a time: each is answered, and its sender may have to wait, before the next.
            if not self._may_go_ahead(connection) or connection.is_muted:
                return None
        elif not (handler.joins or self._may_go_ahead(connection)):
            return None
        if not handler.lowest <= version <= handler.highest:
            return self._answer_unsupported(connection, handler, head, size, always=is_logged)
        context = RequestContext(connection, version, client_id or "")
        request_class = self._requests.get(api_key) or self._request_class(api_key)
        if size > _LONG_FRAME_BYTES:
            taken = self._take_long_frame(frame, handler, context, head, request_class, charge)
            if isinstance(taken, Task):
                return taken
            request = taken
        else:
            request, _ = request_class.decode(version, frame, body_offset)
        timed = self._answering.begin(
            connection.times,
            connection.last_active,
            size,
            api_key,
            handler,
            request,
            version,
            always=is_logged or charge is not None,
        )
        if charge is not None:
            timed.charge = charge
        if is_logged:
            told = type(request).__name__ if handler.is_secret else request
            timed.told = f"{connection.peer} {client_id} v{version} {told}"
        returned = handler.function(server, context, request)
        if isinstance(returned, GeneratorType):
            begun = begin(self._server.turns, returned)
            if isinstance(begun, Begun):
                return self._long_requests.finish(begun, timed, version, correlation_id)
            returned = begun
        answer = cast("Concluded", returned)
        if not isinstance(answer, Response):
            if not callable(answer) and iscoroutine(answer):
                answer = self._loop.create_task(answer)
            if isinstance(answer, LongAnswer):
                return self._long_requests.wait_for(answer, timed, version, correlation_id)
            if isinstance(answer, Future):
                timed.handled = self._now()
                self._awaited[answer] = _Awaited(timed, version, correlation_id)
                if handler.learn is not None and not fits_shortcut:
                    served = Served(
                        frame, body_offset, version, context.client_id, request, connection
                    )
                    self._learn(handler.learn, connection, api_key, served, timed, fits=False)
                return answer
        if handler.learn is not None:
            served = Served(frame, body_offset, version, context.client_id, request, connection)
            self._learn(handler.learn, connection, api_key, served, timed, fits=fits_shortcut)
        if answer is None or isinstance(answer, _ENCODABLE):
            return self._answering.frame(timed, answer, version, correlation_id)
        late = answer
        return lambda: self._make(timed, late(), version, correlation_id)

    def _answer_unsupported(
        self,
        connection: Connection,
        handler: Handler,
        head: RequestHead,
        size: int,
        *,
        always: bool,
    ) -> Frame:
        """Answer a request of a version that is not served, if its API has an answer for that."""
        name, version = ApiKey(head.api_key).name, head.version
        if handler.unsupported is None:
            raise CloseConnection(f"{name} version {version} is not served")
        timed = self._answering.begin(
            connection.times,
            connection.last_active,
            size,
            head.api_key,
            handler,
            None,
            version,
            always=always,
        )
        return self._answering.frame(timed, handler.unsupported(), 0, head.correlation_id)

    def _take_long_frame(
        self,
        frame: memoryview,
        handler: Handler,
        context: RequestContext,
        head: RequestHead,
        request_class: type[Request],
        charge: Charge | None,
    ) -> Request | Task[Frame]:
        """Decode a long frame if it is handled at once; begin to serve it in slices if not.

        Requests that are written together are handled at once if they have few entries.
        """
        decode = partial(request_class.decode_in_steps, head.version, frame, head.body_offset)
        entries: Entries[Request] = Entries(decode)
        if handler.joins:
            request = finish(entries.decode(_FEW_ENTRIES))
            if request is not None:
                return request
        asked = Asked(
            handler,
            context,
            head.api_key,
            head.correlation_id,
            context.connection.last_active,
            self._now(),
            len(frame),
            charge,
        )
        return self._long_requests.serve(asked, entries)

    def _learn(
        self,
        learn: Learn,
        connection: Connection,
        api_key: int,
        served: Served,
        timed: TimedRequest,
        *,
        fits: bool,
    ) -> None:
        """Learn a shortcut, unless the last attempt was in vain and not long ago."""
        if left := connection.unlearnt.get(api_key):
            connection.unlearnt[api_key] = left - 1
        elif may_take_shortcuts(connection, self._server.metering):
            learn_shortcut(
                self._server,
                learn,
                connection,
                api_key,
                served,
                timed.metrics,
                fits_shortcut=fits,
            )

    def _make(
        self,
        timed: TimedRequest,
        answer: Response | Future[Any] | Coroutine[Any, Any, Response | None] | None,
        version: int,
        correlation_id: int,
    ) -> Frame | PendingFrame:
        """Encode a late answer, or return what waits for it."""
        if answer is None or isinstance(answer, Response):
            return self._answering.frame(timed, answer, version, correlation_id)
        timed.handled = self._now()
        pending = PendingFrame()

        def fill(answered: Future[Any]) -> None:
            self._pending.discard(answered)
            try:
                response = answered.result()
                pending.fill(
                    self._answering.frame(timed, response, version, correlation_id, has_waited=True)
                )
            except CloseConnection as error:
                pending.fail(str(error))
            except (Exception, CancelledError):
                logger.exception(
                    "a request failed before it was answered: its connection is closed."
                    " Please report this."
                )
                pending.fail("a request failed")

        future = answer if isinstance(answer, Future) else self._loop.create_task(answer)
        # The loop itself keeps only weak references to tasks.
        self._pending.add(future)
        future.add_done_callback(fill)
        return pending

    def _may_go_ahead(self, connection: Connection) -> bool:
        """Tell whether all earlier requests are answered, so that the next one overtakes none."""
        if self._server.unwritten:
            self._server.write_appends()
        return not connection.replies.is_open or connection.catch_up()

    def _request_class(self, api_key: int) -> type[Request]:
        found = self._requests[api_key] = find_api(api_key).request()
        return found

    def complete(self, answered: Future[Any]) -> Frame:
        """Encode the answer that a future has returned."""
        how = self._awaited.pop(answered, None)
        if how is None:
            # A shortcut's own, or encoded in slices.
            frame: Frame = answered.result()
            return frame
        timed, version, correlation_id = how
        response = answered.result()
        if version == _ENCODED:
            frame = response
            self._answering.has_frame(timed, frame)
            return frame
        return self._answering.frame(timed, response, version, correlation_id, has_waited=True)

    def forget(self, future: Future[Any]) -> None:
        """Give up waiting for the answer to a request whose client has gone.

        A request that only waits is cancelled. One that changes something is still carried out, as
        if the client had gone a moment later.
        """
        self._awaited.pop(future, None)
        if isinstance(future, Task) and future not in self._long_requests:
            self._unattended.add(future)
            future.add_done_callback(self._finish_unattended)
        else:
            future.cancel()

    def _finish_unattended(self, task: Task[Any]) -> None:
        self._unattended.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error(
                "a request failed after its client had gone. Please report this.",
                exc_info=task.exception(),
            )
