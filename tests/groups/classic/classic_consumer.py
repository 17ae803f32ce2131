"""A consumer of the classic protocol that shares a group with those of the new one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dohle.coordination.effects import Effects, Ticket
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName
from dohle.groups.coordinator import GroupCoordinator
from dohle.groups.group import Caller
from dohle.protocol.consumer_framing import read_assignment, write_assignment
from dohle.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from dohle.protocol.messages.heartbeat import HeartbeatRequest
from dohle.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from dohle.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from dohle.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tests.groups.classic.commands import join, sync
from tests.groups.consumer.consumer_world import GROUP, Partition, World

CALLER = Caller("classic", "/127.0.0.1", 9)
CLASSIC_SESSION_MS = 10_000
CLASSIC_REBALANCE_MS = 30_000
SUBSCRIPTION_VERSION = 3


@dataclass
class ClassicConsumer:
    """A cooperative one: it keeps what it owns through a rebalance."""

    world: World
    topics: list[str]
    instance: str | None = None
    protocols: tuple[str, ...] = ("cooperative-sticky",)
    member_id: str = ""
    generation: int = -1
    owned: set[Partition] = field(default_factory=set)
    leads: bool = False

    def subscription(self) -> bytes:
        owned = tuple(
            ConsumerProtocolSubscriptionTopicPartition(topic=TopicName(name), partitions=partitions)
            for name, partitions in _by_topic(self.owned)
        )
        body = ConsumerProtocolSubscription(
            topics=tuple(self.topics), owned_partitions=owned, generation_id=self.generation
        )
        return SUBSCRIPTION_VERSION.to_bytes(2, "big") + body.encode(SUBSCRIPTION_VERSION)

    def join_later(self, **changes: Any) -> Ticket:
        """Send JoinGroup; the reply may have to wait."""
        protocols = tuple(
            JoinGroupRequestProtocol(name=name, metadata=self.subscription())
            for name in self.protocols
        )
        fields: dict[str, Any] = {
            "group_id": GROUP,
            "session_timeout_ms": CLASSIC_SESSION_MS,
            "rebalance_timeout_ms": CLASSIC_REBALANCE_MS,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "protocol_type": "consumer",
            "protocols": protocols,
        }
        request = JoinGroupRequest(**{**fields, **changes})
        return self.world.driver.submit(
            lambda machine, ticket: join(machine, request, ticket, CALLER)
        )

    def joined(self, ticket: Ticket) -> JoinGroupResponse:
        """Take the reply to JoinGroup."""
        response = self.world.driver.replies.pop(ticket)
        if isinstance(response, KafkaError):
            raise response
        assert isinstance(response, JoinGroupResponse)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode(response.error_code), "")
        self.member_id = response.member_id
        self.generation = response.generation_id
        self.leads = response.leader == self.member_id
        return response

    def join(self, **changes: Any) -> JoinGroupResponse:
        """Join a consumer group, which replies at once."""
        try:
            return self.joined(self.join_later(**changes))
        except KafkaError as error:
            if error.code is not ErrorCode.MEMBER_ID_REQUIRED:
                raise
            return self.joined(self.join_later(**changes))

    def sync_later(self, assignments: dict[str, set[Partition]] | None = None) -> Ticket:
        """Send SyncGroup, as a leader with everybody's assignment."""
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocol_name=self.protocols[0],
            assignments=tuple(
                SyncGroupRequestAssignment(
                    member_id=member_id, assignment=assignment_bytes(partitions)
                )
                for member_id, partitions in (assignments or {}).items()
            ),
        )
        return self.world.driver.submit(lambda machine, ticket: sync(machine, request, ticket))

    def synced(self, ticket: Ticket) -> set[Partition]:
        """Take the reply to SyncGroup: what is not in it any more is given back."""
        response = self.world.driver.replies.pop(ticket)
        if isinstance(response, KafkaError):
            raise response
        assert isinstance(response, SyncGroupResponse)
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode(response.error_code), "")
        assignment = read_assignment(response.assignment)
        self.owned = {
            (str(part.topic), index)
            for part in assignment.assigned_partitions
            for index in part.partitions
        }
        return self.owned

    def sync(self) -> set[Partition]:
        """Get its assignment of a group that replies at once."""
        return self.synced(self.sync_later())

    def heartbeat(self) -> ErrorCode:
        """Return what a heartbeat is answered."""
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )
        return self._code(lambda machine, t: machine.classic.heartbeat(request, t))

    def leave(self) -> ErrorCode:
        """Leave, by its instance id if it has one."""
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance)
        request = LeaveGroupRequest(group_id=GROUP, members=(identity,))
        response = self.world.ask(
            lambda machine, t: machine.classic.leave_group(request, t, Caller("c", "/h", 5))
        )
        self.owned = set()
        return ErrorCode(response.members[0].error_code)

    def follow(self) -> None:
        """Do what a client does with heartbeats: join again as often as it is told to."""
        for _ in range(20):
            if self.heartbeat() is ErrorCode.NONE:
                return
            self.join()
            try:
                self.sync()
            except KafkaError as error:
                if error.code is not ErrorCode.REBALANCE_IN_PROGRESS:
                    raise
        raise AssertionError("it is told to join again all the time")

    def _code(self, command: Any) -> ErrorCode:
        def run(machine: GroupCoordinator, ticket: Ticket) -> Effects:
            effects: Effects = command(machine, ticket)
            return effects

        try:
            return ErrorCode(self.world.ask(run).error_code)
        except KafkaError as error:
            return error.code


def assignment_bytes(partitions: set[Partition]) -> bytes:
    """What a leader sends for a member."""
    parts = tuple(
        ConsumerProtocolAssignmentTopicPartition(topic=TopicName(name), partitions=indexes)
        for name, indexes in _by_topic(partitions)
    )
    version = SUBSCRIPTION_VERSION.to_bytes(2, "big")
    return write_assignment(ConsumerProtocolAssignment(assigned_partitions=parts), version)


def _by_topic(partitions: set[Partition]) -> list[tuple[str, tuple[int, ...]]]:
    names = sorted({name for name, _ in partitions})
    return [
        (name, tuple(sorted(index for topic, index in partitions if topic == name)))
        for name in names
    ]


def classic_group(world: World, *consumers: ClassicConsumer) -> None:
    """Bring a classic group to Stable; partitions are dealt out in turn."""
    for consumer in consumers:
        try:
            consumer.joined(consumer.join_later())
        except (KafkaError, KeyError):
            continue
    tickets = [consumer.join_later() for consumer in consumers]
    while any(ticket not in world.driver.replies for ticket in tickets):
        world.advance(1_000)
    for consumer, ticket in zip(consumers, tickets, strict=True):
        consumer.joined(ticket)
    everything = [
        (name, index)
        for name in sorted({name for consumer in consumers for name in consumer.topics})
        for index in range(world.topics.partition_count(name))
    ]
    share = {
        consumer.member_id: set(everything[at :: len(consumers)])
        for at, consumer in enumerate(consumers)
    }
    syncs = [consumer.sync_later(share if consumer.leads else None) for consumer in consumers]
    for consumer, ticket in zip(consumers, syncs, strict=True):
        consumer.synced(ticket)
