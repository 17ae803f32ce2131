"""From a frame to its handler and from the answer back to a frame.

Handlers register here with the versions they serve, and ApiVersions tells clients exactly that. A
request of an unknown kind or version has no answer that its sender could read: the connection is
closed, as Kafka does. Only ApiVersions is answered whatever its version.
"""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop, Future, Task, iscoroutine
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from dohle.protocol.apis import ApiKey, find_api
from dohle.protocol.errors import UnsupportedVersion
from dohle.protocol.framing import encode_response, parse_request_header
from dohle.protocol.messages.fetch import FetchRequest
from dohle.protocol.messages.offset_commit import OffsetCommitRequest
from dohle.protocol.messages.produce import ProduceRequest
from dohle.protocol.schema import Request, Response
from dohle.server.net.connection import Connection
from dohle.server.net.group_commit import GroupCommit
from dohle.server.net.outcome import Answer, CloseConnection, Frame
from dohle.server.shortcuts.commit import CommitTemplate
from dohle.server.shortcuts.fetch import FetchTemplate
from dohle.server.shortcuts.produce import ProduceTemplate

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer

logger = logging.getLogger("dohle.server")
request_log = logging.getLogger("dohle.request")

# Plain numbers: members of an enum are slow to get at.
_PRODUCE, _FETCH, _OFFSET_COMMIT = int(ApiKey.PRODUCE), int(ApiKey.FETCH), int(ApiKey.OFFSET_COMMIT)


class RequestContext(NamedTuple):
    """Who asks, and how. One is made for every request, so it is the cheapest kind of value."""

    connection: Connection
    version: int
    client_id: str


HandlerFunction = Callable[
    ["BrokerServer", RequestContext, Any], Answer | Coroutine[Any, Any, Response | None]
]


@dataclass(frozen=True, slots=True)
class Handler:
    """A function that serves an API, and the versions it does so for.

    ``joins`` marks the one kind of request whose appends are written together with those of the
    requests around it; before any other request they are written. (Commits of offsets that fit
    their template join too: nothing they look at depends on what is written.)
    """

    function: HandlerFunction
    lowest: int
    highest: int
    joins: bool = False
    #: What ApiVersions says, where that differs (Produce).
    advertised_lowest: int | None = None


def serves(
    api_key: ApiKey, function: HandlerFunction, *, lowest: int | None = None
) -> tuple[ApiKey, Handler]:
    """Serve an API at all versions of the release, or from ``lowest`` on."""
    versions = find_api(api_key).release_versions
    highest = versions.highest - find_api(api_key).latest_version_unstable
    return api_key, Handler(function, versions.lowest if lowest is None else lowest, highest)


class Dispatcher:
    """What connections hand their frames to."""

    def __init__(
        self, loop: AbstractEventLoop, broker: BrokerServer, handlers: Mapping[ApiKey, Handler]
    ) -> None:
        self._loop = loop
        self._broker = broker
        self._handlers: dict[int, Handler] = {int(key): value for key, value in handlers.items()}
        self._requests: dict[int, type[Request]] = {}
        # How to answer when a future is done: version and correlation id.
        self._awaited: dict[Future[Any], tuple[int, int]] = {}
        self._unattended: set[Task[Any]] = set()
        self._group_commit = GroupCommit(loop.call_soon)

    def handle(
        self, frame: memoryview, connection: Connection
    ) -> Frame | Callable[[], Frame] | Future[Any]:
        """Handle one request."""
        broker = self._broker
        # Only the second byte of the api key is in use.
        kind = frame[1] if len(frame) > 1 else None
        if kind == _PRODUCE:
            produce = connection.produce_template
            if produce is not None and (late_reply := produce.handle(broker, frame)) is not None:
                return late_reply
        elif kind == _FETCH:
            broker.write_appends()
            fetch = connection.fetch_template
            if fetch is not None and (reply := fetch.handle(broker, frame)) is not None:
                return reply
        elif kind == _OFFSET_COMMIT:
            commit = connection.commit_template
            if commit is not None and (late_reply := commit.handle(broker, frame)) is not None:
                return late_reply
        try:
            head = parse_request_header(frame)
        except UnsupportedVersion as error:
            raise CloseConnection(str(error)) from None
        api_key, version, correlation_id, client_id, body_offset = head
        handler = self._handlers.get(api_key)
        if handler is None:
            raise CloseConnection(f"api key {api_key} is not served")
        if not handler.joins:
            self._broker.write_appends()
        if not handler.lowest <= version <= handler.highest:
            if api_key != ApiKey.API_VERSIONS:
                raise CloseConnection(f"{ApiKey(api_key).name} version {version} is not served")
            return _frame(self._broker.unsupported_api_versions(), 0, correlation_id)
        request, _ = self._request_class(api_key).decode(version, frame, body_offset)
        if request_log.isEnabledFor(logging.DEBUG):
            request_log.debug("%s %s v%d %s", connection.peer, client_id, version, request)
        context = RequestContext(connection, version, client_id or "")
        answer = handler.function(self._broker, context, request)
        if iscoroutine(answer):
            answer = self._loop.create_task(answer)
        if isinstance(answer, Future):
            self._awaited[answer] = (version, correlation_id)
            return answer
        if isinstance(request, FetchRequest):
            connection.fetch_template = FetchTemplate.of(
                self._broker, frame, body_offset, request, version
            )
        if answer is None or isinstance(answer, Response):
            return _frame(answer, version, correlation_id)
        if isinstance(request, ProduceRequest):
            connection.produce_template = ProduceTemplate.of(
                frame, request, version, context.client_id
            )
        elif isinstance(request, OffsetCommitRequest):
            connection.commit_template = CommitTemplate.of(
                frame, body_offset, version, connection.commit_template
            )
        late = answer
        return lambda: _frame(late(), version, correlation_id)

    def _request_class(self, api_key: int) -> type[Request]:
        found = self._requests.get(api_key)
        if found is None:
            found = self._requests[api_key] = find_api(api_key).request()
        return found

    def settle(self) -> None:
        """Write what the requests handled so far have appended."""
        self._broker.write_appends()

    def may_settle_later(self, connection: Connection) -> bool:
        """Tell whether it waits for other connections before it settles; then it is called."""
        return self._group_commit.take(connection)

    def complete(self, answered: Future[Any]) -> Frame:
        """Encode the answer that a future has brought."""
        version, correlation_id = self._awaited.pop(answered)
        return _frame(answered.result(), version, correlation_id)

    def forget(self, future: Future[Any]) -> None:
        """Let go of a request whose client has gone.

        What only waits is cancelled. A command is carried out all the same, as it would be had its
        client gone a moment later.
        """
        self._awaited.pop(future, None)
        if isinstance(future, Task):
            self._unattended.add(future)
            future.add_done_callback(self._finish_unattended)
        else:
            future.cancel()

    def _finish_unattended(self, task: Task[Any]) -> None:
        self._unattended.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("a request without a client failed", exc_info=task.exception())


def _frame(response: Response | None, version: int, correlation_id: int) -> Frame:
    if response is None:
        return []
    return cast("Frame", encode_response(response, version, correlation_id))
