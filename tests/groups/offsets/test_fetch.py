"""Fetching offsets: what is there, what is not, and what is not stable yet."""

from __future__ import annotations

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import Uuid
from dohle.core.steps import finish
from tests.groups.offsets.offset_driver import OffsetDriver, producer

NONE = ErrorCode.NONE
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


@pytest.fixture
def driver() -> OffsetDriver:
    return OffsetDriver()


def found(
    driver: OffsetDriver, *, require_stable: bool = False, topics: dict[str, list[int]] | None
) -> list[tuple[str, int, int, ErrorCode]]:
    return [
        (topic.name, partition, offset.offset, code)
        for topic in driver.fetch("g", topics, require_stable=require_stable)
        for partition, offset, code in topic.partitions
    ]


def test_what_was_never_committed_is_offset_minus_one(driver: OffsetDriver) -> None:
    driver.commit("g", {("t", 0): 5}, metadata="m", leader_epoch=2)

    [topic] = driver.fetch("g", {"t": [0, 1]})
    [(_, known, code_known), (_, unknown, code_unknown)] = topic.partitions
    assert (known.offset, known.leader_epoch, known.metadata) == (5, 2, "m")
    assert (unknown.offset, unknown.leader_epoch, unknown.metadata) == (-1, -1, "")
    assert (code_known, code_unknown) == (NONE, NONE)


def test_an_unknown_group_has_no_offsets_and_no_error(driver: OffsetDriver) -> None:
    assert found(driver, topics={"t": [0]}) == [("t", 0, -1, NONE)]
    assert found(driver, topics=None) == []


def test_all_topics_can_be_asked_for(driver: OffsetDriver) -> None:
    driver.commit("g", {("t", 0): 5, ("t", 3): 6, ("u", 0): 7})
    driver.commit("other", {("v", 0): 9})

    assert found(driver, topics=None) == [
        ("t", 0, 5, NONE),
        ("t", 3, 6, NONE),
        ("u", 0, 7, NONE),
    ]


def test_a_pending_offset_makes_its_partition_unstable(driver: OffsetDriver) -> None:
    driver.commit("g", {("t", 0): 5, ("t", 1): 6})
    driver.commit_in_transaction(producer(1), "g", {("t", 0): 50, ("t", 2): 60})

    assert found(driver, topics={"t": [0, 1, 2]}) == [
        ("t", 0, 5, NONE),
        ("t", 1, 6, NONE),
        ("t", 2, -1, NONE),
    ]
    assert found(driver, topics={"t": [0, 1, 2]}, require_stable=True) == [
        ("t", 0, -1, UNSTABLE),
        ("t", 1, 6, NONE),
        ("t", 2, -1, UNSTABLE),
    ]
    assert found(driver, topics=None, require_stable=True) == [
        ("t", 0, -1, UNSTABLE),
        ("t", 1, 6, NONE),
    ]

    driver.end_transaction(producer(1), is_commit=True)
    assert found(driver, topics={"t": [0, 1, 2]}, require_stable=True) == [
        ("t", 0, 50, NONE),
        ("t", 1, 6, NONE),
        ("t", 2, 60, NONE),
    ]


def test_an_offset_of_an_earlier_topic_of_that_name_does_not_count(driver: OffsetDriver) -> None:
    first, second = Uuid(b"1" * 16), Uuid(b"2" * 16)
    driver.commit("g", {("t", 0): 5}, topic_id=first)
    driver.commit("g", {("u", 0): 6})

    def fetched(topic: str, topic_id: Uuid) -> int:
        [answer] = driver.fetch("g", {topic: [0]}, topic_id=topic_id)
        return answer.partitions[0][1].offset

    assert fetched("t", first) == 5
    assert fetched("t", second) == -1
    # Committed without an id: it counts for any.
    assert fetched("u", second) == 6
    driver.assert_restart_changes_nothing()
    # Asked for by name: whatever it is.
    assert driver.offsets("g") == {("t", 0): 5, ("u", 0): 6}


def test_all_offsets_are_fetched_in_steps_each_as_it_is_then(driver: OffsetDriver) -> None:
    many = {("many", partition): partition for partition in range(1_200)}
    driver.commit("g", {("a", 0): 1, **many, ("z", 0): 2})
    steps = driver.machine.offsets.reader.fetch_all("g", None, -1, require_stable=False)
    next(steps)
    next(steps)
    driver.delete("g", [("many", 3), ("many", 700), ("z", 0)])
    driver.commit("g", {("a", 0): 10, ("many", 900): 5})
    found = {
        (topic.name, partition): offset.offset
        for topic in finish(steps)
        for partition, offset, _ in topic.partitions
    }
    del many["many", 700]
    assert found == {("a", 0): 1, **many, ("many", 900): 5}
