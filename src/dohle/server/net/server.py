"""What serves requests, as the dispatcher sees it: a broker, or a controller."""

from __future__ import annotations

from collections.abc import Sized
from typing import Protocol

from dohle.core.seams import Clock
from dohle.metrics.requests import AllRequests
from dohle.server.net.metering import Metering
from dohle.server.net.turns import Turns


class Server(Protocol):
    """Handlers get it whole."""

    @property
    def clock(self) -> Clock:
        """The one clock."""

    @property
    def turns(self) -> Turns:
        """Whose turn it is."""

    @property
    def requests(self) -> AllRequests:
        """What was asked, and how long it took."""

    @property
    def metering(self) -> Metering | None:
        """How much clients may do; None if there is no limit for anybody."""

    @property
    def unwritten(self) -> Sized:
        """What has appends that are not written yet."""

    def write_appends(self) -> None:
        """Write what was appended since the last time."""
