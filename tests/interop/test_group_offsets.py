"""Offsets of groups: committed in every way each client has, and found again by the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

from tests.interop.group_consumers import (
    LIBRARIES,
    GroupConsumer,
    Joining,
    NoOffset,
    Place,
    Seen,
    joined,
)
from tests.interop.members import (
    Member,
    MemberProcess,
    Owner,
    await_settled,
    await_values,
    places_of,
    values_seen,
)
from tests.interop.process import BrokerProcess
from tests.interop.quick_broker import QUICK, fresh, new_topic, serving, write
from tests.interop.waiting import wait_until
from tests.ports import free_port

RECORDS = 10
VALUES = [b"%d" % number for number in range(RECORDS)]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("offsets")) as broker:
        yield broker.bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = new_topic(bootstrap)
    write(bootstrap, name, VALUES)
    return name


@pytest.fixture(params=LIBRARIES)
def joining(request: pytest.FixtureRequest, bootstrap: str, topic: str) -> Joining:
    return Joining(request.param, bootstrap, fresh("group"), (topic,))


def read(consumer: GroupConsumer, count: int) -> list[Seen]:
    """Read at least so many records."""
    found: list[Seen] = []

    def are_enough() -> bool:
        found.extend(consumer.poll())
        return len(found) >= count

    wait_until(are_enough)
    return found


def offsets(found: list[Seen]) -> list[int]:
    return [seen.offset for seen in found]


def committed(joining: Joining, place: Place) -> int | None:
    """Ask as somebody who is new to the group."""
    with closing(joined(joining)) as consumer:
        return consumer.committed(place)


def test_offsets_committed_one_by_one_and_all_together(joining: Joining, topic: str) -> None:
    place = Place(topic, 0)
    with closing(joined(joining)) as consumer:
        assert consumer.committed(place) is None
        assert offsets(read(consumer, RECORDS)) == list(range(RECORDS))
        consumer.commit({place: 4})
        assert consumer.committed(place) == 4
        consumer.commit()
        assert consumer.committed(place) == RECORDS
        # Back again: a group may commit whatever it likes.
        consumer.commit({place: 7})
    with closing(joined(joining)) as consumer:
        assert offsets(read(consumer, 3)) == [7, 8, 9]


def test_an_offset_committed_without_waiting_arrives(joining: Joining, topic: str) -> None:
    reports: list[object] = []
    with closing(joined(joining)) as consumer:
        read(consumer, RECORDS)
        consumer.commit_async(reports.append)

        def is_reported() -> bool:
            consumer.poll()
            return len(reports) == 1

        wait_until(is_reported)
    assert reports == [None]
    assert committed(joining, Place(topic, 0)) == RECORDS


def test_offsets_are_committed_by_themselves_now_and_then(joining: Joining, topic: str) -> None:
    joining = replace(joining, auto_commit_ms=100)
    with closing(joined(joining)) as consumer:
        read(consumer, RECORDS)

        def is_committed() -> bool:
            consumer.poll()
            return consumer.committed(Place(topic, 0)) == RECORDS

        wait_until(is_committed)


def test_offsets_are_committed_by_themselves_at_the_end(joining: Joining, topic: str) -> None:
    with closing(joined(replace(joining, auto_commit_ms=1_000_000))) as consumer:
        read(consumer, RECORDS)
        assert consumer.committed(Place(topic, 0)) is None
    assert committed(joining, Place(topic, 0)) == RECORDS


def test_a_group_without_offsets_begins_at_the_first_record(joining: Joining) -> None:
    with closing(joined(replace(joining, reset="earliest"))) as consumer:
        assert offsets(read(consumer, RECORDS)) == list(range(RECORDS))


def test_a_group_without_offsets_begins_behind_the_last_record(
    joining: Joining, bootstrap: str, topic: str
) -> None:
    with closing(joined(replace(joining, reset="latest"))) as consumer:

        def is_at_the_end() -> bool:
            assert consumer.poll() == []
            return bool(consumer.assignment()) and consumer.position(Place(topic, 0)) == RECORDS

        if joining.library == "confluent":
            # Librdkafka's position is what was read; it knows none before the first record.
            read_the_next(consumer, bootstrap, topic)
            return
        wait_until(is_at_the_end)
        write(bootstrap, topic, [b"new"])
        assert offsets(read(consumer, 1)) == [RECORDS]


def read_the_next(consumer: GroupConsumer, bootstrap: str, topic: str) -> None:
    """Write until something is read; it must be one of the new ones."""
    found: list[Seen] = []

    def has_arrived() -> bool:
        write(bootstrap, topic, [b"new"])
        found.extend(consumer.poll())
        return bool(found)

    wait_until(has_arrived)
    assert found[0].offset >= RECORDS
    assert found[0].value == b"new"


def test_a_group_without_offsets_may_refuse_to_begin(joining: Joining) -> None:
    with closing(joined(replace(joining, reset="none"))) as consumer, pytest.raises(NoOffset):
        read(consumer, 1)


def test_an_offset_that_is_gone_is_reset(joining: Joining, topic: str) -> None:
    with closing(joined(joining)) as consumer:
        read(consumer, RECORDS)
        consumer.commit({Place(topic, 0): 1_000})
    with closing(joined(joining)) as consumer:
        assert offsets(read(consumer, RECORDS)) == list(range(RECORDS))


def test_a_member_reads_where_it_is_told_to(joining: Joining, topic: str) -> None:
    place = Place(topic, 0)
    with closing(joined(joining)) as consumer:
        read(consumer, RECORDS)
        consumer.seek(place, 3)
        assert offsets(read(consumer, RECORDS - 3)) == list(range(3, RECORDS))
        assert consumer.position(place) == RECORDS


def test_a_member_that_pauses_stays_a_member(joining: Joining, bootstrap: str, topic: str) -> None:
    place = Place(topic, 0)
    other = new_topic(bootstrap)
    both = replace(joining, topics=(topic, other), session_timeout_ms=1_000)
    with closing(joined(both)) as consumer:
        read(consumer, RECORDS)
        consumer.pause([place])
        write(bootstrap, topic, [b"unread"])
        for number in range(20):
            write(bootstrap, other, [b"%d" % number])
            assert [seen.place for seen in read(consumer, 1)] == [Place(other, 0)]
        assert consumer.assignment() == {place, Place(other, 0)}
        consumer.resume([place])
        assert read(consumer, 1) == [Seen(place, RECORDS, b"unread")]


def test_an_offset_committed_by_one_client_is_found_by_the_others(
    bootstrap: str, topic: str
) -> None:
    place = Place(topic, 0)
    for number, (writing, reading) in enumerate(permutations(LIBRARIES, 2)):
        group = fresh("group")
        with closing(joined(Joining(writing, bootstrap, group, (topic,)))) as consumer:
            read(consumer, RECORDS)
            consumer.commit({place: number + 1})
        with closing(joined(Joining(reading, bootstrap, group, (topic,)))) as consumer:
            assert consumer.committed(place) == number + 1
            assert offsets(read(consumer, 1))[0] == number + 1


@pytest.mark.slow
def test_groups_survive_a_killed_broker(tmp_path: Path) -> None:
    """Members go on with what they have, and what was committed stays committed."""
    with BrokerProcess(tmp_path, QUICK, port=free_port()) as broker, ExitStack() as stack:
        topic = new_topic(broker.bootstrap, 6)
        places = places_of(topic, 6)
        everybody: list[Owner] = []
        for library in LIBRARIES:
            joining = Joining(library, broker.bootstrap, "group", (topic,), auto_commit_ms=100)
            # kafka-python forgets sockets whenever a connection is refused: not in this process.
            if library == "kafka-python":
                everybody.append(stack.enter_context(MemberProcess(joining)))
            else:
                everybody.append(stack.enter_context(Member(joining)))
            await_settled(everybody, places)
        before = [(member.assignment, member.assignments) for member in everybody]
        asking = everybody[0]
        assert isinstance(asking, Member)

        def committed() -> dict[Place, int | None]:
            return asking.ask(
                lambda consumer: {place: consumer.committed(place) for place in places}
            )

        def await_committed(offsets: dict[Place, int]) -> None:
            wait_until(lambda: committed() == offsets)

        for number in range(1, 4):
            for partition in range(6):
                value = b"%d in %d" % (number, partition)
                write(broker.bootstrap, topic, [value], partition)
            await_committed(dict.fromkeys(places, number))
            broker.kill()
            broker.start()
            assert committed() == dict.fromkeys(places, number)
            assert [(member.assignment, member.assignments) for member in everybody] == before
        await_values(everybody, [b"3 in %d" % partition for partition in range(6)])
        assert values_seen(everybody) == Counter(
            b"%d in %d" % (number, partition) for number in range(1, 4) for partition in range(6)
        )
