"""Quotas, as the dispatcher sees them: requests are charged when they are answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from dohle.protocol.schema import Response
from dohle.server.net.outcome import EncodedResponse

if TYPE_CHECKING:
    from dohle.server.net.connection import Connection


class Charge(Protocol):
    """What a request of a client with quotas costs."""

    def used(self, seconds: float) -> None:
        """Count work that was done for it in slices."""

    def settle(
        self, response: Response | EncodedResponse | None
    ) -> Response | EncodedResponse | None:
        """Count the request, now that it is answered; return the answer that says how long to wait.

        The connection is muted for as long.
        """


class Metering(Protocol):
    """The quotas in force; there is none of these without any."""

    @property
    def rules(self) -> object:
        """Another object after each change of the quotas."""

    def begin(
        self, connection: Connection, api_key: int, client_id: str, request_bytes: int
    ) -> Charge | None:
        """Return what a request is charged by; None if its sender has no quotas.

        The connection is told which rules do not concern it: as long as there are no others, its
        requests may be served without being looked at.
        """
