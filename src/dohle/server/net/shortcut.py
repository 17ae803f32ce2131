"""Shortcuts: fast paths for a request that repeats the last one of its kind on its connection.

Clients send nearly the same bytes again and again. A handler may name a function that learns a
shortcut from a request which took the slow path; the connection keeps it by API key. The next
request of that API is offered to the shortcut first, and takes the slow path if it does not fit, or
if anything has come about that only the slow path knows how to answer.

A shortcut does nothing that the slow path would not do: the same appends, the same bytes in the
answer. What it skips is taking the request apart. So nobody else sees the request, and whoever must
see every one closes the gate (``may_take_shortcuts``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from dohle.server.net.outcome import Frame, LateFrame

if TYPE_CHECKING:
    from dohle.server.broker import BrokerServer
    from dohle.server.net.connection import Connection

#: Each request, as it was understood, at DEBUG.
request_log = logging.getLogger("dohle.request")

_is_logged, _DEBUG = request_log.isEnabledFor, logging.DEBUG


#: So many requests are not learnt from after a shortcut was learnt in vain.
REST_REQUESTS = 16


class Shortcut(Protocol):
    """What was learnt from a request. It keeps nothing that can change without its noticing."""

    #: As of handlers: whether requests may be served while those before them are yet to be
    #: written or answered.
    joins: ClassVar[bool]
    #: Whether any request has been served by it.
    has_served: bool

    def fits(self, frame: memoryview) -> Any:
        """Return what the request does not have in common with the one learnt from, for ``handle``.

        None if it differs in anything else. This is decided by the frame alone.
        """

    def handle(self, broker: BrokerServer, fields: Any) -> Frame | LateFrame | None:
        """Serve a request that fits; None, and nothing done, if it must take the slow path.

        A callable makes the answer after the appends of the read event have been written.
        """


class Served(NamedTuple):
    """A request that took the slow path and was answered without waiting."""

    frame: memoryview
    body_offset: int
    version: int
    client_id: str
    request: Any


#: Learns a shortcut, or returns None if requests like this one have none.
Learn = Callable[["BrokerServer", Served], Shortcut | None]


class Rest:
    """Stands in for a shortcut while nothing is learnt; no request fits it.

    To learn takes longer than to serve a request on the slow path. A client whose requests differ
    from one to the next (a producer to several topics) would pay for it each time, and gain
    nothing.
    """

    joins: ClassVar[bool] = True
    __slots__ = ("has_served", "left")

    def __init__(self) -> None:
        self.has_served = False
        self.left = REST_REQUESTS

    def fits(self, frame: memoryview) -> None:
        """Leave any request to the slow path."""

    def handle(self, broker: BrokerServer, fields: Any) -> None:
        """Never be asked: nothing fits."""


def may_take_shortcuts(connection: Connection) -> bool:
    """Tell whether requests of this connection may be served without being taken apart.

    The one question for whoever must see every request. It is asked for each of them: a level of
    the request log can change at any time.
    """
    return not _is_logged(_DEBUG)
