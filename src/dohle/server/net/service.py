"""What a connection needs from the broker."""

from __future__ import annotations

from asyncio import Future
from typing import TYPE_CHECKING, Any, Protocol

from dohle.server.net.outcome import Frame, LateFrame

if TYPE_CHECKING:
    from dohle.server.net.connection import Connection


class Service(Protocol):
    """It handles requests, and is told what becomes of their answers."""

    def handle(
        self, frame: memoryview, connection: Connection
    ) -> Frame | LateFrame | Future[Any] | None:
        """Handle one request.

        A callable that is returned must be called after ``settle``. None means that the request
        cannot be handled until those before it are answered: it is handed over again then.
        """

    def is_patient(self, api_key: int) -> bool:
        """Tell whether a request may wait for others in a crowded turn."""

    def settle(self) -> None:
        """Write what the requests handled so far have appended."""

    def may_settle_later(self, connection: Connection, /) -> bool:
        """Tell whether a connection must wait for others; its ``settle`` is called then."""

    def complete(self, answered: Future[Any]) -> Frame:
        """Encode the answer that a future has returned."""

    def forget(self, future: Future[Any]) -> None:
        """Give up waiting for the answer to a request whose client has gone."""
