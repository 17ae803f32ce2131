"""Consumer groups under anything that members, topics and coordinators may do.

Members of both protocols come, go, crash, answer late or not at all, lose replies and change their
minds; topics come, grow and go; the coordinator crashes and is replayed from its log. At any time:

- no partition is owned by two members, by what they were granted and have not given back;
- epochs never go back;
- a coordinator that was replayed knows what the one before it knew;
- a member is put out only if it missed a deadline.

And whenever all behave for a while, the group becomes Stable and everybody has its target.
"""

from __future__ import annotations

from collections import Counter

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

from dohle.core.errors import ErrorCode, KafkaError
from dohle.groups.consumer.group import ConsumerGroup
from dohle.groups.consumer.member import LEAVE_STATIC_EPOCH
from tests.groups.classic.classic_consumer import CLASSIC_SESSION_MS, ClassicConsumer
from tests.groups.consumer.consumer_world import (
    GROUP,
    SESSION_MS,
    Consumer,
    FakeTopics,
    Partition,
    World,
)

REBALANCE_MS = 20_000
NAMES = ["t0", "t1", "t2", "t3"]
REGEXES = ["", "t.*", "t[01]", "t3|new.*"]
#: After these a client gives everything up and joins again.
LOST = {
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.ILLEGAL_GENERATION,
}

subscriptions = st.lists(st.sampled_from(NAMES), unique=True, max_size=4)
choices = st.integers(0, 1_000)


