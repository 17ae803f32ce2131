"""Groups by the newer protocol (KIP-848) with librdkafka, the one client here that speaks it.

The broker assigns; members give back only what must move. Groups change from the classic protocol
to this one and back, member by member, while they are read from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupType

from tests.interop.group_consumers import Joining, Place
from tests.interop.members import (
    Ledger,
    Member,
    MemberProcess,
    await_settled,
    await_values,
    places_of,
    values_seen,
)
from tests.interop.process import BrokerProcess
from tests.interop.quick_broker import QUICK, Feed, fresh, new_topic, serving, write
from tests.interop.waiting import wait_until
from tests.ports import free_port

# The module re-exports its classes in a way that a type checker does not follow.
admin_api: Any = import_module("confluent_kafka.admin")

PARTITIONS = 6


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("consumer-protocol")) as broker:
        yield broker.bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    return new_topic(bootstrap, PARTITIONS)


@pytest.fixture
def joining(bootstrap: str, topic: str) -> Joining:
    return Joining(
        "confluent",
        bootstrap,
        fresh("group"),
        (topic,),
        protocol="consumer",
        commits_when_revoked=True,
    )


def type_of(bootstrap: str, group: str) -> ConsumerGroupType:
    admin = admin_api.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    found = admin.list_consumer_groups().result(20)
    (listed,) = [each for each in found.valid if each.group_id == group]
    kind: ConsumerGroupType = listed.type
    return kind


def describe(bootstrap: str, group: str) -> Any:
    admin = admin_api.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    return admin.describe_consumer_groups([group])[group].result(20)


def test_a_group_that_grows_and_shrinks_reads_each_record_once(
    bootstrap: str, topic: str, joining: Joining
) -> None:
    places = places_of(topic, PARTITIONS)
    ledger = Ledger()
    with Feed(bootstrap, topic, PARTITIONS) as feed, ExitStack() as stack:
        everybody: list[Member] = []
        for number in range(3):
            everybody.append(stack.enter_context(Member(joining, ledger, f"member {number}")))
            await_settled(everybody, places)
            feed.await_more(PARTITIONS)
        first, second, third = everybody
        assert type_of(bootstrap, joining.group) == ConsumerGroupType.CONSUMER
        assert [len(member.assignment) for member in everybody] == [2, 2, 2]
        # Only what had to move has moved: three to the second, then two to the third.
        assert sum(map(len, first.taken)) + sum(map(len, second.taken)) == 3 + 2
        first.close()
        await_settled([second, third], places)
        second.close()
        await_settled([third], places)
        feed.await_more(PARTITIONS)
        await_values(everybody, feed.written)
    with Member(joining) as latecomer:
        await_values([*everybody, latecomer], feed.written)
    assert ledger.conflicts == []
    assert values_seen([*everybody, latecomer]) == Counter(feed.written)


def test_a_killed_member_is_replaced(bootstrap: str, topic: str, joining: Joining) -> None:
    places = places_of(topic, PARTITIONS)
    ledger = Ledger()
    with (
        Feed(bootstrap, topic, PARTITIONS) as feed,
        MemberProcess(replace(joining, commits_when_revoked=False)) as victim,
        Member(joining, ledger, "first") as first,
        Member(joining, ledger, "second") as second,
    ):
        await_settled([first, second, victim], places)
        wait_until(lambda: len(victim.seen) > 0)
        victim.kill()
        await_settled([first, second], places)
        feed.await_more(PARTITIONS)
        await_values([first, second], feed.written)
        assert ledger.conflicts == []


def test_a_static_member_that_returns_in_time_gets_its_partitions_back(
    bootstrap: str, topic: str, joining: Joining
) -> None:
    places = places_of(topic, PARTITIONS)
    static = replace(joining, instance_id="static")
    with Member(joining) as other, ExitStack() as stack:
        away = stack.enter_context(Member(static))
        await_settled([other, away], places)
        before, changes = away.assignment, (len(other.given), len(other.taken))
        away.close()
        back = stack.enter_context(Member(static))
        await_settled([other, back], places)
        assert back.assignment == before
        assert (len(other.given), len(other.taken)) == changes

        back.close()
        # Nobody comes back this time.
        await_settled([other], places)


def test_a_second_static_member_of_the_same_name_is_refused_while_the_first_lives(
    joining: Joining, topic: str
) -> None:
    static = replace(joining, instance_id="static")
    with Member(static) as first:
        await_settled([first], places_of(topic, PARTITIONS))
        with Member(static) as second:
            failure = second.expect_failure()
            assert isinstance(failure, confluent_kafka.KafkaException)
            assert failure.args[0].code() == confluent_kafka.KafkaError._FATAL
        assert first.assignment == places_of(topic, PARTITIONS)


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_the_broker_assigns_as_it_is_asked_to(
    assignor: str, bootstrap: str, joining: Joining
) -> None:
    topics = (new_topic(bootstrap, 3), new_topic(bootstrap, 3))
    places = places_of(topics[0], 3) | places_of(topics[1], 3)
    joining = replace(joining, topics=topics, remote_assignor=assignor)
    with Member(joining) as first, Member(joining) as second:
        await_settled([first, second], places)
        described = describe(bootstrap, joining.group)
        assert described.state == ConsumerGroupState.STABLE
        assert described.partition_assignor == assignor
        assert len(described.members) == 2

        def numbers(member: Member) -> list[tuple[int, ...]]:
            return [
                tuple(sorted(place.partition for place in member.assignment if place.topic == each))
                for each in topics
            ]

        if assignor == "range":
            # Of every topic, the same partitions go together.
            wait_until(
                lambda: sorted(map(numbers, (first, second))) == [[(0, 1), (0, 1)], [(2,), (2,)]]
            )
        else:
            wait_until(lambda: len(first.assignment) == len(second.assignment) == 3)


def test_an_assignor_that_the_broker_lacks_is_refused(joining: Joining) -> None:
    with Member(replace(joining, remote_assignor="magic")) as member:
        failure = member.expect_failure()
        assert isinstance(failure, confluent_kafka.KafkaException)
        assert "assignor" in str(failure)


@pytest.mark.slow
def test_a_pattern_finds_topics_as_they_come_and_go(bootstrap: str, joining: Joining) -> None:
    prefix = fresh("pattern")
    first = new_topic(bootstrap, 2, f"{prefix}-a")
    new_topic(bootstrap, 2, f"not-{prefix}")
    joining = replace(joining, topics=(f"^{prefix}-.*",))
    with Member(joining) as one, Member(joining) as two:
        await_settled([one, two], places_of(first, 2))
        second = new_topic(bootstrap, 2, f"{prefix}-b")
        await_settled([one, two], places_of(first, 2) | places_of(second, 2))
        write(bootstrap, second, [b"found"], 1)
        await_values([one, two], [b"found"])
        admin = admin_api.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        admin.delete_topics([first])[first].result(20)
        await_settled([one, two], places_of(second, 2))


def test_members_with_patterns_and_names_share_a_group(bootstrap: str, joining: Joining) -> None:
    prefix = fresh("shared")
    topics = [new_topic(bootstrap, 2, f"{prefix}-{letter}") for letter in "ab"]
    with (
        Member(replace(joining, topics=(f"^{prefix}-[ab]$",))) as by_pattern,
        Member(replace(joining, topics=(topics[0],))) as by_name,
    ):
        places = places_of(topics[0], 2) | places_of(topics[1], 2)
        await_settled([by_pattern, by_name], places)
        assert by_name.assignment <= places_of(topics[0], 2)
        assert by_pattern.assignment >= places_of(topics[1], 2)


def test_a_pattern_that_is_none_is_refused(joining: Joining) -> None:
    with Member(replace(joining, topics=("^(unclosed",))) as member:
        failure = member.expect_failure()
        assert isinstance(failure, confluent_kafka.KafkaException)


@pytest.mark.parametrize(
    ("library", "strategy"),
    [("confluent", "range"), ("kafka-python", "cooperative-sticky"), ("aiokafka", "roundrobin")],
)
def test_a_live_group_changes_its_protocol_and_back(
    library: str, strategy: str, bootstrap: str, topic: str, joining: Joining
) -> None:
    places = places_of(topic, PARTITIONS)
    classic = replace(joining, library=library, protocol="classic", strategy=strategy)
    ledger = Ledger()
    with Feed(bootstrap, topic, PARTITIONS) as feed, ExitStack() as stack:
        everybody: list[Member] = []
        current: list[Member] = []

        def start(how: Joining) -> None:
            member = Member(how, ledger, f"{how.protocol} {len(everybody)}")
            everybody.append(stack.enter_context(member))
            current.append(member)
            await_settled(current, places)
            feed.await_more(PARTITIONS)

        start(classic)
        start(classic)
        assert type_of(bootstrap, joining.group) == ConsumerGroupType.CLASSIC
        for how in (joining, classic):
            for _ in range(2):
                current.pop(0).close()
                start(how)
            assert type_of(bootstrap, joining.group).name == how.protocol.upper()
        await_values(everybody, feed.written)
    with Member(classic) as latecomer:
        await_values([*everybody, latecomer], feed.written)
    assert ledger.conflicts == []
    assert values_seen([*everybody, latecomer]) == Counter(feed.written)


def test_a_live_group_whose_assignor_keeps_data_of_its_own_is_not_upgraded(
    topic: str, joining: Joining
) -> None:
    """As Kafka has it. Librdkafka's cooperative-sticky assignor does so; a broker's cannot."""
    classic = replace(joining, protocol="classic", strategy="cooperative-sticky")
    with Member(classic) as first:
        await_settled([first], places_of(topic, PARTITIONS))
        with Member(classic) as second:
            await_settled([first, second], places_of(topic, PARTITIONS))
            with Member(joining) as refused:
                failure = refused.expect_failure()
                assert "ConsumerGroupHeartbeat fatal error" in str(failure)
            await_settled([first, second], places_of(topic, PARTITIONS))


@pytest.mark.parametrize("library", ["confluent", "kafka-python", "aiokafka"])
def test_members_of_both_protocols_share_a_group(
    library: str, bootstrap: str, topic: str, joining: Joining
) -> None:
    places = places_of(topic, PARTITIONS)
    classic = replace(joining, protocol="classic", library=library)
    ledger = Ledger()
    with Feed(bootstrap, topic, PARTITIONS) as feed, ExitStack() as stack:
        everybody: list[Member] = []
        for number, how in enumerate((classic, joining, classic)):
            everybody.append(stack.enter_context(Member(how, ledger, f"member {number}")))
            await_settled(everybody, places)
        assert type_of(bootstrap, joining.group) == ConsumerGroupType.CONSUMER
        assert [len(member.assignment) for member in everybody] == [2, 2, 2]
        feed.await_more(PARTITIONS)
        await_values(everybody, feed.written)
        everybody[1].close()
        await_settled([everybody[0], everybody[2]], places)
        await_values(everybody, feed.written)
    assert ledger.conflicts == []


def test_offsets_stay_when_an_empty_group_changes_its_protocol(
    bootstrap: str, topic: str, joining: Joining
) -> None:
    classic = replace(joining, protocol="classic", library="aiokafka")
    write(bootstrap, topic, [b"0", b"1", b"2"])
    for number, how in enumerate((classic, joining, classic)):
        with Member(how) as member:
            await_settled([member], places_of(topic, PARTITIONS))
            if number:
                found = member.ask(lambda consumer: consumer.committed(Place(topic, 0)))
                assert found == number + 3
            else:
                await_values([member], [b"2"])
            write(bootstrap, topic, [b"next %d" % number])
            await_values([member], [b"next %d" % number])
            assert len(member.seen) == (4 if number == 0 else 1)


def test_a_group_survives_a_killed_broker(tmp_path: Path) -> None:
    """Members go on with what they have, and none of it is given to another."""
    with BrokerProcess(tmp_path, QUICK, port=free_port()) as broker, ExitStack() as stack:
        topic = new_topic(broker.bootstrap, PARTITIONS)
        places = places_of(topic, PARTITIONS)
        joining = Joining(
            "confluent",
            broker.bootstrap,
            "group",
            (topic,),
            protocol="consumer",
            auto_commit_ms=100,
        )
        ledger = Ledger()
        classic = replace(joining, protocol="classic", library="aiokafka")
        everybody: list[Member] = []
        for number, how in enumerate((joining, joining, classic)):
            everybody.append(stack.enter_context(Member(how, ledger, f"member {number}")))
            await_settled(everybody, places)
        before = [member.assignment for member in everybody]
        for number in range(2):
            broker.kill()
            broker.start()
            values = [b"%d in %d" % (number, partition) for partition in range(PARTITIONS)]
            for partition, value in enumerate(values):
                write(broker.bootstrap, topic, [value], partition)
            await_values(everybody, values)
            assert [member.assignment for member in everybody] == before

        def committed() -> set[int | None]:
            return everybody[0].ask(
                lambda consumer: {consumer.committed(place) for place in places}
            )

        wait_until(lambda: committed() == {2})
        everybody[0].close()
        await_settled(everybody[1:], places)
        assert ledger.conflicts == []
        assert max(values_seen(everybody).values()) == 1
        assert broker.failures == []
