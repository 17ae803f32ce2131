"""How an API is guarded.

A guard looks at a request and at the rights of its sender before the handler sees it. It lets the
request pass as it is, answers it itself, or narrows it to what the sender may do, and adds to the
answer what was refused. Handlers know nothing of this. Without an authorizer there are no guards,
and the handlers are called as they are.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import replace
from inspect import iscoroutine
from types import GeneratorType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from dohle.core.acls import AclOperation, AclResourceType
from dohle.core.ids import TopicName
from dohle.core.steps import PlainSteps, finish, mapped, mapped_steps
from dohle.protocol.apis import ApiKey
from dohle.protocol.schema import Request, Response
from dohle.security.authorizer import Authorizer
from dohle.server.net.handler import Handler, RequestContext
from dohle.server.net.outcome import LongAnswer
from dohle.server.net.slices import Slices
from dohle.server.net.turns import Turns
from dohle.server.rights import Rights, address_text

if TYPE_CHECKING:
    from dohle.metadata.image import ClusterImage
    from dohle.server.channel import Client
    from dohle.server.frontend import Frontend

T = TypeVar("T")

#: Adds to the answer of the handler what the guard has refused. (There is none to acks=0.)
Complete = Callable[[Any], PlainSteps[Response]]


class Narrowed(NamedTuple):
    """What is left of a request, and how its answer is completed."""

    request: Request
    complete: Complete


class GuardedRequest(NamedTuple):
    """What a guard looks at."""

    request: Any
    version: int
    rights: Rights
    image: ClusterImage
    server: Frontend


#: Returns an answer, what is left of the request, or None if all of it may pass.
Guard = Callable[[GuardedRequest], PlainSteps[Response | Narrowed | None]]


def guarded(key: ApiKey, handler: Handler, guard: Guard, authorizer: Authorizer) -> Handler:
    """Put a guard before a handler."""
    name = api_name(key)

    def function(server: Frontend, context: RequestContext, request: Request) -> PlainSteps[Any]:
        rights = Rights.of(authorizer, context.connection, name)
        asked = GuardedRequest(request, context.version, rights, server.image, server)
        decided = yield from guard(asked)
        complete: Complete | None = None
        if decided is not None:
            if isinstance(decided, Response):
                return decided
            request, complete = decided
        returned: Any = handler.function(server, context, request)
        if isinstance(returned, GeneratorType):
            returned = yield from returned
        if complete is None:
            return returned
        if isinstance(returned, Response):
            return (yield from complete(returned))
        return _completed(server.turns, returned, complete)

    return replace(handler, function=function)


def _completed(turns: Turns, returned: Any, complete: Complete) -> Any:
    """Complete an answer when it is there."""
    if returned is None or isinstance(returned, Response):
        return finish(complete(returned))
    if iscoroutine(returned):
        return _later(turns, returned, complete)
    assert not isinstance(returned, LongAnswer), "what waits for long is not narrowed"
    if isinstance(returned, Future):
        return _later(turns, returned, complete)
    return lambda: _completed(turns, returned(), complete)


async def _later(turns: Turns, answer: Awaitable[Any], complete: Complete) -> Any:
    response = await answer
    return await Slices(turns).run(complete(response))


class ControllerGuard:
    """Guards the controller of this node against what clients ask through its own broker.

    What comes through the broker of another node is guarded like any request on a listener.
    """

    def __init__(
        self, server: Frontend, guards: dict[ApiKey, Guard], authorizer: Authorizer
    ) -> None:
        self._server = server
        self._guards = guards
        self._authorizer = authorizer

    async def serve(
        self,
        client: Client,
        request: Request,
        send: Callable[[Request], Coroutine[Any, Any, Response]],
    ) -> Response:
        """Have the controller decide about as much of a request as its sender may ask for."""
        key = ApiKey(request.API_KEY)
        server, slices = self._server, Slices(self._server.turns)
        rights = Rights(
            self._authorizer, client.principal, address_text(client.host), api_name(key)
        )
        asked = GuardedRequest(request, client.version, rights, server.image, server)
        decided = await slices.run(self._guards[key](asked))
        if decided is None:
            return await send(request)
        if isinstance(decided, Response):
            return decided
        response = await slices.wait_for(send(decided.request))
        return await slices.run(decided.complete(response))


def api_name(key: ApiKey) -> str:
    """Return the name of an API as Kafka writes it."""
    return "".join(word.capitalize() for word in key.name.split("_"))


# What many guards do


def split(
    rights: Rights,
    operation: AclOperation,
    items: Iterable[T],
    name_of: Callable[[T], str | None],
    resource_type: AclResourceType = AclResourceType.TOPIC,
    *,
    quiet: bool = False,
) -> PlainSteps[tuple[list[T], list[T]]]:
    """Separate what the sender may use from what it may not; each name is asked about once.

    What has no name passes: the handler answers that.
    """
    allowed: list[T] = []
    refused: list[T] = []
    known: dict[str | None, bool] = {None: True}
    for item in items:
        name = name_of(item)
        may = known.get(name)
        if may is None:
            assert name is not None
            may = known[name] = rights.may(operation, resource_type, name, quiet=quiet)
        (allowed if may else refused).append(item)
        if len(allowed) + len(refused) > 1:
            yield
    return allowed, refused


def name_of_topic(topic: Any) -> str:
    """Return the name that a request has for a topic."""
    name: str = topic.name
    return name


def topic_of_id(image: ClusterImage) -> Callable[[Any], TopicName | None]:
    """Return a function that finds the name of a topic that is named by its id."""

    def name_of(topic: Any) -> TopicName | None:
        found = image.topic_by_id(topic.topic_id)
        return None if found is None else found.name

    return name_of


def error_for_every_partition(
    topics: Iterable[Any],
    partition: Callable[[Any], Any],
    answer: Callable[[Any, tuple[Any, ...]], T],
    *,
    field: str = "partitions",
) -> PlainSteps[tuple[T, ...]]:
    """Refuse topics: return an ``answer`` for each, which has a ``partition`` for each of its own.

    ``field`` is where a topic of the request has its partitions.
    """

    def refuse(topic: Any) -> PlainSteps[T]:
        return answer(topic, (yield from mapped(partition, getattr(topic, field))))

    return mapped_steps(refuse, topics)


def guarded_topics(
    asked: GuardedRequest,
    operation: AclOperation,
    refuse: Callable[[list[Any]], PlainSteps[tuple[Any, ...]]],
    response: Callable[..., Response],
    *,
    name_of: Callable[[Any], str | None] = name_of_topic,
    refused_first: bool = False,
) -> PlainSteps[Response | Narrowed | None]:
    """Let pass the ``topics`` that the sender has a right to, and refuse the others."""
    topics = asked.request.topics
    allowed, refused = yield from split(asked.rights, operation, topics, name_of)
    if not refused:
        return None
    answers = yield from refuse(refused)
    if not allowed:
        return response(topics=answers)
    left = asked.request.replace(topics=tuple(allowed))
    return Narrowed(left, joined("topics", answers, first=refused_first))


def joined(field: str, more: Iterable[Any], *, first: bool = False) -> Complete:
    """Return what adds entries to a list in an answer: behind it, or before it."""

    def complete(response: Response) -> PlainSteps[Response]:
        there = getattr(response, field)
        added = tuple(more)
        yield
        return response.replace(**{field: added + there if first else there + added})

    return complete
