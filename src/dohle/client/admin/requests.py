"""Sends an admin client's requests to a broker that can answer them, and collects the results."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Self, TypeVar

from dohle.client.admin.results import Results
from dohle.client.config import ClientConfig
from dohle.client.coordinators import CoordinatorKind
from dohle.client.errors import TimedOut, answered_error
from dohle.client.metadata import NO_LEADER
from dohle.client.net.addresses import Address
from dohle.client.net.connection import Connection
from dohle.client.settings.names import Where, given
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_Result = TypeVar("_Result")

#: An election takes less; who looks for what takes longer wants to know what it is.
_TOLD_AFTER_S = 5.0

Ask = Callable[[Connection], Awaitable[_Result]]
#: Key, error code, what it is about, the broker's message, and the value if there is no error.
Entry = tuple[_Key, int, str, str | None, _Value]


def several(given: Iterable[_Key], what: str) -> tuple[_Key, ...]:
    """Return what an operation is about; a single one is a slip, of which a string has letters."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise TypeError(f"{what} is {given!r}: pass a list, even of one")
    return tuple(given)


def sort_out(entries: Iterable[Entry[_Key, _Value]]) -> Results[_Key, _Value]:
    """Turn the entries of a response into results.

    NOT_CONTROLLER concerns all of them, and is raised.
    """
    done: dict[_Key, _Value] = {}
    errors: dict[_Key, KafkaError] = {}
    for key, code, about, message, value in entries:
        if code == ErrorCode.NOT_CONTROLLER:
            raise answered_error(code, about, message)
        if code:
            errors[key] = answered_error(code, about, message)
        else:
            done[key] = value
    return Results(done, errors)


class AdminRequests:
    """Sends requests to the controller, to one broker or to any; retries while that may help."""

    def __init__(
        self, cluster: Where = None, config: ClientConfig | None = None, **settings: Any
    ) -> None:
        """Administer a cluster: where it is, or a :class:`Cluster` that others use too."""
        self._cluster, self._has_own_cluster, _ = given(cluster, config, ClientConfig, settings)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections, unless others use them too."""
        if self._has_own_cluster:
            await self._cluster.close()

    async def _ask_any(self, what: str, ask: Ask[_Result]) -> _Result:
        async def attempt() -> _Result:
            return await ask(await self._cluster.any_connection())

        return await self._cluster.retry(what, attempt)

    async def _ask_quorum(
        self, what: str, connect: Callable[[], Awaitable[Connection]], ask: Ask[_Result]
    ) -> _Result:
        """Ask what brokers pass on to the active controller: they may be there, and that not."""
        asked: dict[Address, None] = {}

        async def attempt() -> _Result:
            connection = await connect()
            asked[connection.address] = None
            return await ask(connection)

        def tell() -> None:
            if self._cluster.on_wait is not None and asked:
                reached = ", ".join(map(str, asked))
                self._cluster.on_wait(
                    f"{what}: asked {reached}, and waiting for the active controller; giving up "
                    f"after {self._cluster.config.api_timeout_ms / 1000:g} s"
                )

        timer = asyncio.get_running_loop().call_later(_TOLD_AFTER_S, tell)
        try:
            return await self._cluster.retry(what, attempt)
        except TimedOut as error:
            if not asked:
                raise
            reached = ", ".join(map(str, asked))
            raise TimedOut(
                f"{error.args[0]}; reached {reached}, but the active controller has to answer "
                "this: perhaps there is none, since most controllers are down"
            ) from error
        finally:
            timer.cancel()

    async def _ask_broker(self, node_id: BrokerId, what: str, ask: Ask[_Result]) -> _Result:
        async def attempt() -> _Result:
            known = self._cluster.metadata.brokers
            if node_id not in known:
                known = (await self._cluster.refresh(())).brokers
            if node_id not in known:
                raise KafkaError(
                    ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {node_id} is not in the cluster"
                )
            return await ask(await self._cluster.connection(node_id))

        return await self._cluster.retry(what, attempt)

    async def _ask_brokers(
        self, node_ids: Iterable[BrokerId], what: str, ask: Ask[_Result]
    ) -> Results[BrokerId, _Result]:
        """Ask several brokers at once; each has its own result."""
        nodes = tuple(node_ids)
        found = await asyncio.gather(
            *(self._ask_broker(node_id, what, ask) for node_id in nodes), return_exceptions=True
        )
        done: dict[BrokerId, _Result] = {}
        errors: dict[BrokerId, KafkaError] = {}
        for node_id, result in zip(nodes, found, strict=True):
            if isinstance(result, KafkaError):
                errors[node_id] = result
            elif isinstance(result, BaseException):
                raise result
            else:
                done[node_id] = result
        return Results(done, errors)

    def _coordinator_of(self, kind: CoordinatorKind, key: str) -> BrokerId:
        """Return the broker that is the coordinator being asked."""
        known = self._cluster.coordinators.known(kind, key)
        return NO_LEADER if known is None else known

    async def _ask_controller(self, what: str, ask: Ask[_Result]) -> _Result:
        async def ask_again(connection: Connection) -> _Result:
            try:
                return await ask(connection)
            except KafkaError as error:
                if error.code is ErrorCode.NOT_CONTROLLER:
                    await self._cluster.refresh(())
                raise

        return await self._ask_quorum(what, self._cluster.controller_connection, ask_again)
