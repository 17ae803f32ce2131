"""Random clients of one classic group, with crashes and a log that refuses.

What always holds: a request is answered once, and until then somebody holds it; in a generation
nobody is given what another has; generations do not go back; and a restart finds what was written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dohle.coordination.effects import Ticket
from dohle.core.errors import ErrorCode, KafkaError
from dohle.groups.classic.group import ClassicGroup, ClassicState
from dohle.protocol.messages.join_group import JoinGroupResponse
from dohle.protocol.messages.sync_group import SyncGroupResponse
from tests.groups.classic.classic_world import GROUP, ClassicWorld
from tests.groups.classic.commands import delete_group

PARTITIONS = range(8)
INSTANCES: tuple[str | None, ...] = (None, None, None, "x", "y", "z")
VERSIONS = st.sampled_from([3, 5, 9])
CLIENTS = st.integers(0, len(INSTANCES) - 1)
LONG_MS = 3_600_000


@dataclass
class Client:
    """A consumer: what it believes, and the one request that it waits for."""

    instance: str | None
    metadata: bytes = b"0"
    member_id: str = ""
    joined: JoinGroupResponse | None = None
    is_assigned: bool = False
    waits_for: Ticket | None = None


class ClassicGroupMachine(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.world = ClassicWorld(group_max_size=5)
        self.clients = [Client(instance) for instance in INSTANCES]
        self.outstanding: set[Ticket] = set()
        self.generation = 0
        #: What was handed out in a generation, and to which place in the group.
        self.handed_out: dict[int, dict[bytes, str]] = {}
        self.was_refused = False

    @initialize(rounds=st.integers(0, 4))
    def begin(self, rounds: int) -> None:
        self.go_on_together(rounds, 9)

    # What clients do

    @rule(indices=st.lists(CLIENTS, min_size=1, unique=True), version=VERSIONS)
    def go_on(self, indices: list[int], version: int) -> None:
        """Let clients do what a client does next, and time for a rebalance."""
        for index in indices:
            client = self.clients[index]
            if client.waits_for is not None:
                continue
            if client.joined is None:
                self.join(index, version)
            elif not client.is_assigned:
                self.sync(index)
            else:
                self.heartbeat(index)
            self.answers_arrive()

    @rule(rounds=st.integers(1, 5), version=VERSIONS)
    def go_on_together(self, rounds: int, version: int) -> None:
        """Let all who are in the group, or come, be its members for a while."""
        for _ in range(rounds):
            self.go_on(list(range(len(self.clients))), version)
            self.let_time_pass(3_000)
            self.answers_arrive()

    @rule(index=CLIENTS, version=VERSIONS)
    def join(self, index: int, version: int) -> None:
        client = self.clients[index]
        client.joined = None
        ticket = self.world.join(
            client.member_id,
            instance=client.instance,
            protocols={"range": client.metadata},
            session_ms=10_000,
            rebalance_ms=20_000 + index,
            version=max(version, 5) if client.instance else version,
        )
        self._sent(client, ticket)

    @rule(index=CLIENTS, metadata=st.sampled_from([b"0", b"1"]))
    def change_subscription(self, index: int, metadata: bytes) -> None:
        self.clients[index].metadata = metadata

    @rule(index=CLIENTS)
    def sync(self, index: int) -> None:
        client = self.clients[index]
        if client.joined is None:
            return
        assignments: dict[str, bytes] = {}
        members = [member.member_id for member in client.joined.members]
        for at, member in enumerate(members):
            assignments[member] = bytes(PARTITIONS[at :: len(members)])
        ticket = self.world.sync(
            client.member_id, client.joined.generation_id, assignments, instance=client.instance
        )
        self._sent(client, ticket)

    @rule(index=CLIENTS)
    def heartbeat(self, index: int) -> None:
        client = self.clients[index]
        generation = -1 if client.joined is None else client.joined.generation_id
        code = self.world.heartbeat(client.member_id, generation, instance=client.instance)
        self._told(client, code)

    @rule(indices=st.lists(CLIENTS, min_size=1, max_size=3, unique=True))
    def leave(self, indices: list[int]) -> None:
        clients = [self.clients[index] for index in indices]
        self.world.leave(*((client.member_id, client.instance) for client in clients))
        for client in clients:
            client.member_id = ""
            client.joined = None

    @rule(index=CLIENTS)
    def restart_client(self, index: int) -> None:
        client = self.clients[index]
        client.member_id, client.joined, client.waits_for = "", None, None

    # What happens to the coordinator

    @rule(ms=st.sampled_from([1, 3_000, 6_000, 9_000, 30_000]))
    def let_time_pass(self, ms: int) -> None:
        self.world.advance(ms)

    @rule(size=st.integers(3, 6))
    def limit_size(self, size: int) -> None:
        self.world.set(group_max_size=size)

    @rule(
        indices=st.lists(CLIENTS, min_size=1, max_size=3, unique=True),
        what=st.sampled_from(["go on", "leave", "wait"]),
    )
    def meet_a_log_that_refuses(self, indices: list[int], what: str) -> None:
        error = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no replicas")
        self.world.driver.append_error = error
        self.was_refused = True
        match what:
            case "go on":
                self.go_on(indices, 9)
            case "leave":
                self.leave(indices)
            case _:
                self.let_time_pass(12_000)
        self.world.driver.append_error = None

    @rule()
    def delete_group(self) -> None:
        ticket = self.world.submit(lambda machine, t: delete_group(machine, GROUP, t))
        if self.world.answer(ticket) is None and self._group() is None:
            self.generation = 0
            self.handed_out.clear()

    @rule()
    def crash(self) -> None:
        before = self._group()
        is_known = not self.was_refused if before is None else before.state is ClassicState.STABLE
        known = _durable(before) if is_known else None
        self.world.driver.restart()
        after = self._group()
        if is_known:
            assert _durable(after) == known
        elif before is not None and before.is_empty and not self.was_refused:
            assert after is not None
            assert not after.members
            assert before.generation == after.generation
            assert before.empty_since_ms == after.empty_since_ms
        self.outstanding.clear()
        self.generation = 0 if after is None else after.generation
        self.was_refused = False
        for client in self.clients:
            client.waits_for = None

    # What always holds

    @invariant()
    def answers_arrive(self) -> None:
        for client in self.clients:
            ticket = client.waits_for
            if ticket is not None and self.world.answer(ticket) is not None:
                client.waits_for = None
                self._answered(client, self.world.answer(ticket))
        self.outstanding -= self.world.driver.replies.keys()

    @invariant()
    def who_waits_is_held_by_the_group(self) -> None:
        group = self._group()
        members = [] if group is None else list(group.members.values())
        held = [ticket for m in members for ticket in (m.join_ticket, m.sync_ticket) if ticket]
        assert len(held) == len(set(held))
        assert set(held) == self.outstanding - self.world.driver.replies.keys()

    @invariant()
    def the_group_is_sound(self) -> None:
        group = self._group()
        if group is None:
            return
        assert group.generation >= self.generation
        self.generation = group.generation
        assert group.awaiting_join_count == sum(m.is_awaiting_join for m in group.members.values())
        assert (group.leader_id in group.members) == bool(group.members)
        assert group.static_members == {
            member.group_instance_id: member.member_id
            for member in group.members.values()
            if member.group_instance_id is not None
        }
        assert group.pending_syncs <= group.members.keys()
        assert not group.pending_joins & group.members.keys()
        if group.state is ClassicState.EMPTY:
            assert not group.members

    @invariant()
    def written_generations_do_not_go_back(self) -> None:
        last = 0
        for value in self.world.records():
            assert value is None or value.generation >= last
            last = 0 if value is None else value.generation

    def teardown(self) -> None:
        """Without clients every request is answered in the end, and the group is empty."""
        self.world.advance(LONG_MS)
        self.answers_arrive()
        assert not self.outstanding
        group = self._group()
        if group is not None:
            assert group.state is ClassicState.EMPTY
            assert not group.pending_joins

    def _group(self) -> ClassicGroup | None:
        group = self.world.driver.machine.context.groups.get(GROUP)
        assert group is None or isinstance(group, ClassicGroup)
        return group

    def _sent(self, client: Client, ticket: Ticket) -> None:
        self.outstanding.add(ticket)
        client.waits_for = ticket

    def _answered(self, client: Client, answer: Any) -> None:
        if isinstance(answer, KafkaError):
            self._told(client, answer.code)
        elif isinstance(answer, JoinGroupResponse) and answer.error_code == ErrorCode.NONE:
            client.member_id, client.joined, client.is_assigned = answer.member_id, answer, False
        elif isinstance(answer, SyncGroupResponse) and answer.error_code == ErrorCode.NONE:
            self._assigned(client, answer.assignment)
        else:
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                client.member_id = answer.member_id
            self._told(client, ErrorCode(answer.error_code))

    def _assigned(self, client: Client, assignment: bytes) -> None:
        assert client.joined is not None
        client.is_assigned = True
        handed_out = self.handed_out.setdefault(client.joined.generation_id, {})
        place = client.instance or client.member_id
        if assignment:
            assert handed_out.setdefault(assignment, place) == place
        for other, owner in handed_out.items():
            assert owner == place or not set(other) & set(assignment)

    def _told(self, client: Client, code: ErrorCode | None) -> None:
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            client.member_id = ""
        if code is not ErrorCode.NONE:
            client.joined = None


def _durable(group: ClassicGroup | None) -> object:
    """Return what a Stable group has to find again."""
    if group is None:
        return None
    members = {
        member.member_id: (
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
            member.metadata(group.protocol_name),
            member.assignment,
        )
        for member in group.members.values()
    }
    return group.generation, group.protocol_type, group.protocol_name, group.leader_id, members


ClassicGroupMachine.TestCase.settings = settings(
    max_examples=100, stateful_step_count=60, deadline=None
)
TestClassicGroup = ClassicGroupMachine.TestCase
