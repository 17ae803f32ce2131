"""Offsets committed in transactions: pending until the marker, then in the order of the log."""

from __future__ import annotations

import pytest

from dohle.core.errors import ErrorCode, KafkaError
from dohle.groups.settings import GroupSettings
from tests.groups.offsets.offset_driver import OffsetDriver, producer

T0 = ("t", 0)
T1 = ("t", 1)


@pytest.fixture
def driver() -> OffsetDriver:
    return OffsetDriver()


def test_pending_offsets_count_when_the_transaction_is_committed(driver: OffsetDriver) -> None:
    assert driver.commit_in_transaction(producer(1), "g", {T0: 5, T1: 6}) == {
        T0: ErrorCode.NONE,
        T1: ErrorCode.NONE,
    }
    assert driver.offsets("g") == {}
    assert driver.group_ids == {"g"}
    driver.assert_restart_changes_nothing()

    driver.end_transaction(producer(1), is_commit=True)

    assert driver.offsets("g") == {T0: 5, T1: 6}
    driver.assert_restart_changes_nothing()


def test_pending_offsets_are_forgotten_when_the_transaction_is_aborted(
    driver: OffsetDriver,
) -> None:
    driver.commit("g", {T0: 1})
    driver.commit_in_transaction(producer(1), "g", {T0: 5, T1: 6})

    driver.end_transaction(producer(1), is_commit=False)

    assert driver.offsets("g") == {T0: 1}
    driver.assert_restart_changes_nothing()


def test_they_are_written_in_the_name_of_the_producer(driver: OffsetDriver) -> None:
    driver.commit_in_transaction(producer(7, 3), "g", {T0: 5})

    assert [stored.producer for stored in driver.log] == [producer(7, 3)]


def test_each_producer_has_its_own_pending_offsets(driver: OffsetDriver) -> None:
    driver.commit_in_transaction(producer(1), "g", {T0: 10, T1: 11})
    driver.commit_in_transaction(producer(2), "g", {T0: 20})

    driver.end_transaction(producer(1), is_commit=False)
    assert driver.offsets("g") == {}
    [topic] = driver.fetch("g", {"t": [0, 1]}, require_stable=True)
    assert [code for _, _, code in topic.partitions] == [
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.NONE,
    ]

    driver.end_transaction(producer(2), is_commit=True)
    assert driver.offsets("g") == {T0: 20}


def test_a_later_commit_outside_the_transaction_stays(driver: OffsetDriver) -> None:
    driver.commit_in_transaction(producer(1), "g", {T0: 10, T1: 11})
    driver.commit("g", {T0: 99})

    driver.end_transaction(producer(1), is_commit=True)

    assert driver.offsets("g") == {T0: 99, T1: 11}
    driver.assert_restart_changes_nothing()


def test_an_earlier_commit_outside_the_transaction_gives_way(driver: OffsetDriver) -> None:
    driver.commit("g", {T0: 99})
    driver.commit_in_transaction(producer(1), "g", {T0: 10})

    driver.end_transaction(producer(1), is_commit=True)

    assert driver.offsets("g") == {T0: 10}


def test_of_two_transactions_the_later_write_stays_whichever_ends_last(
    driver: OffsetDriver,
) -> None:
    driver.commit_in_transaction(producer(1), "g", {T0: 10})
    driver.commit_in_transaction(producer(2), "g", {T0: 20})

    driver.end_transaction(producer(2), is_commit=True)
    driver.end_transaction(producer(1), is_commit=True)

    assert driver.offsets("g") == {T0: 20}
    driver.assert_restart_changes_nothing()


def test_within_a_transaction_the_last_commit_counts(driver: OffsetDriver) -> None:
    driver.commit_in_transaction(producer(1), "g", {T0: 10})
    driver.commit_in_transaction(producer(1), "g", {T0: 4})

    driver.end_transaction(producer(1), is_commit=True)

    assert driver.offsets("g") == {T0: 4}


def test_one_transaction_may_have_offsets_of_several_groups(driver: OffsetDriver) -> None:
    driver.commit_in_transaction(producer(1), "g", {T0: 10})
    driver.commit_in_transaction(producer(1), "h", {T0: 20})

    driver.end_transaction(producer(1), is_commit=True)

    assert (driver.offsets("g"), driver.offsets("h")) == ({T0: 10}, {T0: 20})


def test_the_marker_of_a_producer_without_offsets_is_passed_over(driver: OffsetDriver) -> None:
    driver.commit("g", {T0: 1})

    driver.end_transaction(producer(9), is_commit=True)

    assert driver.offsets("g") == {T0: 1}


def test_deleting_an_offset_deletes_what_is_pending_for_it(driver: OffsetDriver) -> None:
    driver.commit_in_transaction(producer(1), "g", {T0: 10, T1: 11})
    driver.commit_in_transaction(producer(2), "g", {T0: 20})

    assert driver.delete("g", [T0]) == {T0: ErrorCode.NONE}
    driver.end_transaction(producer(1), is_commit=True)
    driver.end_transaction(producer(2), is_commit=True)

    assert driver.offsets("g") == {T1: 11}
    driver.assert_restart_changes_nothing()


def test_an_unknown_group_with_a_generation_is_refused(driver: OffsetDriver) -> None:
    with pytest.raises(KafkaError) as refused:
        driver.commit_in_transaction(producer(1), "g", {T0: 5}, generation=1)

    assert refused.value.code is ErrorCode.ILLEGAL_GENERATION


def test_members_are_checked_if_the_request_names_one(driver: OffsetDriver) -> None:
    member = driver.join("g", ["t"])
    driver.commit_in_transaction(producer(1), "g", {T0: 5}, member=member)
    # Old producers name nobody.
    driver.commit_in_transaction(producer(1), "g", {T1: 6})

    for attempt, code in [
        (member._replace(member_id="other"), ErrorCode.UNKNOWN_MEMBER_ID),
        (member._replace(generation=member.generation + 1), ErrorCode.ILLEGAL_GENERATION),
    ]:
        with pytest.raises(KafkaError) as refused:
            driver.commit_in_transaction(producer(1), "g", {T0: 7}, member=attempt)
        assert refused.value.code is code

    driver.end_transaction(producer(1), is_commit=True)
    assert driver.offsets("g") == {T0: 5, T1: 6}


def test_a_member_may_commit_in_a_transaction_while_it_awaits_its_assignment(
    driver: OffsetDriver,
) -> None:
    member = driver.join("g", ["t"], sync=False)

    assert driver.commit_in_transaction(producer(1), "g", {T0: 5}, member=member) == {
        T0: ErrorCode.NONE
    }


def test_metadata_that_is_too_long_is_refused_in_a_transaction_too() -> None:
    driver = OffsetDriver(GroupSettings(offset_metadata_max_bytes=1))

    assert driver.commit_in_transaction(producer(1), "g", {T0: 5}, metadata="ab") == {
        T0: ErrorCode.OFFSET_METADATA_TOO_LARGE
    }
    assert driver.log == []
