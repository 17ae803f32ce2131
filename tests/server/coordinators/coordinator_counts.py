"""A machine that only counts, and a runtime that coordinates by one topic of a node."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from dohle.coordination.effects import Effects, Ticket, TransactionalProducer
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import ProducerId, TopicName
from dohle.core.steps import PlainSteps
from dohle.protocol.apis import Coordinator
from dohle.protocol.messages.heartbeat import HeartbeatResponse
from dohle.protocol.messages.records.classic_group import OffsetCommitKey, OffsetCommitValue
from dohle.protocol.record_framing import CoordinatorRecord
from dohle.server.coordinators.runtime import CoordinatorRuntime
from dohle.server.node import Node
from tests.server.faults import FaultyFileSystem, until
from tests.server.wire import Wire, create_topic, running_node

TOPIC = TopicName("counts")
PRODUCER = TransactionalProducer(ProducerId(7), 0)


def count_record(name: str, number: int, *, size: int = 0) -> CoordinatorRecord:
    value = OffsetCommitValue(offset=number, metadata="x" * size, commit_timestamp=0)
    return CoordinatorRecord(OffsetCommitKey(group=name, topic="t", partition=0), value, 3)


class Counts:
    """Counts by name; a count in a transaction waits for its marker."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.pending: dict[str, int] = {}
        self.loaded = False
        #: Called before a record is taken in.
        self.on_replay: Callable[[], object] | None = None
        self.deadline_ms: int | None = None
        self.expired = 0

    def replay(self, record: CoordinatorRecord, producer: TransactionalProducer | None) -> None:
        if self.on_replay is not None:
            self.on_replay()
        assert isinstance(record.key, OffsetCommitKey)
        assert isinstance(record.value, OffsetCommitValue)
        where = self.counts if producer is None else self.pending
        where[record.key.group] = record.value.offset

    def replay_end_transaction(self, producer: TransactionalProducer, *, is_commit: bool) -> None:
        if is_commit:
            self.counts |= self.pending
        self.pending = {}

    def on_loaded(self) -> PlainSteps[Effects]:
        yield
        self.loaded = True
        return Effects()

    def next_deadline_ms(self) -> int | None:
        return self.deadline_ms

    def expire(self) -> Effects | None:
        if self.deadline_ms is None:
            return None
        self.deadline_ms = None
        self.expired += 1
        return Effects([count_record("expired", self.expired)])

    def fail(self) -> Effects:
        raise RuntimeError("a mistake")

    # Commands

    def count(self, name: str, ticket: Ticket, *, size: int = 0, undo: bool = False) -> Effects:
        number = self.counts.get(name, 0) + 1
        effects = Effects([count_record(name, number, size=size)]).reply(ticket, number)
        if undo:
            effects.undo = lambda error: Effects().reply(ticket, f"undone: {error.code.name}")
        return effects

    def count_in_transaction(self, name: str, ticket: Ticket) -> Effects:
        number = self.counts.get(name, 0) + 1
        return Effects([count_record(name, number)], producer=PRODUCER).reply(ticket, number)

    def refuse(self, ticket: Ticket) -> Effects:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "no")

    def read(self, name: str, ticket: Ticket) -> Effects:
        return Effects().reply(ticket, self.counts.get(name, 0))


Runtime = CoordinatorRuntime[Counts]


def refused(error: KafkaError) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=error.code)


def runtime_on(
    node: Node,
    act: Callable[[object], None] | None = None,
    make_machine: Callable[[int], Counts] = lambda index: Counts(),
    timeout_ms: int = 5_000,
) -> Runtime:
    """Coordinate by the topic, from the node's broker."""
    runtime = Runtime(
        asyncio.get_running_loop(),
        node.broker,
        Coordinator.GROUP,
        TOPIC,
        make_machine,
        read_bytes=1024,
        timeout_ms=timeout_ms,
        act=None if act is None else lambda index, epoch, action: act(action),
    )
    for partition in node.broker.partitions.of_topic(TOPIC).values():
        runtime.follow(partition)
    return runtime


async def loaded(runtime: Runtime) -> Counts:
    await until(lambda: not runtime.is_loading)
    return next(iter(runtime.active()))[1]


def run_on_node(
    path: Path,
    scenario: Callable[[Node], Awaitable[None]],
    *,
    fs: FaultyFileSystem | None = None,
    configs: dict[str, str] | None = None,
) -> None:
    async def run() -> None:
        async with running_node(path, fs=fs) as node, await Wire.connect(node) as wire:
            await create_topic(wire, TOPIC, configs=configs)
            await scenario(node)

    asyncio.run(run())
