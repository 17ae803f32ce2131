"""A proxy between clients and the broker that holds back one request of a chosen client.

The broker advertises the proxy's address, so that all that clients say goes through it. The request
that is held back is delivered later, even if its client has gone; as on any connection, what comes
behind it waits too.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from dohle.protocol.apis import ApiKey
from dohle.testing.check.links import Held, Links
from tests.interop.waiting import wait_until

ANSWER_DEADLINE_S = 30.0
_BROKER = 1


class HoldingProxy:
    """One of the links of a check, for one broker."""

    def __init__(self, target_port: int) -> None:
        self._links = Links(lambda port: None)
        self._held = Held()
        self.port = self._links.add(_BROKER, target_port, is_for_clients=True)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def hold(self, client_id: str, api_key: ApiKey) -> None:
        """Hold back the next such request of this client."""
        self._held = self._links.hold(client_id, api_key)

    def await_held(self) -> None:
        """Wait until it is being held back."""
        wait_until(lambda: self._held.is_held)

    def release(self) -> None:
        """Deliver what is held back, if anything is; return when the broker has answered it."""
        if self._held.is_held:
            self._links.release(ANSWER_DEADLINE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._links.close()
