"""Consumer groups by the classic protocol, with other people's clients.

Groups grow, shrink and lose members to kill -9 while records are being written. Every record is
read, and once things have settled each partition has one owner; it never has two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from importlib import import_module
from typing import Any

import confluent_kafka
import pytest

from tests.interop.group_consumers import LIBRARIES, Joining
from tests.interop.members import (
    Ledger,
    Member,
    MemberProcess,
    await_settled,
    await_values,
    places_of,
    values_seen,
)
from tests.interop.quick_broker import Feed, fresh, new_topic, serving, write
from tests.interop.waiting import wait_until

# The module re-exports its classes in a way that a type checker does not follow.
admin_api: Any = import_module("confluent_kafka.admin")

PARTITIONS = 6
VICTIM_TIMEOUT_MS = 1_500


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("groups")) as broker:
        yield broker.bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    return new_topic(bootstrap, PARTITIONS)


def state_of(bootstrap: str, group: str) -> str:
    admin = admin_api.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    described = admin.describe_consumer_groups([group])[group].result(20)
    return str(described.state.name)


def grow_and_shrink(joining: Joining, feed: Feed) -> tuple[list[Member], Ledger]:
    """Go from one member to three and back to one, with records flowing."""
    places = places_of(joining.topics[0], PARTITIONS)
    ledger = Ledger()
    everybody: list[Member] = []
    with ExitStack() as stack:
        for number in range(3):
            everybody.append(stack.enter_context(Member(joining, ledger, f"member {number}")))
            await_settled(everybody, places)
            feed.await_more(PARTITIONS)
        for number in range(2):
            everybody[number].close()
            await_settled(everybody[number + 1 :], places)
            feed.await_more(PARTITIONS)
        await_values(everybody, feed.written)
    return everybody, ledger


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_group_that_grows_and_shrinks_reads_each_record_once(
    library: str, bootstrap: str, topic: str
) -> None:
    joining = Joining(library, bootstrap, fresh("group"), (topic,), commits_when_revoked=True)
    with Feed(bootstrap, topic, PARTITIONS) as feed:
        everybody, ledger = grow_and_shrink(joining, feed)
        written = list(feed.written)

    with Member(joining) as latecomer:
        await_values([*everybody, latecomer], feed.written)
        assert len(feed.written) >= len(written)
    assert ledger.conflicts == []
    assert values_seen([*everybody, latecomer]) == Counter(feed.written)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_killed_member_is_replaced_after_its_session_timeout(
    library: str, bootstrap: str, topic: str
) -> None:
    places = places_of(topic, PARTITIONS)
    joining = Joining(library, bootstrap, fresh("group"), (topic,), commits_when_revoked=True)
    dying = Joining(
        library, bootstrap, joining.group, (topic,), session_timeout_ms=VICTIM_TIMEOUT_MS
    )
    ledger = Ledger()
    with (
        Feed(bootstrap, topic, PARTITIONS) as feed,
        MemberProcess(dying) as victim,
        Member(joining, ledger, "first") as first,
        Member(joining, ledger, "second") as second,
    ):
        await_settled([first, second, victim], places)
        feed.await_more(PARTITIONS)
        wait_until(lambda: len(victim.seen) > 0)
        victim.kill()
        await_settled([first, second], places)
        feed.await_more(PARTITIONS)
        await_values([first, second], feed.written)
        assert ledger.conflicts == []


@pytest.mark.parametrize("library", ["confluent", "kafka-python"])
def test_cooperative_members_give_back_only_what_must_move(
    library: str, bootstrap: str, topic: str
) -> None:
    places = places_of(topic, PARTITIONS)
    joining = Joining(
        library,
        bootstrap,
        fresh("group"),
        (topic,),
        strategy="cooperative-sticky",
        commits_when_revoked=True,
    )
    ledger = Ledger()
    with Feed(bootstrap, topic, PARTITIONS) as feed, ExitStack() as stack:
        first = stack.enter_context(Member(joining, ledger, "first"))
        await_settled([first], places)
        second = stack.enter_context(Member(joining, ledger, "second"))
        await_settled([first, second], places)
        assert sum(map(len, first.taken)) == 3
        kept = first.assignment

        third = stack.enter_context(Member(joining, ledger, "third"))
        await_settled([first, second, third], places)
        assert [len(member.assignment) for member in (first, second, third)] == [2, 2, 2]
        assert first.assignment < kept
        assert sum(map(len, first.taken)) + sum(map(len, second.taken)) == 3 + 2

        third.close()
        await_settled([first, second], places)
        assert sum(map(len, first.taken)) + sum(map(len, second.taken)) == 3 + 2
        feed.await_more(PARTITIONS)
        await_values([first, second, third], feed.written)
    with Member(joining) as latecomer:
        everybody = [first, second, third, latecomer]
        await_values(everybody, feed.written)
    assert ledger.conflicts == []
    assert values_seen(everybody) == Counter(feed.written)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("is_leader", [False, True])
def test_a_static_member_that_returns_in_time_causes_no_rebalance(
    is_leader: bool, library: str, bootstrap: str, topic: str
) -> None:
    places = places_of(topic, PARTITIONS)
    joining = Joining(library, bootstrap, fresh("group"), (topic,), commits_when_revoked=True)
    static = Joining(
        library,
        bootstrap,
        joining.group,
        (topic,),
        instance_id="static",
        session_timeout_ms=VICTIM_TIMEOUT_MS if not is_leader else 20_000,
        commits_when_revoked=True,
    )
    with ExitStack() as stack:
        # The first to come is the leader.
        order = (static, joining) if is_leader else (joining, static)
        members: dict[bool, Member] = {}
        for each in order:
            members[each is static] = stack.enter_context(Member(each))
            await_settled(list(members.values()), places)
        away, other = members[True], members[False]
        before, rebalances = away.assignment, other.assignments
        away.close()

        back = stack.enter_context(Member(static))
        await_settled([back, other], places)
        assert back.assignment == before
        assert state_of(bootstrap, joining.group) == "STABLE"
        for partition in range(PARTITIONS):
            write(bootstrap, topic, [b"%d" % partition], partition)
        await_values([back, other], [b"%d" % partition for partition in range(PARTITIONS)])
        assert other.assignments == rebalances

        back.close()
        if not is_leader:
            await_settled([other], places)
            assert other.assignments > rebalances


def test_a_second_static_member_of_the_same_name_fences_the_first(
    bootstrap: str, topic: str
) -> None:
    static = Joining("confluent", bootstrap, fresh("group"), (topic,), instance_id="static")
    with Member(static) as first:
        await_settled([first], places_of(topic, PARTITIONS))
        with Member(static) as second:
            await_settled([second], places_of(topic, PARTITIONS))
            failure = first.expect_failure()
            assert isinstance(failure, confluent_kafka.KafkaException)
            assert failure.args[0].code() == confluent_kafka.KafkaError._FATAL


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_members_of_different_libraries_share_a_group(
    strategy: str, bootstrap: str, topic: str
) -> None:
    group = fresh("group")
    places = places_of(topic, PARTITIONS)
    ledger = Ledger()
    with ExitStack() as stack:
        everybody: list[Member] = []
        feed = stack.enter_context(Feed(bootstrap, topic, PARTITIONS))
        for library in LIBRARIES:
            joining = Joining(library, bootstrap, group, (topic,), strategy=strategy)
            everybody.append(stack.enter_context(Member(joining, ledger, library)))
            await_settled(everybody, places)
        assert [len(member.assignment) for member in everybody] == [2, 2, 2]
        feed.await_more(PARTITIONS)
        everybody[0].close()
        await_settled(everybody[1:], places)
        await_values(everybody, feed.written)
    assert ledger.conflicts == []


def test_a_member_that_stops_to_poll_is_taken_for_dead(bootstrap: str, topic: str) -> None:
    """Librdkafka leaves by itself after max.poll.interval.ms, and comes back when asked to read."""
    group = fresh("group")
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "session.timeout.ms": 1_000,
        "heartbeat.interval.ms": 100,
        "max.poll.interval.ms": 1_000,
        "partition.assignment.strategy": "range",
        "log_level": 0,
    }
    slow = confluent_kafka.Consumer(config)
    slow.subscribe([topic])
    try:

        def has_joined() -> bool:
            slow.poll(0.05)
            return len(slow.assignment()) == PARTITIONS

        wait_until(has_joined)
        joining = Joining("confluent", bootstrap, group, (topic,))
        with Member(joining) as other:
            await_settled([other], places_of(topic, PARTITIONS))
            wait_until(lambda: bool(slow.poll(0.05)) or 0 < len(slow.assignment()) < PARTITIONS)
            wait_until(lambda: len(other.assignment) == PARTITIONS // 2)
            # librdkafka may never return from a close in the middle of a rebalance.
            wait_until(lambda: not slow.poll(0.05) and len(slow.assignment()) == PARTITIONS // 2)
    finally:
        slow.close()


def test_partitions_that_are_added_find_an_owner(bootstrap: str, topic: str) -> None:
    joining = Joining("confluent", bootstrap, fresh("group"), (topic,))
    with Member(joining) as first, Member(joining) as second:
        await_settled([first, second], places_of(topic, PARTITIONS))
        admin = admin_api.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        grown = admin_api.NewPartitions(topic, PARTITIONS + 2)
        admin.create_partitions([grown])[topic].result(20)
        await_settled([first, second], places_of(topic, PARTITIONS + 2))
