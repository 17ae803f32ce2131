"""Finds the broker that coordinates a group or a transactional id, and sends requests to it.

A coordinator is remembered until a response, or its silence, shows that it has moved. Brokers from
3.0 on (FindCoordinator v4) are asked for many at once, older ones for one at a time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, TypeVar

from dohle.client.admin.results import Results
from dohle.client.errors import answered_error
from dohle.client.net.connection import SHARED, Channel, Connection
from dohle.client.node_requests import ask_nodes
from dohle.core.errors import COORDINATOR_UNREACHED, ErrorCode, KafkaError
from dohle.core.ids import BrokerId
from dohle.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from dohle.client.cluster import Cluster

_Result = TypeVar("_Result")
_Value = TypeVar("_Value")

_BATCHED = 4
#: Errors after which another broker may be the coordinator.
_FORGET = COORDINATOR_UNREACHED | frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
    }
)


class CoordinatorKind(IntEnum):
    """What a coordinator is responsible for, by the number in requests."""

    GROUP = 0
    TRANSACTION = 1

    def __str__(self) -> str:
        return "group" if self is CoordinatorKind.GROUP else "transactional id"


class CoordinatorRouter:
    """Finds coordinators and remembers them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[tuple[CoordinatorKind, str], BrokerId] = {}

    def known(self, kind: CoordinatorKind, key: str) -> BrokerId | None:
        """Return the coordinator if it was found before."""
        return self._known.get((kind, key))

    def forget(self, kind: CoordinatorKind, key: str) -> None:
        """Look up the coordinator again the next time it is needed."""
        self._known.pop((kind, key), None)

    async def find(
        self, kind: CoordinatorKind, keys: Iterable[str]
    ) -> dict[str, BrokerId | KafkaError]:
        """Return the coordinator of each key, or the error."""
        found: dict[str, BrokerId | KafkaError] = {}
        missing: list[str] = []
        for key in dict.fromkeys(keys):
            known = self.known(kind, key)
            if known is None:
                missing.append(key)
            else:
                found[key] = known
        if missing:
            found.update(await self._look_up(kind, missing))
        return found

    async def ask(
        self,
        kind: CoordinatorKind,
        key: str,
        what: str,
        ask: Callable[[Connection], Awaitable[_Result]],
        *,
        channel: Channel = SHARED,
        timeout_ms: int | None = None,
    ) -> _Result:
        """Send a request to the coordinator of one key; retry, elsewhere if it has moved."""

        async def attempt() -> _Result:
            try:
                node_id = (await self.find(kind, (key,)))[key]
                if isinstance(node_id, KafkaError):
                    raise node_id
                return await ask(await self._cluster.connection(node_id, channel))
            except KafkaError as error:
                self._heed(kind, (key,), error)
                raise

        return await self._cluster.retry(what, attempt, timeout_ms=timeout_ms)

    async def ask_each(
        self,
        kind: CoordinatorKind,
        keys: Iterable[str],
        what: str,
        ask: Callable[[Connection, list[str]], Awaitable[Mapping[str, _Value | KafkaError]]],
    ) -> Results[str, _Value]:
        """Send requests to the coordinators of many keys until each key has its answer."""

        async def locate(some: Iterable[str]) -> Mapping[str, BrokerId | KafkaError]:
            return await self.find(kind, some)

        # It must be looked up anew also if it cannot be reached, or is no broker any more.
        def heed(key: str, error: KafkaError) -> None:
            self._heed(kind, (key,), error)

        return await ask_nodes(self._cluster, what, keys, locate, ask, on_error=heed)

    def _heed(self, kind: CoordinatorKind, keys: Iterable[str], error: KafkaError) -> None:
        if error.code in _FORGET:
            for key in keys:
                self.forget(kind, key)

    async def _look_up(
        self, kind: CoordinatorKind, keys: list[str]
    ) -> dict[str, BrokerId | KafkaError]:
        connection = await self._cluster.any_connection()
        found: dict[str, BrokerId | KafkaError] = {}
        answers: list[tuple[str, int, str | None, BrokerId]] = []
        if connection.version_of(FindCoordinatorRequest) >= _BATCHED:
            answer = await connection.request(
                FindCoordinatorRequest(key_type=kind, coordinator_keys=tuple(keys)),
                FindCoordinatorResponse,
            )
            answers += [
                (each.key, each.error_code, each.error_message, each.node_id)
                for each in answer.coordinators
            ]
        else:
            for key in keys:
                answer = await connection.request(
                    FindCoordinatorRequest(key=key, key_type=kind), FindCoordinatorResponse
                )
                answers.append((key, answer.error_code, answer.error_message, answer.node_id))
        for key, code, message, node_id in answers:
            if code:
                found[key] = answered_error(code, f"coordinator of {kind} {key}", message)
            else:
                found[key] = self._known[kind, key] = node_id
        return found
