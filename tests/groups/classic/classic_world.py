"""A group coordinator under virtual time, spoken to in the classic protocol.

Every request gives a ticket; ``answer`` is what it got, None while it waits. A refusal is an answer
as well: its error code.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from dohle.coordination.effects import Effects, Ticket
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import GroupId, TopicName, Uuid
from dohle.core.seams import ManualClock
from dohle.groups.classic.group import ClassicGroup
from dohle.groups.context import GroupContext
from dohle.groups.coordinator import GroupCoordinator
from dohle.groups.group import Caller
from dohle.groups.settings import GroupSettings
from dohle.protocol.apis import Coordinator
from dohle.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from dohle.protocol.messages.heartbeat import HeartbeatRequest
from dohle.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from dohle.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from dohle.protocol.messages.records.classic_group import GroupMetadataValue
from dohle.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tests.coordination.driver import Driver
from tests.groups.classic.commands import join, sync

GROUP = GroupId("group")
SESSION_MS = 10_000
REBALANCE_MS = 60_000
INITIAL_DELAY_MS = 3_000


class NoTopics:
    """A cluster without topics."""

    def id_of(self, name: str) -> Uuid | None:
        return None

    def name_of(self, topic_id: Uuid) -> TopicName | None:
        return None

    def partition_count(self, name: str) -> int:
        return 0

    def racks(self, name: str, partition: int) -> Sequence[str]:
        return ()

    def names(self) -> Collection[TopicName]:
        return ()

    def version(self) -> int:
        return 0


def subscription(*topics: str, version: int = 0) -> bytes:
    """What a consumer that wants these topics tells its leader."""
    body = ConsumerProtocolSubscription(topics=topics).encode(version)
    return version.to_bytes(2, "big") + bytes(body)


class ClassicWorld:
    """See the module."""

    def __init__(self, **settings: Any) -> None:
        self.settings = GroupSettings(**settings)
        clock = ManualClock()
        rng = random.Random(1)

        def make() -> GroupCoordinator:
            return GroupCoordinator(GroupContext(clock, rng, lambda: self.settings, NoTopics()))

        self.driver = Driver(Coordinator.GROUP, make, clock)
        self._refusals: dict[Ticket, ErrorCode] = {}

    def set(self, **settings: Any) -> None:
        self.settings = self.settings._replace(**settings)

    # Requests

    def submit(self, command: Callable[[GroupCoordinator, Ticket], Effects]) -> Ticket:
        """Run a command; refused or not, it gives a ticket."""
        tickets: list[Ticket] = []

        def noted(machine: GroupCoordinator, ticket: Ticket) -> Effects:
            tickets.append(ticket)
            return command(machine, ticket)

        try:
            return self.driver.submit(noted)
        except KafkaError as error:
            self.driver.replies[tickets[0]] = error
            return tickets[0]

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: Mapping[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        reason: str | None = None,
        version: int = 9,
        group: str = GROUP,
    ) -> Ticket:
        offered = {"range": b""} if protocols is None else protocols
        request = JoinGroupRequest(
            group_id=GroupId(group),
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=tuple(
                JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in offered.items()
            ),
            reason=reason,
        )
        caller = Caller("client", "/127.0.0.1", version)
        return self.submit(lambda machine, t: join(machine, request, t, caller))

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        *,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        group: str = GROUP,
    ) -> Ticket:
        request = SyncGroupRequest(
            group_id=GroupId(group),
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=tuple(
                SyncGroupRequestAssignment(member_id=member, assignment=assigned)
                for member, assigned in (assignments or {}).items()
            ),
        )
        return self.submit(lambda machine, t: sync(machine, request, t))

    def heartbeat(
        self, member_id: str, generation: int, *, instance: str | None = None, group: str = GROUP
    ) -> ErrorCode | None:
        request = HeartbeatRequest(
            group_id=GroupId(group),
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
        )
        return self.code(self.submit(lambda m, t: m.classic.heartbeat(request, t)))

    def leave(
        self, *members: str | tuple[str, str | None], version: int = 5, group: str = GROUP
    ) -> Any:
        pairs = [(who, None) if isinstance(who, str) else who for who in members]
        request = LeaveGroupRequest(
            group_id=GroupId(group),
            member_id=pairs[0][0],
            members=tuple(
                MemberIdentity(member_id=member_id, group_instance_id=instance, reason="done")
                for member_id, instance in pairs
            ),
        )
        caller = Caller("client", "/127.0.0.1", version)
        return self.answer(
            self.submit(lambda machine, t: machine.classic.leave_group(request, t, caller))
        )

    def left(self, *members: str | tuple[str, str | None]) -> list[int]:
        """Let members leave; return the code of each."""
        return [member.error_code for member in self.leave(*members).members]

    # Answers

    def answer(self, ticket: Ticket) -> Any:
        return self.driver.replies.get(ticket)

    def code(self, ticket: Ticket) -> ErrorCode | None:
        """Return the error code of an answer; None while there is none."""
        answer = self.answer(ticket)
        if answer is None:
            return None
        return answer.code if isinstance(answer, KafkaError) else ErrorCode(answer.error_code)

    def joined(self, ticket: Ticket) -> JoinGroupResponse:
        answer = self.answer(ticket)
        assert isinstance(answer, JoinGroupResponse), answer
        assert answer.error_code == ErrorCode.NONE
        return answer

    def assigned(self, ticket: Ticket) -> bytes:
        answer = self.answer(ticket)
        assert isinstance(answer, SyncGroupResponse), answer
        assert answer.error_code == ErrorCode.NONE
        return answer.assignment

    # Where most tests begin

    def member_id(self, **options: Any) -> str:
        """Ask for a member id."""
        ticket = self.join(**options)
        assert self.code(ticket) is ErrorCode.MEMBER_ID_REQUIRED
        answered: str = self.answer(ticket).member_id
        return answered

    def stable(self, count: int = 2, **options: Any) -> list[str]:
        """Bring a new group of dynamic members to Stable; the first is its leader."""
        members = [self.member_id(**options) for _ in range(count)]
        joins = [self.join(member, **options) for member in members]
        self.finish_first_rebalance()
        assert [self.joined(ticket).generation_id for ticket in joins] == [1] * count
        self.sync_all(members)
        return members

    def finish_first_rebalance(self) -> None:
        """Let the delay of a first rebalance pass, however often it is prolonged."""
        while self.state() == "PreparingRebalance":
            self.advance(INITIAL_DELAY_MS)

    def sync_all(
        self, members: Sequence[str], assignments: Mapping[str, bytes] | None = None
    ) -> None:
        """Let all sync, the leader last; everybody is assigned its own name if nothing is said."""
        group = self.group()
        given = assignments or {member: member.encode() for member in members}
        order = sorted(members, key=lambda member: member == group.leader_id)
        tickets = [self.sync(member, group.generation, given) for member in order]
        assert [self.assigned(t) for t in tickets] == [given[member] for member in order]

    def group(self, group: str = GROUP) -> ClassicGroup:
        found = self.driver.machine.context.groups[group]
        assert isinstance(found, ClassicGroup)
        return found

    def state(self) -> str:
        return self.group().state_name

    def advance(self, ms: int) -> None:
        self.driver.advance(ms)

    def records(self) -> list[GroupMetadataValue | None]:
        """Return what was written of groups, oldest first."""
        found: list[GroupMetadataValue | None] = []
        for stored in self.driver.log:
            assert stored.record is not None
            value = stored.record.value
            assert value is None or isinstance(value, GroupMetadataValue)
            found.append(value)
        return found
