"""Groups by the newer protocol (KIP-848) of this project's client beside librdkafka."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tests.interop.group_consumers import Joining
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

PARTITIONS = 6


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("own-consumer-protocol")) as broker:
        yield broker.bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    return new_topic(bootstrap, PARTITIONS)


@pytest.fixture
def own(bootstrap: str, topic: str) -> Joining:
    return Joining(
        "dohle",
        bootstrap,
        fresh("group"),
        (topic,),
        protocol="consumer",
        commits_when_revoked=True,
    )


def test_a_group_of_both_clients_grows_and_shrinks_and_reads_each_record_once(
    bootstrap: str, topic: str, own: Joining
) -> None:
    places = places_of(topic, PARTITIONS)
    ledger = Ledger()
    confluent = replace(own, library="confluent")
    with Feed(bootstrap, topic, PARTITIONS) as feed, ExitStack() as stack:
        everybody: list[Member] = []
        for number, how in enumerate((own, confluent, own)):
            everybody.append(stack.enter_context(Member(how, ledger, f"member {number}")))
            await_settled(everybody, places)
            feed.await_more(PARTITIONS)
        first, second, third = everybody
        assert [len(member.assignment) for member in everybody] == [2, 2, 2]
        # Only what had to move has moved: three to the second, then two to the third.
        assert sum(map(len, first.taken)) + sum(map(len, second.taken)) == 3 + 2
        first.close()
        await_settled([second, third], places)
        second.close()
        await_settled([third], places)
        feed.await_more(PARTITIONS)
        await_values(everybody, feed.written)
    with Member(confluent) as latecomer:
        await_values([*everybody, latecomer], feed.written)
    assert ledger.conflicts == []
    assert values_seen([*everybody, latecomer]) == Counter(feed.written)


@pytest.mark.parametrize("victims_library", ["confluent", "dohle"])
def test_a_killed_member_of_either_client_is_replaced(
    victims_library: str, bootstrap: str, topic: str, own: Joining
) -> None:
    places = places_of(topic, PARTITIONS)
    ledger = Ledger()
    dying = replace(own, library=victims_library, commits_when_revoked=False)
    with (
        Feed(bootstrap, topic, PARTITIONS) as feed,
        MemberProcess(dying) as victim,
        Member(own, ledger, "first") as first,
        Member(replace(own, library="confluent"), ledger, "second") as second,
    ):
        await_settled([first, second, victim], places)
        wait_until(lambda: len(victim.seen) > 0)
        victim.kill()
        await_settled([first, second], places)
        feed.await_more(PARTITIONS)
        await_values([first, second], feed.written)
        assert ledger.conflicts == []


def test_a_static_member_comes_back_as_the_other_client(topic: str, own: Joining) -> None:
    places = places_of(topic, PARTITIONS)
    with Member(own) as other, ExitStack() as stack:
        before = None
        for library in ("dohle", "confluent", "dohle"):
            static = replace(own, library=library, instance_id="static")
            away = stack.enter_context(Member(static))
            await_settled([other, away], places)
            assert before in (None, away.assignment)
            before, changes = away.assignment, (len(other.given), len(other.taken))
            away.close()
        assert (len(other.given), len(other.taken)) == changes


def test_a_live_group_changes_its_protocol_and_back(
    bootstrap: str, topic: str, own: Joining
) -> None:
    places = places_of(topic, PARTITIONS)
    classic = replace(own, protocol="classic", strategy="range")
    ledger = Ledger()
    with Feed(bootstrap, topic, PARTITIONS) as feed, ExitStack() as stack:
        everybody: list[Member] = []
        current: list[Member] = []
        for how in (classic, classic, own, own, classic):
            if len(current) == 2:
                current.pop(0).close()
            member = Member(how, ledger, f"{how.protocol} {len(everybody)}")
            everybody.append(stack.enter_context(member))
            current.append(member)
            await_settled(current, places)
            feed.await_more(PARTITIONS)
        await_values(everybody, feed.written)
    with Member(own) as latecomer:
        await_values([*everybody, latecomer], feed.written)
    assert ledger.conflicts == []
    assert values_seen([*everybody, latecomer]) == Counter(feed.written)


def test_members_with_patterns_of_both_clients_share_a_group(bootstrap: str, own: Joining) -> None:
    prefix = fresh("patterns")
    topics = [new_topic(bootstrap, 2, f"{prefix}-{letter}") for letter in "ab"]
    by_pattern = replace(own, topics=(f"^{prefix}-[ab]$",))
    with (
        Member(by_pattern) as one,
        Member(replace(by_pattern, library="confluent")) as two,
    ):
        await_settled([one, two], places_of(topics[0], 2) | places_of(topics[1], 2))


def test_members_of_both_clients_survive_a_killed_broker(tmp_path: Path) -> None:
    """They go on with what they have, and none of it is given to another."""
    with BrokerProcess(tmp_path, QUICK, port=free_port()) as broker, ExitStack() as stack:
        topic = new_topic(broker.bootstrap, PARTITIONS)
        places = places_of(topic, PARTITIONS)
        own = Joining(
            "dohle", broker.bootstrap, "group", (topic,), protocol="consumer", auto_commit_ms=100
        )
        ledger = Ledger()
        everybody: list[Member] = []
        for number, how in enumerate((own, replace(own, library="confluent"), own)):
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
        everybody[0].close()
        await_settled(everybody[1:], places)
        assert ledger.conflicts == []
        assert broker.failures == []
