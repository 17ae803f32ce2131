"""A group coordinator under virtual time, with topics, spoken to by consumers of the new protocol.

A :class:`Consumer` does what a client does: it sends what has changed, keeps its member epoch, and
owns what it was granted until it gives it back.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dohle.coordination.effects import Effects, Ticket
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import GroupId, TopicName, Uuid
from dohle.core.seams import ManualClock
from dohle.core.steps import finish
from dohle.groups.consumer.group import ConsumerGroup
from dohle.groups.consumer.report import report_of
from dohle.groups.context import GroupContext
from dohle.groups.coordinator import GroupCoordinator
from dohle.groups.group import Caller
from dohle.groups.settings import GroupSettings
from dohle.protocol.apis import Coordinator
from dohle.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from dohle.protocol.record_framing import CoordinatorRecord
from tests.coordination.driver import Driver

GROUP = GroupId("group")
REBALANCE_MS = 60_000
SESSION_MS = 45_000
CALLER = Caller("client", "/127.0.0.1", 1)

#: What a log says that refuses everything.
NO_DISK = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is gone")

#: (topic, partition)
Partition = tuple[str, int]


class FakeTopics:
    """Topics that come, grow and go."""

    def __init__(self, **counts: int) -> None:
        self._numbers = 0
        self._version = 0
        self.ids: dict[str, Uuid] = {}
        #: Of deleted topics as well.
        self.names_ever: dict[Uuid, str] = {}
        self.counts: dict[str, int] = {}
        self.racks_of: dict[Partition, list[str]] = {}
        for name, count in counts.items():
            self.create(name, count)

    def create(self, name: str, count: int) -> None:
        self._numbers += 1
        self._version += 1
        self.ids[name] = Uuid(self._numbers.to_bytes(16, "big"))
        self.counts[name] = count
        self.names_ever[self.ids[name]] = name

    def grow(self, name: str, count: int) -> None:
        self._version += 1
        self.counts[name] = count

    def delete(self, name: str) -> None:
        self._version += 1
        del self.ids[name], self.counts[name]

    def id_of(self, name: str) -> Uuid | None:
        return self.ids.get(name)

    def name_of(self, topic_id: Uuid) -> TopicName | None:
        return next((TopicName(name) for name, id_ in self.ids.items() if id_ == topic_id), None)

    def partition_count(self, name: str) -> int:
        return self.counts.get(name, 0)

    def racks(self, name: str, partition: int) -> Sequence[str]:
        return self.racks_of.get((name, partition), [])

    def names(self) -> Collection[TopicName]:
        return [TopicName(name) for name in self.ids]

    def version(self) -> int:
        return self._version


class World:
    """See the module."""

    def __init__(
        self,
        topics: FakeTopics | None = None,
        clock: ManualClock | None = None,
        **settings: Any,
    ) -> None:
        self.topics = topics or FakeTopics(a=3, b=3)
        self.settings = GroupSettings(**settings)
        self.group_configs: dict[str, dict[str, str]] = {}
        clock = clock or ManualClock()
        rng = random.Random(1)

        def make() -> GroupCoordinator:
            return GroupCoordinator(
                GroupContext(
                    clock,
                    rng,
                    lambda: self.settings,
                    self.topics,
                    lambda group_id: self.group_configs.get(group_id, {}),
                )
            )

        self.driver = Driver(Coordinator.GROUP, make, clock)

    def configure(self, **settings: Any) -> None:
        self.settings = self.settings._replace(**settings)

    @property
    def machine(self) -> GroupCoordinator:
        return self.driver.machine

    def ask(self, command: Callable[[GroupCoordinator, Ticket], Effects]) -> Any:
        return self.driver.ask(command)

    def send(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat; a refusal is raised."""
        report = finish(report_of(request))
        answer = self.ask(lambda machine, t: machine.consumer.heartbeat(request, report, t, CALLER))
        if isinstance(answer, KafkaError):
            raise answer
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        return answer

    def consumer(self, name: str, *topics: str, **options: Any) -> Consumer:
        """Return a consumer that has not joined."""
        return Consumer(self, name, list(topics), **options)

    def joined(self, name: str, *topics: str, **options: Any) -> Consumer:
        """Return a consumer that has."""
        consumer = self.consumer(name, *topics, **options)
        consumer.heartbeat()
        return consumer

    def settle(self, *consumers: Consumer) -> None:
        """Let everybody heartbeat, and give back what it has to, until nothing changes."""
        for _ in range(50):
            before = len(self.driver.log)
            for consumer in consumers:
                consumer.heartbeat()
                consumer.revoke()
            self.driver.advance(0)
            if len(self.driver.log) == before and not any(c.to_revoke for c in consumers):
                return
        raise AssertionError("the group does not settle")

    @property
    def group(self) -> ConsumerGroup:
        group = self.machine.context.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    def state(self) -> str:
        return self.machine.context.groups[GROUP].state_name

    def advance(self, ms: int) -> None:
        self.driver.advance(ms)

    def topics_changed(self, *changed: str, created: bool = False, deleted: str = "") -> None:
        gone = {deleted} if deleted else set()
        self.driver.carry_out(
            self.machine.on_topics_changed(set(changed), gone, set(changed) if created else set())
        )

    def records(self, since: int = 0) -> list[CoordinatorRecord]:
        return [stored.record for stored in self.driver.log[since:] if stored.record is not None]

    def written(self, since: int) -> list[str]:
        """Name what was written: the value's kind, or the key's with a minus for a tombstone."""
        return [
            f"-{_short(record.key)}" if record.value is None else _short(record.value)
            for record in self.records(since)
        ]

    def partitions(self, topics: Iterable[TopicPartitions]) -> set[Partition]:
        return {
            (self.name(topic.topic_id), partition)
            for topic in topics
            for partition in topic.partitions
        }

    def name(self, topic_id: Uuid) -> str:
        return self.topics.names_ever[topic_id]

    def id(self, name: str) -> Uuid:
        """Return the id of a topic, of the last one if it was created more than once."""
        return [id_ for id_, known in self.topics.names_ever.items() if known == name][-1]


