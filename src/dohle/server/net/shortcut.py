"""Shortcuts: fast paths for a request that repeats the last one of its kind on its connection.

Clients send nearly the same bytes again and again. A handler may name a function that learns a
shortcut from a request that took the slow path; the connection keeps it by API key. The next
request of that API is offered to the shortcut first. It takes the slow path if it does not fit, or
if something has happened that only the slow path can answer.

A shortcut does just what the slow path would do: the same appends, the same bytes in the answer. It
only skips decoding the request. So no other code sees the request, and code that must see every
request has to close the gate (``may_take_shortcuts``).
"""

from __future__ import annotations

import logging
from asyncio import Future
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from dohle.metrics.requests import RequestMetrics, ShortcutUsage
from dohle.server.net.outcome import Frame, LateFrame
from dohle.server.net.timing import request_log

if TYPE_CHECKING:
    from dohle.server.net.connection import Connection
    from dohle.server.net.metering import Metering

_is_logged, _DEBUG = request_log.isEnabledFor, logging.DEBUG


#: How many requests of an API are not learnt from after one that nothing could be learnt from, or
#: a shortcut that turned out to be of no use. Learning takes longer than serving a request on the
#: slow path. A client whose requests differ from one to the next (a producer to several topics), or
#: have no shortcut, would pay for it each time, and gain nothing.
REST_REQUESTS = 16


class Shortcut(Protocol):
    """What was learnt from a request. What it keeps cannot change without its noticing."""

    #: As for handlers: whether it may serve requests while those before them are not yet written
    #: or answered.
    joins: ClassVar[bool]
    #: How many requests it has served; counted by the dispatcher.
    served: int

    def fits(self, frame: memoryview) -> Any:
        """Return the fields in which the request differs from the one learnt from, for ``handle``.

        None if it differs in anything else. This depends on the frame alone.
        """

    def handle(self, broker: Any, fields: Any) -> Frame | LateFrame | Future[Frame] | None:
        """Serve a request that fits; None, with nothing changed, if it must take the slow path.

        If a callable is returned, it makes the answer after the appends of the read event have been
        written. If a future is returned, no request behind this one is handled before it is done.
        """


class Served(NamedTuple):
    """A request that took the slow path, and is answered, or delayed until there is an answer."""

    frame: memoryview
    body_offset: int
    version: int
    client_id: str
    request: Any
    #: Who sent it.
    sender: Connection | None = None


#: Learns a shortcut, or returns None if requests like this one have none.
Learn = Callable[[Any, Served], Shortcut | None]


def may_take_shortcuts(connection: Connection, metering: Metering | None) -> bool:
    """Tell whether requests of this connection may be served without being decoded.

    The one gate for code that must see every request. It is checked for each of them, because the
    level of the request log and the quotas can change at any time.
    """
    if metering is not None and connection.unmetered_by is not metering.rules:
        return False
    return not _is_logged(_DEBUG)


def learn_shortcut(
    broker: Any,
    learn: Learn,
    connection: Connection,
    api_key: int,
    served: Served,
    metrics: RequestMetrics,
    *,
    fits_shortcut: bool,
) -> None:
    """Learn a shortcut from a request, unless the last one learnt was of no use."""
    shortcuts = connection.shortcuts
    previous = shortcuts.get(api_key)
    in_vain = previous is not None and not previous.served and not fits_shortcut
    usages = connection.times.usages
    if (usage := usages.pop(api_key, None)) is not None:
        usage.count()
    learnt = None if in_vain else learn(broker, served)
    if learnt is not None:
        shortcuts[api_key] = learnt
        usages[api_key] = ShortcutUsage(metrics, served.version, learnt)
    else:
        shortcuts.pop(api_key, None)
        connection.unlearnt[api_key] = REST_REQUESTS
