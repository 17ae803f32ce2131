"""Scenarios: requests, sent as they are written, and what came back.

A scenario is an asynchronous function that takes a :class:`Run`. Every request that it sends is a
step of the run's transcript. What a later request needs from an earlier answer (a member id, an
epoch, an offset) it takes from there, so both brokers are asked the same although their ids differ.

A scenario makes all its names by :meth:`Run.name`, and looks only at what it has made: many of them
share a broker. Where Kafka answers before it has done something, it waits with
:meth:`Client.until`, of which only the last answer counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from dohle.core.errors import ErrorCode
from dohle.protocol.schema import Request, Struct
from tests.oracle.bodies import api_named, make_request
from tests.oracle.normal import Json, Normaliser
from tests.server.wire import Wire

DEADLINE_S = 20.0
PAUSE_S = 0.02
CLOSED = {"closed": True}

_NOT_READY = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}

Scenario = Callable[["Run"], Awaitable[None]]
Show = Callable[[Any], Struct]


@dataclass(frozen=True, slots=True)
class Step:
    """A request and its answer, normalised."""

    name: str
    request: Json
    response: Json


#: The listener of a broker that is alone, or of the first one.
ANYWHERE = ""
#: What the listeners of controllers are called.
CONTROLLER = "controller"

_OF_QUORUM = {
    "Vote",
    "BeginQuorumEpoch",
    "EndQuorumEpoch",
    "FetchSnapshot",
    "DescribeQuorum",
    "UpdateRaftVoter",
}


class Run:
    """One run of a scenario against a broker, or against several nodes."""

    def __init__(self, addresses: Mapping[str, str], scenario: str, salt: str) -> None:
        """``addresses`` has the listeners by their names, one of which is ``ANYWHERE``."""
        self.addresses = addresses
        #: Where clients connect that do not say so.
        self.here = ANYWHERE
        self.steps: list[Step] = []
        self._prefix = f"{scenario}-{salt}-"
        hosts = {address.rpartition(":")[0] for address in addresses.values()}
        self.normal = Normaliser(self._prefix, hosts if len(addresses) > 1 else set())
        self._clients: dict[tuple[str, str], Client] = {}

    def name(self, what: str) -> str:
        """Return a name that no other run has."""
        return self._prefix + what

    def is_mine(self, name: str) -> bool:
        """Tell whether this run made a name."""
        return name.startswith(self._prefix)

    async def client(self, client_id: str = "client", at: str | None = None) -> Client:
        """Return the connection of this name to a listener."""
        at = self.here if at is None else at
        if (client_id, at) not in self._clients:
            self._clients[client_id, at] = Client(self, client_id, at)
        return self._clients[client_id, at]

    async def close(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            await client.close()

    def told(
        self,
        name: str,
        version: int,
        request: Request,
        response: Struct | None,
        note: str,
        at: str = ANYWHERE,
    ) -> None:
        """Note a step."""
        label = f"{name} v{version}" + (f" at {at}" if at else "") + (f": {note}" if note else "")
        count = sum(step.name.split(" (")[0] == label for step in self.steps)
        of_quorum = name in _OF_QUORUM or (name == "Fetch" and at.startswith(CONTROLLER))
        plain = self.normal.plain_of_quorum if of_quorum else self.normal.plain
        self.steps.append(
            Step(
                f"{label} ({count + 1})" if count else label,
                plain(request, version),
                CLOSED if response is None else plain(response, version),
            )
        )

    async def topic(self, what: str = "topic", partitions: int = 1, **configs: str) -> Topic:
        """Create a topic and wait until it can be used; in names of configs ``_`` is a dot."""
        name = self.name(what)
        client = await self.client("setup")
        values = [{"name": key.replace("_", "."), "value": each} for key, each in configs.items()]
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
        response = await client.ask("CreateTopics", 7, topics=[{**topic, "configs": values}])
        assert response.topics[0].error_code == 0, response
        asked = [{"partition_index": number, "timestamp": -2} for number in range(partitions)]
        await client.until_quietly(
            *("ListOffsets", 8, lambda r: all(not p.error_code for p in r.topics[0].partitions)),
            replica_id=-1,
            topics=[{"name": name, "partitions": asked}],
        )
        topic_id = response.topics[0].topic_id
        self.normal.name_topic(topic_id, name)
        return Topic(name, topic_id)

    async def group(self, what: str = "group") -> str:
        """Return the name of a group whose coordinator is ready."""
        name = self.name(what)
        client = await self.client("setup")
        await client.until_quietly(
            *("FindCoordinator", 4, lambda r: r.coordinators[0].error_code == 0),
            key_type=0,
            coordinator_keys=[name],
        )
        await client.until_quietly(
            *("Heartbeat", 4, lambda r: r.error_code not in _NOT_READY),
            group_id=name,
            generation_id=1,
            member_id="nobody",
        )
        return name

    async def transactional_id(self, what: str = "transaction") -> str:
        """Return a transactional id whose coordinator is ready."""
        name = self.name(what)
        client = await self.client("setup")
        await client.until_quietly(
            *("FindCoordinator", 4, lambda r: r.coordinators[0].error_code == 0),
            key_type=1,
            coordinator_keys=[name],
        )
        await client.until_quietly(
            *("EndTxn", 1, lambda r: r.error_code not in _NOT_READY),
            transactional_id=name,
            producer_id=1,
        )
        return name


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that a run has made."""

    name: str
    id: bytes

    @property
    def both(self) -> dict[str, Any]:
        """Its name and its id, of which a version has one."""
        return {"name": self.name, "topic_id": self.id}


