"""A group whose members change the protocol all the time, and so the group with them.

Members of the classic protocol are eager: they give everything up before they join. Static members
change from one protocol to the other under the same instance id. At any time no partition has two
owners, and when all behave for a while, every partition has one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dohle.coordination.effects import Ticket
from dohle.core.errors import ErrorCode, KafkaError
from dohle.groups.classic.group import ClassicGroup
from dohle.groups.consumer.group import ConsumerGroup
from tests.groups.classic.classic_consumer import ClassicConsumer
from tests.groups.consumer.consumer_world import GROUP, Consumer, FakeTopics, Partition, World

PARTITIONS = {("a", index) for index in range(5)}
#: After these a client gives everything up and joins again.
LOST = {
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.ILLEGAL_GENERATION,
}

choices = st.integers(0, 1_000)


@dataclass
class EagerConsumer(ClassicConsumer):
    """Goes on when its requests are answered."""

    joining: Ticket | None = None
    syncing: Ticket | None = None

    def step(self) -> None:
        """Take an answer that has come, or send what is next."""
        replies = self.world.driver.replies
        try:
            if self.joining is not None:
                if self.joining in replies:
                    ticket, self.joining = self.joining, None
                    self._sync(ticket)
            elif self.syncing is not None:
                if self.syncing in replies:
                    ticket, self.syncing = self.syncing, None
                    self.synced(ticket)
            elif self.generation < 0:
                self._join()
            else:
                code = self.heartbeat()
                if code is not ErrorCode.NONE:
                    raise KafkaError(code, "")
        except KafkaError as error:
            self._recover(error.code)

    def _join(self) -> None:
        self.owned = set()
        self.joining = self.join_later()

    def _sync(self, ticket: Ticket) -> None:
        members = [member.member_id for member in self.joined(ticket).members]
        everything = sorted(PARTITIONS)
        share = {
            member_id: set(everything[at :: len(members)]) for at, member_id in enumerate(members)
        }
        self.syncing = self.sync_later(share if self.leads else None)

    def _recover(self, code: ErrorCode) -> None:
        self.owned = set()
        self.joining = self.syncing = None
        self.generation = -1
        if code in LOST:
            self.member_id = ""
        elif code not in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.MEMBER_ID_REQUIRED):
            raise KafkaError(code, "a client does not know what to do about it")

    def stop(self) -> None:
        """Crash: nobody takes its answers any more."""
        self.owned = set()


class MigrationMachine(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(FakeTopics(a=len(PARTITIONS)), group_consumer_session_timeout_ms=12_000)
        self.classic: list[EagerConsumer] = []
        self.consumers: list[Consumer] = []
        self.numbers = 0

    @initialize(count=st.integers(1, 3), static=st.booleans())
    def begin_classic(self, count: int, static: bool) -> None:
        for _ in range(count):
            self.join_classic(static)
        self.settle()

    @precondition(lambda self: len(self.classic) + len(self.consumers) < 5)
    @rule(static=st.booleans())
    def join_classic(self, static: bool) -> None:
        self.numbers += 1
        instance = f"i{self.numbers}" if static else None
        self.classic.append(EagerConsumer(self.world, ["a"], instance, protocols=("range",)))

    @precondition(lambda self: len(self.classic) + len(self.consumers) < 5)
    @rule(static=st.booleans())
    def join(self, static: bool) -> None:
        self.numbers += 1
        instance = f"i{self.numbers}" if static else None
        self.consumers.append(Consumer(self.world, f"m{self.numbers}", ["a"], instance=instance))
        self._beat(self.consumers[-1])

    @precondition(lambda self: any(c.instance for c in self.classic))
    @rule(which=choices)
    def change_to_the_new_protocol(self, which: int) -> None:
        static = [c for c in self.classic if c.instance]
        old = static[which % len(static)]
        old.stop()
        self.classic.remove(old)
        self.numbers += 1
        new = Consumer(self.world, f"m{self.numbers}", ["a"], instance=old.instance)
        self.consumers.append(new)
        self._beat(new)

    @precondition(lambda self: any(c.instance for c in self.consumers))
    @rule(which=choices)
    def change_to_the_classic_protocol(self, which: int) -> None:
        static = [c for c in self.consumers if c.instance]
        old = static[which % len(static)]
        self.consumers.remove(old)
        new = EagerConsumer(self.world, ["a"], old.instance, protocols=("range",))
        self.classic.append(new)
        new.step()

    @precondition(lambda self: self.classic)
    @rule(which=choices, steps=st.integers(1, 3))
    def step_classic(self, which: int, steps: int) -> None:
        for _ in range(steps):
            self.classic[which % len(self.classic)].step()

    @precondition(lambda self: self.consumers)
    @rule(which=choices, give_back=st.booleans())
    def beat(self, which: int, give_back: bool) -> None:
        consumer = self.consumers[which % len(self.consumers)]
        if give_back:
            consumer.revoke()
        self._beat(consumer)

    @precondition(lambda self: self.consumers)
    @rule(which=choices, politely=st.booleans())
    def leave(self, which: int, politely: bool) -> None:
        consumer = self.consumers.pop(which % len(self.consumers))
        if politely and consumer.epoch > 0:
            try:
                consumer.leave()
            except KafkaError as error:
                _check_lost(error)

    @precondition(lambda self: self.classic)
    @rule(which=choices)
    def leave_classic(self, which: int) -> None:
        consumer = self.classic.pop(which % len(self.classic))
        if consumer.member_id and consumer.joining is None and consumer.syncing is None:
            try:
                consumer.leave()
            except KafkaError as error:
                _check_lost(error)
        consumer.stop()

    @rule(ms=st.sampled_from([0, 1_000, 4_000]))
    def pass_time(self, ms: int) -> None:
        """Less than a session, with everybody heard of: who is put out has crashed."""
        self.world.advance(ms)
        self._step_all()

    @rule()
    def crash_the_coordinator(self) -> None:
        self.world.driver.restart()
        for consumer in self.classic:
            if consumer.joining or consumer.syncing:
                # The connection is closed: it does not know what became of its request.
                consumer.joining = consumer.syncing = None
                consumer.generation = -1
                consumer.owned = set()

    @rule()
    def settle(self) -> None:
        for _ in range(60):
            self.world.advance(1_000)
            self._step_all()
            self._step_all()
            self.one_owner()
        if not self.classic and not self.consumers:
            return
        assert self.world.state() == "Stable"
        group = self.world.machine.context.groups[GROUP]
        assert isinstance(group, ConsumerGroup if self.consumers else ClassicGroup)
        assert set().union(*self._owned()) == PARTITIONS

    @invariant()
    def one_owner(self) -> None:
        owners = Counter(partition for owned in self._owned() for partition in owned)
        assert all(count == 1 for count in owners.values()), owners

    def _owned(self) -> list[set[Partition]]:
        owned = [consumer.owned for consumer in self.consumers]
        return owned + [consumer.owned for consumer in self.classic]

    def _step_all(self) -> None:
        for consumer in self.consumers:
            consumer.revoke()
            self._beat(consumer)
        for classic in self.classic:
            classic.step()

    def _beat(self, consumer: Consumer) -> None:
        try:
            consumer.heartbeat()
        except KafkaError as error:
            _check_lost(error)
            consumer.forget()


def _check_lost(error: KafkaError) -> None:
    if error.code not in LOST:
        raise error


def test_a_group_that_changes_its_protocol_keeps_one_owner_for_each_partition() -> None:
    run_state_machine_as_test(
        MigrationMachine,
        settings=settings(max_examples=60, stateful_step_count=30, deadline=None),
    )