class GroupsMachine(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(
            FakeTopics(t0=1, t1=3, t2=4),
            group_consumer_migration_policy="upgrade",
            group_consumer_regex_refresh_interval_ms=30_000,
        )
        self.consumers: list[Consumer] = []
        self.classic: list[ClassicConsumer] = []
        self.numbers = 0
        #: When each member was last heard of, and since when it has something to give back.
        self.heard_ms: dict[str, int] = {}
        self.revoking_ms: dict[str, int] = {}
        self.group_epoch = 0
        self.member_epochs: dict[str, int] = {}

    # Members of the new protocol.

    @initialize(topics=subscriptions)
    def first(self, topics: list[str]) -> None:
        self.join(topics, 0, "uniform", False)

    @precondition(lambda self: len(self.consumers) < 6)
    @rule(
        topics=subscriptions,
        regex=st.integers(0, len(REGEXES) - 1),
        assignor=st.sampled_from(["uniform", "range", None]),
        static=st.booleans(),
    )
    def join(self, topics: list[str], regex: int, assignor: str | None, static: bool) -> None:
        self.numbers += 1
        consumer = Consumer(
            self.world,
            f"member{self.numbers}",
            topics,
            regex=REGEXES[regex],
            assignor=assignor,
            instance=f"instance{self.numbers}" if static else None,
            rebalance_ms=REBALANCE_MS,
        )
        self.consumers.append(consumer)
        self._beat(consumer, full=True)

    @precondition(lambda self: self.consumers)
    @rule(which=choices, full=st.booleans(), give_back=st.booleans())
    def beat(self, which: int, full: bool, give_back: bool) -> None:
        consumer = self._pick(which)
        if give_back:
            consumer.revoke()
        self._beat(consumer, full=full)

    @precondition(lambda self: self.consumers)
    @rule(which=choices)
    def lose_a_reply(self, which: int) -> None:
        consumer = self._pick(which)
        before = (consumer.epoch, set(consumer.owned), set(consumer.assigned), consumer.name)
        self._beat(consumer, full=True)
        if consumer.epoch != 0:
            consumer.epoch, consumer.owned, consumer.assigned, consumer.name = before

    @precondition(lambda self: self.consumers)
    @rule(which=choices, topics=subscriptions, regex=st.integers(0, len(REGEXES) - 1))
    def subscribe(self, which: int, topics: list[str], regex: int) -> None:
        consumer = self._pick(which)
        consumer.topics = topics
        consumer.regex = REGEXES[regex]
        self._beat(consumer, full=True)

    @precondition(lambda self: self.consumers)
    @rule(which=choices)
    def leave(self, which: int) -> None:
        consumer = self._pick(which)
        self.consumers.remove(consumer)
        try:
            consumer.leave()
        except KafkaError as error:
            self._check_lost(error)

    @precondition(lambda self: self.consumers)
    @rule(which=choices)
    def crash(self, which: int) -> None:
        self.consumers.remove(self._pick(which))

    @precondition(lambda self: any(c.instance for c in self.consumers))
    @rule(which=choices, politely=st.booleans())
    def restart_a_static_member(self, which: int, politely: bool) -> None:
        static = [c for c in self.consumers if c.instance is not None]
        consumer = static[which % len(static)]
        try:
            if politely:
                consumer.leave(epoch=LEAVE_STATIC_EPOCH)
        except KafkaError as error:
            self._check_lost(error)
        self.numbers += 1
        consumer.forget()
        consumer.name = f"member{self.numbers}"
        self._beat(consumer, full=True)

    @precondition(lambda self: self.consumers)
    @rule(which=choices, epoch=st.integers(1, 30))
    def send_nonsense(self, which: int, epoch: int) -> None:
        """An epoch that is not its own; whatever comes of it, the reply is not looked at."""
        consumer = self._pick(which)
        try:
            self.world.send(consumer.request(member_epoch=epoch, topic_partitions=None))
            self._note(consumer)
        except KafkaError as error:
            self._check_lost(error)

    # Members of the classic protocol.

    @precondition(lambda self: self._is_live() and len(self.classic) < 3)
    @rule(topics=subscriptions)
    def join_classic(self, topics: list[str]) -> None:
        consumer = ClassicConsumer(self.world, topics)
        self.classic.append(consumer)
        self._follow(consumer)

    @precondition(lambda self: self._is_live() and self.classic)
    @rule(which=choices, steps=st.integers(1, 3))
    def follow_classic(self, which: int, steps: int) -> None:
        for _ in range(steps):
            self._follow(self.classic[which % len(self.classic)])

    @precondition(lambda self: self._is_live() and self.classic)
    @rule(which=choices, crashes=st.booleans())
    def leave_classic(self, which: int, crashes: bool) -> None:
        consumer = self.classic.pop(which % len(self.classic))
        if not crashes and consumer.member_id:
            consumer.leave()

    # Topics, time and the coordinator.

    @rule(name=st.sampled_from(["t3", "new1", "new2"]), count=st.integers(1, 4))
    def create_topic(self, name: str, count: int) -> None:
        if name not in self.world.topics.names_ever.values():
            self.world.topics.create(name, count)
            self.world.topics_changed(name, created=True)

    @rule(name=st.sampled_from(NAMES))
    def grow_topic(self, name: str) -> None:
        if name in self.world.topics.counts:
            self.world.topics.grow(name, self.world.topics.counts[name] + 1)
            self.world.topics_changed(name)

    @rule(name=st.sampled_from(["t1", "t3"]))
    def delete_topic(self, name: str) -> None:
        if name in self.world.topics.counts:
            self.world.topics.delete(name)
            self.world.topics_changed(deleted=name)

    @rule(ms=st.sampled_from([0, 1, 1_000, 5_000, 12_000, 25_000]))
    def pass_time(self, ms: int) -> None:
        self.world.advance(ms)
        self._drop_those_put_out()

    @rule()
    def crash_the_coordinator(self) -> None:
        before = self._knowledge()
        self.world.driver.restart()
        assert self._knowledge() == before
        # Everybody has a session from now on.
        now_ms = self.world.driver.clock.monotonic_ms()
        self.heard_ms = dict.fromkeys(self.heard_ms, now_ms)
        self.revoking_ms = dict.fromkeys(self.revoking_ms, now_ms)

    @rule()
    def settle(self) -> None:
        """All behave, for long enough that those who crashed are put out."""
        for _ in range(40):
            for consumer in self.consumers:
                consumer.revoke()
                self._beat(consumer, full=True)
            for classic in self.classic:
                if self._is_live():
                    self._follow(classic)
            self.world.advance(2_500)
            self._drop_those_put_out()
            self.one_owner()
        if not self._is_live():
            return
        group = self.world.group
        assert group.state_name == "Stable"
        owned = {c.name: c.owned for c in self.consumers}
        owned |= {c.member_id: c.owned for c in self.classic}
        assert owned == {member_id: self._named(member_id) for member_id in group.members}
        if not self.consumers:
            # As in Kafka, members of the classic protocol do not make the group look at topics.
            return
        wanted = {
            (name, index)
            for name in group.subscribed_topics()
            for index in range(self.world.topics.partition_count(name))
        }
        assert set().union(*owned.values()) == wanted

    # What holds at any time.

    @invariant()
    def one_owner(self) -> None:
        owned = [consumer.owned for consumer in self.consumers]
        owned += [consumer.owned for consumer in self.classic]
        owners = Counter(partition for partitions in owned for partition in partitions)
        assert all(count == 1 for count in owners.values()), owners

    @invariant()
    def epochs_never_go_back(self) -> None:
        group = self.world.machine.context.groups.get(GROUP)
        if not isinstance(group, ConsumerGroup):
            # An empty group is deleted after a while; its name may be used again.
            self.group_epoch = 0
            self.member_epochs.clear()
            return
        assert group.group_epoch >= self.group_epoch
        assert group.target_epoch <= group.group_epoch
        self.group_epoch = group.group_epoch
        for member in group.members.values():
            if member.member_epoch > 0:
                assert member.member_epoch >= self.member_epochs.get(member.member_id, 0)
                self.member_epochs[member.member_id] = member.member_epoch

    # How it is done.

    def _is_live(self) -> bool:
        group = self.world.machine.context.groups.get(GROUP)
        return isinstance(group, ConsumerGroup) and not group.is_empty

    def _pick(self, which: int) -> Consumer:
        return self.consumers[which % len(self.consumers)]

    def _beat(self, consumer: Consumer, *, full: bool) -> None:
        try:
            if full or consumer.epoch == 0:
                consumer.heartbeat()
            else:
                consumer.beat()
            self._note(consumer)
        except KafkaError as error:
            self._check_lost(error)
            consumer.forget()

    def _note(self, consumer: Consumer) -> None:
        now_ms = self.world.driver.clock.monotonic_ms()
        self.heard_ms[consumer.name] = now_ms
        if self.world.group.members[consumer.name].pending_revocation:
            self.revoking_ms.setdefault(consumer.name, now_ms)
        else:
            self.revoking_ms.pop(consumer.name, None)

    def _follow(self, consumer: ClassicConsumer) -> None:
        """Do one step of what a classic client does."""
        now_ms = self.world.driver.clock.monotonic_ms()
        try:
            is_member = consumer.generation >= 0
            code = consumer.heartbeat() if is_member else ErrorCode.REBALANCE_IN_PROGRESS
            if code is ErrorCode.REBALANCE_IN_PROGRESS:
                consumer.join()
                self.heard_ms[consumer.member_id] = now_ms
                consumer.sync()
            elif code is not ErrorCode.NONE:
                raise KafkaError(code, "")
            self.heard_ms[consumer.member_id] = now_ms
        except KafkaError as error:
            if error.code is ErrorCode.REBALANCE_IN_PROGRESS:
                return
            self._check_lost(error)
            consumer.owned = set()
            consumer.generation = -1
            consumer.member_id = ""

    def _check_lost(self, error: KafkaError) -> None:
        if error.code not in LOST:
            raise error

    def _drop_those_put_out(self) -> None:
        now_ms = self.world.driver.clock.monotonic_ms()
        group = self.world.machine.context.groups.get(GROUP)
        members = group.members if isinstance(group, ConsumerGroup) else {}
        for consumer in self.consumers:
            if consumer.epoch > 0 and consumer.name not in members:
                heard = self.heard_ms.get(consumer.name, 0)
                revoking = self.revoking_ms.get(consumer.name, now_ms)
                assert now_ms - heard >= SESSION_MS or now_ms - revoking >= REBALANCE_MS
                consumer.forget()
        for classic in self.classic:
            if classic.generation >= 0 and classic.member_id not in members:
                assert now_ms - self.heard_ms[classic.member_id] >= CLASSIC_SESSION_MS
                classic.owned = set()
                classic.generation = -1
                classic.member_id = ""

    def _named(self, member_id: str) -> set[Partition]:
        return {
            (self.world.name(topic_id), index)
            for topic_id, indexes in self.world.group.target.get(member_id, {}).items()
            for index in indexes
        }

    def _knowledge(self) -> object:
        group = self.world.machine.context.groups.get(GROUP)
        if not isinstance(group, ConsumerGroup):
            return group and group.state_name
        owners = {
            (topic_id, index): group.owner(topic_id, index)
            for topic_id in self.world.topics.names_ever
            for index in range(20)
        }
        return (
            group.group_epoch,
            group.metadata_hash,
            group.target_epoch,
            dict(group.members),
            dict(group.target),
            dict(group.static_members),
            dict(group.resolved_regexes),
            sorted(group.regexes),
            sorted(group.subscribed_topics()),
            group.preferred_assignor(),
            group.classic_member_count,
            owners,
        )


def test_partitions_have_one_owner_and_groups_converge() -> None:
    run_state_machine_as_test(
        GroupsMachine,
        settings=settings(max_examples=100, stateful_step_count=40, deadline=None),
    )