class Client:
    """A connection of a run, made anew where the broker has closed it."""

    def __init__(self, run: Run, client_id: str, at: str) -> None:
        self._run = run
        self._client_id = client_id
        self.at = at
        self._wire: Wire | None = None

    async def connect(self) -> Wire:
        """Return the connection."""
        if self._wire is None:
            self._wire = await Wire.connect(self._run.addresses[self.at], self._client_id)
        return self._wire

    async def close(self) -> None:
        """Hang up."""
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.close()

    async def ask(self, name: str, version: int, /, **body: Any) -> Any:
        """Send a request that is no step, and return its answer."""
        request = make_request(name, version, body)
        return await (await self.connect()).send(request, version)

    async def send(
        self, name: str, version: int, /, *, note: Any = "", show: Any = None, **body: Any
    ) -> Any:
        """Send a request and return its answer, of which the transcript has what ``show`` shows.

        ``note`` and ``show`` are a text and a function; a type would be asked of each body, too.
        If the broker closes the connection instead, that is the step's answer.
        """
        return await (await self.post(name, version, note=note, show=show, **body)).answer()

    async def post(
        self, name: str, version: int, /, *, note: Any = "", show: Any = None, **body: Any
    ) -> Posted:
        """Send a request whose answer is for later: the step is where that is taken."""
        request = make_request(name, version, body)
        await (await self.connect()).post(request, version)
        return Posted(self._run, self, name, version, request, note, show)

    async def send_frame(self, name: str, version: int, frame: bytes, *, note: str) -> None:
        """Send any bytes at all, whose answer would be one of this kind."""
        wire = await self.connect()
        await wire.send_bytes(len(frame).to_bytes(4, "big") + frame)
        nothing = make_request(name, version, {})
        await Posted(self._run, self, name, version, nothing, note, None).answer()

    async def until(
        self,
        name: str,
        version: int,
        accept: Callable[[Any], bool],
        /,
        *,
        note: Any = "",
        **body: Any,
    ) -> Any:
        """Send a request again and again until its answer is accepted, which is the step."""
        response = await self.until_quietly(name, version, accept, **body)
        self._run.told(name, version, make_request(name, version, body), response, note, self.at)
        return response

    async def until_quietly(
        self, name: str, version: int, accept: Callable[[Any], bool], /, **body: Any
    ) -> Any:
        """Send a request again and again until its answer is accepted."""
        response = None
        try:
            async with asyncio.timeout(DEADLINE_S):
                while not accept(response := await self.ask(name, version, **body)):
                    await asyncio.sleep(PAUSE_S)
        except TimeoutError:
            raise AssertionError(f"{name} v{version} always answers {response}") from None
        return response


@dataclass(frozen=True, slots=True)
class Posted:
    """A request that has been sent."""

    run: Run
    client: Client
    name: str
    version: int
    request: Request
    note: str
    show: Show | None

    async def answer(self) -> Any:
        """Wait for the answer and return it; None if the connection is closed."""
        wire = await self.client.connect()
        try:
            response = await wire.answer(api_named(self.name).key, self.version)
        except (asyncio.IncompleteReadError, ConnectionResetError):
            response = None
            await self.client.close()
        shown = self.show(response) if self.show and response else response
        where = self.client.at
        self.run.told(self.name, self.version, self.request, shown, self.note, where)
        return response


@asynccontextmanager
async def running(addresses: Mapping[str, str], scenario: str, salt: str) -> AsyncIterator[Run]:
    """Make a run and close its connections at the end."""
    run = Run(addresses, scenario, salt)
    try:
        # The first producer id is 0, which would look like none.
        body = {"transactional_id": None, "transaction_timeout_ms": 1000}
        setup = await run.client("setup")
        await setup.until_quietly("InitProducerId", 4, lambda r: r.producer_id > 0, **body)
        yield run
    except Exception as error:
        error.add_note(f"after {run.steps[-1].name if run.steps else 'nothing'}")
        raise
    finally:
        await run.close()


async def steps_of(
    where: str | Mapping[str, str], name: str, scenario: Scenario, salt: str
) -> list[Step]:
    """Run a scenario at an address, or at the listeners of a cluster; return its transcript."""
    async with running({ANYWHERE: where} if isinstance(where, str) else where, name, salt) as run:
        await scenario(run)
        return run.steps


def scenarios_in(module: ModuleType) -> dict[str, Scenario]:
    """Return the scenarios of a module: its public coroutine functions."""
    return {
        name.replace("_", "-"): value
        for name, value in vars(module).items()
        if asyncio.iscoroutinefunction(value)
        and not name.startswith("_")
        and value.__module__ == module.__name__
    }