def _short(message: object) -> str:
    name = type(message).__name__
    return name.removeprefix("ConsumerGroup").removesuffix("Value").removesuffix("Key")


@dataclass
class Consumer:
    """A client; its name is its member id."""

    world: World
    name: str
    topics: list[str] | None
    regex: str | None = None
    instance: str | None = None
    assignor: str | None = None
    rebalance_ms: int = REBALANCE_MS
    rack: str | None = None
    epoch: int = 0
    #: What it was granted and has not given back.
    owned: set[Partition] = field(default_factory=set)
    assigned: set[Partition] = field(default_factory=set)

    @property
    def to_revoke(self) -> set[Partition]:
        return self.owned - self.assigned

    def request(self, **changes: Any) -> ConsumerGroupHeartbeatRequest:
        """Return a heartbeat that tells everything."""
        fields: dict[str, Any] = {
            "group_id": GROUP,
            "member_id": self.name,
            "member_epoch": self.epoch,
            "instance_id": self.instance,
            "rack_id": self.rack,
            "rebalance_timeout_ms": self.rebalance_ms,
            "subscribed_topic_names": (
                None if self.topics is None else tuple(TopicName(name) for name in self.topics)
            ),
            "subscribed_topic_regex": self.regex,
            "server_assignor": self.assignor,
            "topic_partitions": _topic_partitions(self.world, self.owned),
        }
        return ConsumerGroupHeartbeatRequest(**{**fields, **changes})

    def heartbeat(self, **changes: Any) -> ConsumerGroupHeartbeatResponse:
        """Tell everything, and take what is granted."""
        return self._take(self.world.send(self.request(**changes)))

    def beat(self, **changes: Any) -> ConsumerGroupHeartbeatResponse:
        """Tell nothing: a heartbeat as most are."""
        return self._take(
            self.world.send(
                ConsumerGroupHeartbeatRequest(
                    **{
                        "group_id": GROUP,
                        "member_id": self.name,
                        "member_epoch": self.epoch,
                        "instance_id": self.instance,
                        **changes,
                    }
                )
            )
        )

    def _take(self, response: ConsumerGroupHeartbeatResponse) -> ConsumerGroupHeartbeatResponse:
        assert response.error_code == ErrorCode.NONE
        assert response.member_id is not None
        self.name = response.member_id
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.assigned = self.world.partitions(response.assignment.topic_partitions)
            self.owned |= self.assigned
        return response

    def revoke(self) -> None:
        """Give back what it is no longer assigned."""
        self.owned &= self.assigned

    def forget(self) -> None:
        """Be as after a restart, or after being fenced."""
        self.epoch = 0
        self.owned = set()
        self.assigned = set()

    def refused(self, **changes: Any) -> ErrorCode:
        """Send a heartbeat that is refused; nothing may have been written."""
        before = len(self.world.driver.log)
        try:
            self.world.send(self.request(**changes))
        except KafkaError as error:
            assert len(self.world.driver.log) == before
            return error.code
        raise AssertionError("it was not refused")

    def leave(self, epoch: int = -1) -> ConsumerGroupHeartbeatResponse:
        response = self.world.send(
            ConsumerGroupHeartbeatRequest(
                group_id=GROUP, member_id=self.name, member_epoch=epoch, instance_id=self.instance
            )
        )
        self.forget()
        return response


def _topic_partitions(world: World, owned: set[Partition]) -> tuple[TopicPartitions, ...]:
    names = sorted({name for name, _ in owned})
    return tuple(
        TopicPartitions(
            topic_id=world.id(name),
            partitions=tuple(sorted(index for topic, index in owned if topic == name)),
        )
        for name in names
    )
