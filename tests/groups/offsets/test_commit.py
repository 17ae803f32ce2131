"""Committing offsets: who may, what is written, and what is found again."""

from __future__ import annotations

import pytest

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import Uuid
from dohle.core.uuid import ZERO_UUID
from dohle.groups.settings import GroupSettings
from dohle.protocol.messages.records.classic_group import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from dohle.protocol.record_framing import CoordinatorRecord
from tests.groups.offsets.offset_driver import OffsetDriver

T0 = ("t", 0)
T1 = ("t", 1)


@pytest.fixture
def driver() -> OffsetDriver:
    return OffsetDriver()


def test_a_commit_without_a_generation_makes_a_simple_group(driver: OffsetDriver) -> None:
    assert driver.commit("g", {T0: 5, T1: 7}) == {T0: ErrorCode.NONE, T1: ErrorCode.NONE}

    assert driver.offsets("g") == {T0: 5, T1: 7}
    group = driver.machine.context.groups["g"]
    assert group.state_name == "Empty"
    assert not group.uses_group_management
    driver.assert_restart_changes_nothing()
    assert driver.group_ids == {"g"}


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (2, ErrorCode.ILLEGAL_GENERATION),
        (8, ErrorCode.ILLEGAL_GENERATION),
        (9, ErrorCode.GROUP_ID_NOT_FOUND),
        (10, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_a_commit_with_a_generation_of_an_unknown_group_is_refused(
    driver: OffsetDriver, version: int, code: ErrorCode
) -> None:
    with pytest.raises(KafkaError) as refused:
        driver.commit("g", {T0: 5}, generation=0, version=version)

    assert refused.value.code is code
    assert driver.group_ids == set()


def test_only_members_commit_in_a_group_that_has_some(driver: OffsetDriver) -> None:
    member = driver.join("g", ["t"])

    assert driver.commit("g", {T0: 5}, member=member) == {T0: ErrorCode.NONE}

    for attempt, code in [
        (None, ErrorCode.UNKNOWN_MEMBER_ID),
        (member._replace(member_id="other"), ErrorCode.UNKNOWN_MEMBER_ID),
        (member._replace(generation=9), ErrorCode.ILLEGAL_GENERATION),
    ]:
        with pytest.raises(KafkaError) as refused:
            driver.commit("g", {T0: 6}, member=attempt)
        assert refused.value.code is code
    assert driver.offsets("g") == {T0: 5}


def test_a_member_that_awaits_its_assignment_cannot_commit(driver: OffsetDriver) -> None:
    member = driver.join("g", ["t"], sync=False)

    with pytest.raises(KafkaError) as refused:
        driver.commit("g", {T0: 5}, member=member)

    assert refused.value.code is ErrorCode.REBALANCE_IN_PROGRESS


def test_when_all_members_have_left_a_commit_needs_no_generation(driver: OffsetDriver) -> None:
    driver.leave(driver.join("g", ["t"]))

    driver.commit("g", {T0: 3})

    assert driver.offsets("g") == {T0: 3}


def test_a_commit_is_a_sign_of_life(driver: OffsetDriver) -> None:
    member = driver.join("g", ["t"])

    for _ in range(5):
        driver.advance(9_000)
        driver.commit("g", {T0: 1}, member=member)
    assert not driver.machine.context.groups["g"].is_empty

    driver.advance(10_000)
    assert driver.machine.context.groups["g"].is_empty


def test_metadata_that_is_too_long_refuses_its_partition_alone() -> None:
    driver = OffsetDriver(GroupSettings(offset_metadata_max_bytes=4))

    assert driver.commit("g", {T0: 5}, metadata="long!") == {
        T0: ErrorCode.OFFSET_METADATA_TOO_LARGE
    }
    assert driver.log == []
    assert driver.group_ids == set()

    assert driver.commit("g", {T0: 5}, metadata="four") == {T0: ErrorCode.NONE}
    assert driver.committed("g", *T0).metadata == "four"


def test_metadata_is_counted_in_utf_16_units() -> None:
    driver = OffsetDriver(GroupSettings(offset_metadata_max_bytes=4))

    assert driver.commit("g", {T0: 5}, metadata="\N{PARTY POPPER}ab") == {T0: ErrorCode.NONE}
    assert driver.commit("g", {T0: 5}, metadata="\N{PARTY POPPER}abc") == {
        T0: ErrorCode.OFFSET_METADATA_TOO_LARGE
    }


def test_no_metadata_is_stored_as_empty(driver: OffsetDriver) -> None:
    driver.commit("g", {T0: 5}, metadata=None)

    assert driver.committed("g", *T0).metadata == ""


def test_a_commit_writes_what_kafka_writes(driver: OffsetDriver) -> None:
    topic_id = Uuid(bytes(range(16)))

    driver.commit("g", {T0: 5}, metadata="m", leader_epoch=3, topic_id=topic_id)

    [stored] = driver.log
    assert stored.producer is None
    assert stored.record == CoordinatorRecord(
        OffsetCommitKey(group="g", topic="t", partition=0),
        OffsetCommitValue(
            offset=5,
            leader_epoch=3,
            metadata="m",
            commit_timestamp=driver.clock.now_ms(),
            topic_id=topic_id,
        ),
        4,
    )


def test_a_retention_time_is_written_as_the_time_of_expiry(driver: OffsetDriver) -> None:
    driver.commit("g", {T0: 5}, retention_ms=60_000, version=4)

    [stored] = driver.log
    assert stored.record is not None
    assert stored.record.value_version == 1
    expire_ms = driver.clock.now_ms() + 60_000
    assert driver.committed("g", *T0).expire_timestamp_ms == expire_ms
    driver.assert_restart_changes_nothing()


def test_a_retention_time_without_an_end_is_kept_as_long_as_can_be(driver: OffsetDriver) -> None:
    longest = 2**63 - 1
    assert driver.commit("g", {T0: 5}, retention_ms=longest, version=4) == {T0: ErrorCode.NONE}
    assert driver.committed("g", *T0).expire_timestamp_ms == longest
    driver.assert_restart_changes_nothing()


def test_an_offset_may_go_back_if_that_is_committed(driver: OffsetDriver) -> None:
    driver.commit("g", {T0: 50})
    driver.commit("g", {T0: 2})

    assert driver.offsets("g") == {T0: 2}


def test_a_commit_that_the_log_refuses_changes_nothing(driver: OffsetDriver) -> None:
    driver.commit("g", {T0: 5})
    driver.append_error = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no replicas")

    with pytest.raises(KafkaError):
        driver.commit("g", {T0: 6})
    with pytest.raises(KafkaError):
        driver.commit("new", {T0: 6})

    assert driver.offsets("g") == {T0: 5}
    assert driver.group_ids == {"g"}


def test_offsets_of_the_oldest_format_are_read(driver: OffsetDriver) -> None:
    driver.machine.replay(
        CoordinatorRecord(
            LegacyOffsetCommitKey(group="g", topic="t", partition=0),
            LegacyOffsetCommitValue(offset=8, metadata="m", commit_timestamp=3),
            0,
        ),
        None,
    )

    found = driver.committed("g", *T0)
    assert (found.offset, found.leader_epoch, found.metadata) == (8, -1, "m")
    assert (found.commit_timestamp_ms, found.topic_id) == (3, ZERO_UUID)
    driver.machine.replay(
        CoordinatorRecord(LegacyOffsetCommitKey(group="g", topic="t", partition=0)), None
    )
    assert driver.offsets("g") == {}


def test_a_group_record_after_its_offsets_takes_the_place_of_the_simple_group(
    driver: OffsetDriver,
) -> None:
    member = driver.join("g", ["t"])
    driver.commit("g", {T0: 5}, member=member)
    # What compaction may leave: the offset first, then the group.
    driver.log.sort(key=lambda stored: stored.record.key.RECORD_TYPE if stored.record else 0)

    driver.restart()

    assert driver.offsets("g") == {T0: 5}
    assert driver.commit("g", {T0: 6}, member=member) == {T0: ErrorCode.NONE}
