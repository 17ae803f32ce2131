"""Deleting offsets: by request, with their topic, and with their group."""

from __future__ import annotations

import pytest

from dohle.coordination.effects import Ticket
from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.steps import finish
from tests.groups.classic.commands import delete_group
from tests.groups.offsets.offset_driver import OffsetDriver, producer

T0 = ("t", 0)
T1 = ("t", 1)
U0 = ("u", 0)


@pytest.fixture
def driver() -> OffsetDriver:
    return OffsetDriver()


def test_an_offset_can_be_deleted(driver: OffsetDriver) -> None:
    driver.commit("g", {T0: 1, T1: 2, U0: 3})

    assert driver.delete("g", [T0, U0]) == {T0: ErrorCode.NONE, U0: ErrorCode.NONE}

    assert driver.offsets("g") == {T1: 2}
    driver.assert_restart_changes_nothing()


def test_deleting_what_is_not_there_writes_nothing(driver: OffsetDriver) -> None:
    driver.commit("g", {T0: 1})
    written = len(driver.log)

    assert driver.delete("g", [T1, U0]) == {T1: ErrorCode.NONE, U0: ErrorCode.NONE}

    assert len(driver.log) == written


def test_an_unknown_group_has_nothing_to_delete(driver: OffsetDriver) -> None:
    with pytest.raises(KafkaError) as refused:
        driver.delete("g", [T0])

    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_of_subscribed_topics_stay(driver: OffsetDriver) -> None:
    member = driver.join("g", ["t"])
    driver.commit("g", {T0: 1, U0: 2}, member=member)

    assert driver.delete("g", [T0, U0]) == {
        T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        U0: ErrorCode.NONE,
    }

    assert driver.offsets("g") == {T0: 1}


def test_when_everybody_has_left_all_can_be_deleted(driver: OffsetDriver) -> None:
    member = driver.join("g", ["t"])
    driver.commit("g", {T0: 1}, member=member)
    driver.leave(member)

    assert driver.delete("g", [T0]) == {T0: ErrorCode.NONE}
    assert driver.offsets("g") == {}


def test_a_group_of_others_than_consumers_must_be_empty(driver: OffsetDriver) -> None:
    member = driver.join("g", protocol_type="connect")
    driver.commit("g", {T0: 1}, member=member)

    with pytest.raises(KafkaError) as refused:
        driver.delete("g", [T0])

    assert refused.value.code is ErrorCode.NON_EMPTY_GROUP


def test_offsets_go_with_their_topic(driver: OffsetDriver) -> None:
    member = driver.join("g", ["t"])
    driver.commit("g", {T0: 1, U0: 2}, member=member)
    driver.commit("h", {T0: 3, T1: 4})
    driver.commit_in_transaction(producer(1), "h", {T1: 5, ("t", 2): 6, U0: 7})

    before = len(driver.log)
    driver.delete_topics({"t", "other"})
    driver.advance(0)

    assert len(driver.log) - before == 4
    assert (driver.offsets("g"), driver.offsets("h")) == ({U0: 2}, {})
    driver.end_transaction(producer(1), is_commit=True)
    assert driver.offsets("h") == {U0: 7}
    driver.assert_restart_changes_nothing()


def test_deleting_a_topic_without_offsets_writes_nothing(driver: OffsetDriver) -> None:
    driver.commit("g", {T0: 1})

    before = len(driver.log)
    driver.delete_topics({"other"})
    driver.delete_topics(set())
    driver.advance(0)
    assert len(driver.log) == before


def test_offsets_of_a_new_topic_of_the_same_name_stay(driver: OffsetDriver) -> None:
    """The old ones are deleted a little later than the topic."""
    driver.commit("g", {T0: 1, T1: 2, U0: 3})
    driver.delete_topics({"t"})
    driver.commit("g", {T1: 20})
    driver.commit_in_transaction(producer(1), "g", {T0: 10})
    driver.end_transaction(producer(1), is_commit=True)
    driver.advance(0)
    assert driver.offsets("g") == {T0: 10, T1: 20, U0: 3}
    driver.assert_restart_changes_nothing()


def test_many_offsets_of_a_topic_are_deleted_in_parts(driver: OffsetDriver) -> None:
    for number in range(3):
        offsets = {("t", partition): partition for partition in range(700)}
        driver.commit(f"g{number}", {**offsets, U0: 1})
    driver.delete_topics({"t"})
    parts = []
    while (effects := driver.machine.expire()) is not None:
        parts.append(len(effects.records))
        driver.carry_out(effects)
    assert max(parts) <= 500
    assert sum(parts) == 2_100
    assert [driver.offsets(f"g{number}") for number in range(3)] == [{U0: 1}] * 3


def test_all_offsets_of_a_group_go_with_it(driver: OffsetDriver) -> None:
    driver.commit("g", {T0: 1, U0: 2})
    driver.commit_in_transaction(producer(1), "g", {T0: 5, T1: 6})
    driver.commit("h", {T0: 3})
    before = len(driver.log)
    driver.ask(lambda machine, ticket: delete_group(machine, "g", ticket))
    assert len(driver.log) - before == 4

    driver.end_transaction(producer(1), is_commit=True)
    assert (driver.offsets("g"), driver.offsets("h")) == ({}, {T0: 3})
    assert driver.group_ids == {"h"}
    driver.assert_restart_changes_nothing()


def test_what_was_committed_since_the_deletion_of_a_group_began_goes_too(
    driver: OffsetDriver,
) -> None:
    offsets = {(topic, partition): 1 for topic in ("t", "u") for partition in range(1_200)}
    driver.commit("g", offsets)
    prepared = finish(driver.machine.prepare_deletion("g"))
    driver.commit("g", {("t", 3): 4, ("t", 5_000): 1, ("new", 0): 2})
    driver.commit_in_transaction(producer(1), "g", {("t", 5_000): 3, ("new", 1): 3})
    driver.delete("g", [("u", 0)])
    effects = driver.machine.delete_group(prepared, Ticket(1))
    assert all(batch.builder.record_count < 1_000 for batch in effects.prepared)
    assert len(effects.records) == 4
    driver.carry_out(effects)
    driver.end_transaction(producer(1), is_commit=True)
    assert (driver.offsets("g"), driver.group_ids) == ({}, set())
    driver.assert_restart_changes_nothing()
