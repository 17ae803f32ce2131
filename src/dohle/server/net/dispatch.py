"""From a frame to its handler and from the answer back to a frame.

Handlers register here with the versions they serve, and ApiVersions lists exactly those. There is
no answer to an unknown API or version that its sender could read: the connection is closed, as
Kafka does, unless the handler can answer any version. No code here depends on a particular API.
"""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop, CancelledError, Future, Task, iscoroutine, shield
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from types import GeneratorType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from dohle.core.steps import PlainSteps
from dohle.metrics.requests import RequestMetrics, ShortcutUsage
from dohle.protocol.apis import ApiKey, find_api
from dohle.protocol.errors import MalformedMessage, UnsupportedVersion
from dohle.protocol.framing import (
    encode_response,
    encode_response_in_steps,
    frame_body,
    parse_request_header,
)
from dohle.protocol.response_errors import error_codes_of
from dohle.protocol.schema import Request, Response
from dohle.server.net.connection import Connection
from dohle.server.net.group_commit import GroupCommit
from dohle.server.net.outcome import (
    Answer,
    CloseConnection,
    EncodedResponse,
    Frame,
    LateFrame,
    PendingFrame,
)
from dohle.server.net.reply_queue import frame_size
from dohle.server.net.shortcut import Learn, Rest, Served, may_take_shortcuts
from dohle.server.net.timing import TimedRequest, request_log
from dohle.server.net.turns import Slices

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer

logger = logging.getLogger("dohle.server")

#: A longer request may have so many entries that even decoding it takes too long for one turn.
_LONG_FRAME_BYTES = 8 * 1024


class RequestContext(NamedTuple):
    """Who sent a request, and in which version. Made for every request, so it must be cheap."""

    connection: Connection
    version: int
    client_id: str


HandlerFunction = Callable[
    ["BrokerServer", RequestContext, Any],
    Answer | Coroutine[Any, Any, Response | None] | PlainSteps[Any],
]


#: What is left when all steps are done.
_Concluded = Answer | EncodedResponse | Coroutine[Any, Any, Response | None]


@dataclass(frozen=True, slots=True)
class Handler:
    """A function that serves an API, and the versions that it serves.

    ``joins`` marks the one API whose appends are written together with those of the requests around
    it. Before any other request is handled, they are written. (A shortcut has its own ``joins``.)
    """

    function: HandlerFunction
    lowest: int
    highest: int
    joins: bool = False
    #: The versions that ApiVersions lists, where they differ (Produce).
    advertised_lowest: int | None = None
    #: Answers requests of versions that are not served, in version 0 (ApiVersions).
    unsupported: Callable[[BrokerServer], Response] | None = None
    #: The fast path for requests like the last one, if there is one.
    learn: Learn | None = None
    #: Tells kinds of requests apart that are counted by themselves; without, it is the API's name.
    kind: Callable[[Any], str] | None = None


class _Awaited(NamedTuple):
    """How to answer when a future is done."""

    timed: TimedRequest
    version: int
    correlation_id: int


def serves(
    api_key: ApiKey,
    function: HandlerFunction,
    *,
    lowest: int | None = None,
    joins: bool = False,
    unsupported: Callable[[BrokerServer], Response] | None = None,
    learn: Learn | None = None,
    kind: Callable[[Any], str] | None = None,
) -> tuple[ApiKey, Handler]:
    """Serve an API at all versions of the release, or from ``lowest`` on."""
    versions = find_api(api_key).release_versions
    highest = versions.highest - find_api(api_key).latest_version_unstable
    return api_key, Handler(
        function,
        versions.lowest if lowest is None else lowest,
        highest,
        joins=joins,
        unsupported=unsupported,
        learn=learn,
        kind=kind,
    )


