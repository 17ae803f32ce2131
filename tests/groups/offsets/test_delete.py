"""Deleting offsets: by request, with their topic, and with their group."""

from __future__ import annotations

import pytest

from dohle.core.errors import ErrorCode, KafkaError
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

    effects = driver.machine.offsets.on_topics_deleted({"t", "other"})
    assert not effects.is_atomic
    assert len(effects.records) == 4
    driver.carry_out(effects)

    assert (driver.offsets("g"), driver.offsets("h")) == ({U0: 2}, {})
    driver.end_transaction(producer(1), is_commit=True)
    assert driver.offsets("h") == {U0: 7}
    driver.assert_restart_changes_nothing()


def test_deleting_a_topic_without_offsets_writes_nothing(driver: OffsetDriver) -> None:
    driver.commit("g", {T0: 1})

    assert driver.machine.offsets.on_topics_deleted({"other"}).records == []
    assert driver.machine.offsets.on_topics_deleted(set()).records == []


def test_the_tombstones_of_a_group_are_of_all_its_offsets(driver: OffsetDriver) -> None:
    driver.commit("g", {T0: 1, U0: 2})
    driver.commit_in_transaction(producer(1), "g", {T0: 5, T1: 6})
    driver.commit("h", {T0: 3})

    records = driver.machine.offsets.tombstones_of_group("g")
    assert len(records) == 3
    for record in records:
        driver.machine.replay(record, None)
    driver.end_transaction(producer(1), is_commit=True)

    assert (driver.offsets("g"), driver.offsets("h")) == ({}, {T0: 3})
    assert driver.machine.offsets.tombstones_of_group("nobody") == []
