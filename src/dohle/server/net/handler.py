"""What serves an API: a function, and the versions that it serves."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, NamedTuple

from dohle.core.steps import PlainSteps
from dohle.protocol.apis import ApiKey, find_api
from dohle.protocol.schema import Response
from dohle.server.net.connection import Connection
from dohle.server.net.outcome import Answer, EncodedResponse, LongAnswer
from dohle.server.net.shortcut import Learn


class RequestContext(NamedTuple):
    """Who sent a request, and in which version. Made for every request, so it must be cheap."""

    connection: Connection
    version: int
    client_id: str


#: The first argument is what serves: a broker, or a controller.
HandlerFunction = Callable[
    [Any, RequestContext, Any],
    Answer | LongAnswer | Coroutine[Any, Any, Response | None] | PlainSteps[Any],
]


#: What is left when all steps are done.
Concluded = Answer | LongAnswer | EncodedResponse | Coroutine[Any, Any, Response | None]


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
    unsupported: Callable[[], Response] | None = None
    #: The fast path for requests like the last one, if there is one.
    learn: Learn | None = None
    #: Tells kinds of requests apart that are counted by themselves; without, it is the API's name.
    kind: Callable[[Any], str] | None = None
    #: Whether its clients are used to waiting, and send it all at once: when the loop is crowded,
    #: others go first.
    is_patient: bool = False
    #: Whether its requests hold passwords or keys: they are never logged.
    is_secret: bool = False


def serves(
    api_key: ApiKey,
    function: HandlerFunction,
    *,
    lowest: int | None = None,
    joins: bool = False,
    unsupported: Callable[[], Response] | None = None,
    learn: Learn | None = None,
    kind: Callable[[Any], str] | None = None,
    is_patient: bool = False,
    is_secret: bool = False,
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
        is_patient=is_patient,
        is_secret=is_secret,
    )