class Dispatcher:
    """What connections hand their frames to."""

    def __init__(
        self, loop: AbstractEventLoop, broker: BrokerServer, handlers: Mapping[ApiKey, Handler]
    ) -> None:
        self._loop = loop
        self._broker = broker
        self._handlers: dict[int, Handler] = {int(key): value for key, value in handlers.items()}
        self._requests: dict[int, type[Request]] = {}
        self._metrics: dict[int, RequestMetrics] = {}
        self._awaited: dict[Future[Any], _Awaited] = {}
        self._now = broker.clock.monotonic_s
        self._unattended: set[Task[Any]] = set()
        #: Those that bring whole frames; what they are about is only read, so they may be stopped.
        self._sliced: set[Future[Any]] = set()
        self._pending: set[Future[Any]] = set()
        self._group_commit = GroupCommit(loop.call_soon)

    def handle(
        self, frame: memoryview, connection: Connection
    ) -> Frame | LateFrame | Future[Any] | None:
        """Handle one request; None if it has to wait until those before it are answered."""
        broker = self._broker
        try:
            # Only the second byte of the API key is in use.
            shortcut = connection.shortcuts.get(frame[1])
        except IndexError:
            raise MalformedMessage("a request without an API key") from None
        fits = False
        if shortcut is not None and may_take_shortcuts(connection):
            fields = shortcut.fits(frame)
            if fields is not None:
                if not (shortcut.joins or self._may_go_ahead(connection)):
                    return None
                reply = shortcut.handle(broker, fields)
                if reply is not None:
                    shortcut.served += 1
                    return reply
                fits = True
        return self._take_slow_path(frame, connection, fits_shortcut=fits)

    def _take_slow_path(
        self, frame: memoryview, connection: Connection, *, fits_shortcut: bool
    ) -> Frame | LateFrame | Future[Any] | None:
        broker = self._broker
        timed = TimedRequest(connection.times, connection.last_active, self._now(), len(frame))
        try:
            head = parse_request_header(frame)
        except UnsupportedVersion as error:
            raise CloseConnection(str(error)) from None
        api_key, version, correlation_id, client_id, body_offset = head
        handler = self._handlers.get(api_key)
        if handler is None:
            raise CloseConnection(f"API key {api_key} is not served")
        if not (handler.joins or self._may_go_ahead(connection)):
            return None
        if not handler.lowest <= version <= handler.highest:
            if handler.unsupported is None:
                raise CloseConnection(f"{ApiKey(api_key).name} version {version} is not served")
            self._count(timed, api_key, handler, None, version)
            return self._frame(timed, handler.unsupported(broker), 0, correlation_id)
        context = RequestContext(connection, version, client_id or "")
        if len(frame) > _LONG_FRAME_BYTES and not handler.joins:
            decoding = self._request_class(api_key).decode_in_steps(version, frame, body_offset)
            return self._slice(
                self._serve_in_slices(handler, context, decoding, correlation_id, api_key, timed)
            )
        request, _ = self._request_class(api_key).decode(version, frame, body_offset)
        self._count(timed, api_key, handler, request, version)
        if request_log.isEnabledFor(logging.DEBUG):
            timed.told = f"{connection.peer} {client_id} v{version} {request}"
        returned = handler.function(broker, context, request)
        if isinstance(returned, GeneratorType):
            slices = Slices(self._broker.turns)
            finished = slices.advance(returned)
            if finished is None:
                rest = self._finish_in_slices(slices, timed, returned, version, correlation_id)
                return self._slice(rest)
            returned = finished[0]
        answer = cast("_Concluded", returned)
        if iscoroutine(answer):
            answer = self._loop.create_task(answer)
        if isinstance(answer, Future):
            timed.handled = self._now()
            self._awaited[answer] = _Awaited(timed, version, correlation_id)
            return answer
        if handler.learn is not None and may_take_shortcuts(connection):
            served = Served(frame, body_offset, version, context.client_id, request)
            self._learn(handler.learn, connection, api_key, served, timed.metrics, fits_shortcut)
        if answer is None or isinstance(answer, Response | EncodedResponse):
            return self._frame(timed, answer, version, correlation_id)
        late = answer
        return lambda: self._make(timed, late(), version, correlation_id)

    def _count(
        self,
        timed: TimedRequest,
        api_key: int,
        handler: Handler,
        request: Request | None,
        version: int,
    ) -> None:
        """Count a request by its kind."""
        if handler.kind is None or request is None:
            metrics = self._metrics.get(api_key)
            if metrics is None:
                metrics = self._broker.requests.of(find_api(api_key).name)
                self._metrics[api_key] = metrics
        else:
            metrics = self._broker.requests.of(handler.kind(request))
        metrics.by_version[version] += 1
        timed.metrics = metrics

    def _frame(
        self,
        timed: TimedRequest,
        response: Response | EncodedResponse | None,
        version: int,
        correlation_id: int,
        *,
        has_waited: bool = False,
    ) -> Frame:
        """Encode an answer, and let its connection time the sending."""
        frame = _encode(response, version, correlation_id)
        if isinstance(response, Response):
            timed.metrics.errors.update(error_codes_of(type(response))(response))
        elif response is not None:
            timed.metrics.errors[0] += 1
        self._answered(timed, frame, has_waited=has_waited)
        return frame

    def _answered(self, timed: TimedRequest, frame: Frame, *, has_waited: bool) -> None:
        if timed.told is not None:
            timed.response_bytes = frame_size(frame) if frame else 0
        timed.answered = self._now()
        if not has_waited:
            timed.handled = timed.answered
        timed.times.timed.append(timed)

    # What takes long

    def _slice(self, work: Coroutine[Any, Any, Frame]) -> Task[Frame]:
        """Have work done that is made of slices and ends in a frame."""
        task = self._loop.create_task(work)
        self._sliced.add(task)
        task.add_done_callback(self._sliced.discard)
        return task

    async def _serve_in_slices(
        self,
        handler: Handler,
        context: RequestContext,
        decoding: PlainSteps[tuple[Request, int]],
        correlation_id: int,
        api_key: int,
        timed: TimedRequest,
    ) -> Frame:
        """Serve a request that is so long that it is decoded and answered in slices."""
        slices = Slices(self._broker.turns)
        await slices.wait()
        try:
            request, _ = await slices.run(decoding)
        except MalformedMessage as error:
            raise CloseConnection(str(error)) from None
        connection, version, client_id = context
        if request_log.isEnabledFor(logging.DEBUG):
            timed.told = f"{connection.peer} {client_id} v{version} {type(request).__name__}"
        self._count(timed, api_key, handler, request, version)
        returned = handler.function(self._broker, context, request)
        if isinstance(returned, GeneratorType):
            returned = await slices.run(returned)
        answer = cast("_Concluded", returned)
        return await self._frame_in_slices(slices, timed, answer, version, correlation_id)

    async def _finish_in_slices(
        self,
        slices: Slices,
        timed: TimedRequest,
        steps: PlainSteps[Answer],
        version: int,
        correlation_id: int,
    ) -> Frame:
        """Do the rest of what did not fit into one slice."""
        await slices.wait()
        answer = await slices.run(steps)
        return await self._frame_in_slices(slices, timed, answer, version, correlation_id)

    async def _frame_in_slices(
        self,
        slices: Slices,
        timed: TimedRequest,
        answer: _Concluded,
        version: int,
        correlation_id: int,
    ) -> Frame:
        if not isinstance(answer, EncodedResponse) and callable(answer):
            self._broker.write_appends()
            answer = answer()
        if iscoroutine(answer):
            # A command is carried out even if its client has gone and the rest is cancelled.
            command = self._loop.create_task(answer)
            self._unattended.add(command)
            command.add_done_callback(self._unattended.discard)
            answer = await slices.wait_for(shield(command))
        elif isinstance(answer, Future):
            answer = await slices.wait_for(answer)
        if not isinstance(answer, Response):
            assert answer is None or isinstance(answer, EncodedResponse)
            return self._frame(timed, answer, version, correlation_id)
        steps = encode_response_in_steps(answer, version, correlation_id)
        frame = cast("Frame", await slices.run(steps))
        codes = error_codes_of(type(answer))(answer)
        await slices.give_way()
        timed.metrics.errors.update(codes)
        self._answered(timed, frame, has_waited=False)
        return frame

    def _learn(
        self,
        learn: Learn,
        connection: Connection,
        api_key: int,
        served: Served,
        metrics: RequestMetrics,
        fits_shortcut: bool,
    ) -> None:
        """Learn a shortcut from a request, unless the last one learnt was of no use."""
        shortcuts = connection.shortcuts
        previous = shortcuts.get(api_key)
        if isinstance(previous, Rest) and previous.left:
            previous.left -= 1
            return
        in_vain = previous is not None and not previous.served and not fits_shortcut
        usages = connection.times.usages
        if (usage := usages.pop(api_key, None)) is not None:
            usage.count()
        if in_vain and not isinstance(previous, Rest):
            shortcuts[api_key] = Rest()
            return
        learnt = learn(self._broker, served)
        if learnt is not None:
            shortcuts[api_key] = learnt
            usages[api_key] = ShortcutUsage(metrics, served.version, learnt)
        else:
            shortcuts.pop(api_key, None)

    def _make(
        self,
        timed: TimedRequest,
        answer: Response | Future[Any] | Coroutine[Any, Any, Response | None] | None,
        version: int,
        correlation_id: int,
    ) -> Frame | PendingFrame:
        """Encode a late answer, or return what waits for it."""
        if answer is None or isinstance(answer, Response):
            return self._frame(timed, answer, version, correlation_id)
        timed.handled = self._now()
        pending = PendingFrame()

        def fill(answered: Future[Any]) -> None:
            self._pending.discard(answered)
            try:
                response = answered.result()
                pending.fill(self._frame(timed, response, version, correlation_id, has_waited=True))
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
        self._broker.write_appends()
        return not connection.replies.is_open or connection.catch_up()

    def _request_class(self, api_key: int) -> type[Request]:
        found = self._requests.get(api_key)
        if found is None:
            found = self._requests[api_key] = find_api(api_key).request()
        return found

    def settle(self) -> None:
        """Write what the requests handled so far have appended."""
        self._broker.write_appends()

    def may_settle_later(self, connection: Connection) -> bool:
        """Tell whether a connection must wait for others; its ``settle`` is called then."""
        return self._group_commit.take(connection)

    def complete(self, answered: Future[Any]) -> Frame:
        """Encode the answer that a future has returned."""
        how = self._awaited.pop(answered, None)
        if how is None:
            # A shortcut's own, or encoded in slices.
            frame: Frame = answered.result()
            return frame
        timed, version, correlation_id = how
        response = answered.result()
        return self._frame(timed, response, version, correlation_id, has_waited=True)

    def forget(self, future: Future[Any]) -> None:
        """Give up waiting for the answer to a request whose client has gone.

        A request that only waits is cancelled. One that changes something is still carried out, as
        if the client had gone a moment later.
        """
        self._awaited.pop(future, None)
        if isinstance(future, Task) and future not in self._sliced:
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


def _encode(
    response: Response | EncodedResponse | None, version: int, correlation_id: int
) -> Frame:
    if response is None:
        return []
    if isinstance(response, EncodedResponse):
        return cast("Frame", frame_body(response.api_key, version, correlation_id, response.body))
    return cast("Frame", encode_response(response, version, correlation_id))
