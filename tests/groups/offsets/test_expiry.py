"""How offsets expire, and groups with them, under virtual time."""

from __future__ import annotations

import pytest

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import GroupId
from dohle.groups.settings import GroupSettings
from dohle.protocol.messages.heartbeat import HeartbeatRequest
from tests.groups.offsets.offset_driver import DAY_MS, Member, OffsetDriver, producer

T0 = ("t", 0)
T1 = ("t", 1)
U0 = ("u", 0)
HOUR_MS = 3600 * 1000
RETENTION_MS = 2 * HOUR_MS
CHECK_MS = 10 * 60 * 1000


@pytest.fixture
def driver() -> OffsetDriver:
    return OffsetDriver(GroupSettings(offsets_retention_minutes=120))


def keep_alive(driver: OffsetDriver, member: Member, ms: int) -> None:
    """Let time pass for a member that sends its heartbeats."""
    request = HeartbeatRequest(
        group_id=GroupId(member.group_id),
        generation_id=member.generation,
        member_id=member.member_id,
    )
    for _ in range(ms // 9_000 + 1):
        driver.advance(9_000)
        driver.ask(lambda machine, ticket: machine.classic.heartbeat(request, ticket))


def test_offsets_of_a_simple_group_expire_after_their_commit(driver: OffsetDriver) -> None:
    driver.commit("g", {T0: 1, T1: 2})
    driver.advance(HOUR_MS)
    driver.commit("g", {T1: 3})

    driver.advance(RETENTION_MS - HOUR_MS - 1)
    assert driver.offsets("g") == {T0: 1, T1: 3}

    driver.advance(CHECK_MS)
    assert driver.offsets("g") == {T1: 3}
    assert driver.group_ids == {"g"}

    driver.advance(HOUR_MS)
    assert driver.offsets("g") == {}
    assert driver.group_ids == set()
    driver.restart()
    assert (driver.offsets("g"), driver.group_ids) == ({}, set())


def test_nothing_is_looked_at_before_the_interval_is_over(driver: OffsetDriver) -> None:
    driver.settings = driver.settings._replace(offsets_retention_check_interval_ms=DAY_MS)
    driver.restart()
    driver.commit("g", {T0: 1})

    driver.advance(DAY_MS - 1)
    assert driver.offsets("g") == {T0: 1}
    driver.advance(1)
    assert driver.offsets("g") == {}


def test_offsets_of_a_group_with_members_stay(driver: OffsetDriver) -> None:
    member = driver.join("g", ["t"])
    driver.commit("g", {T0: 1}, member=member)

    keep_alive(driver, member, RETENTION_MS + CHECK_MS)

    assert driver.offsets("g") == {T0: 1}


def test_offsets_of_topics_that_no_member_wants_expire(driver: OffsetDriver) -> None:
    member = driver.join("g", ["t"])
    driver.commit("g", {T0: 1, U0: 2}, member=member)

    keep_alive(driver, member, RETENTION_MS + CHECK_MS)

    assert driver.offsets("g") == {T0: 1}


def test_an_empty_group_keeps_its_offsets_for_the_retention_time(driver: OffsetDriver) -> None:
    member = driver.join("g", ["t"])
    driver.commit("g", {T0: 1}, member=member)
    keep_alive(driver, member, 3 * HOUR_MS)
    driver.leave(member)

    driver.advance(RETENTION_MS - 1)
    assert driver.offsets("g") == {T0: 1}

    driver.advance(CHECK_MS)
    assert driver.offsets("g") == {}
    assert driver.group_ids == set()
    driver.restart()
    assert driver.group_ids == set()


def test_after_a_restart_the_time_that_a_group_is_empty_goes_on(driver: OffsetDriver) -> None:
    member = driver.join("g", ["t"])
    driver.commit("g", {T0: 1}, member=member)
    keep_alive(driver, member, 3 * HOUR_MS)
    driver.leave(member)

    driver.advance(HOUR_MS)
    driver.restart()
    assert driver.offsets("g") == {T0: 1}
    driver.advance(HOUR_MS - CHECK_MS)
    assert driver.offsets("g") == {T0: 1}
    driver.advance(CHECK_MS + CHECK_MS)

    assert driver.offsets("g") == {}


def test_an_empty_group_without_offsets_goes_at_the_next_look(driver: OffsetDriver) -> None:
    driver.leave(driver.join("g", ["t"]))

    driver.advance(CHECK_MS)

    assert driver.group_ids == set()


def test_in_a_rebalance_nothing_expires() -> None:
    driver = OffsetDriver(
        GroupSettings(offsets_retention_minutes=0, offsets_retention_check_interval_ms=100)
    )
    member = driver.join("g", ["t"], sync=False)
    driver.commit_in_transaction(producer(1), "g", {U0: 5}, member=member)
    driver.end_transaction(producer(1), is_commit=True)

    driver.advance(1000)
    assert driver.offsets("g") == {U0: 5}

    driver.sync(member)
    driver.advance(100)
    assert driver.offsets("g") == {}


def test_the_time_that_a_client_named_counts_for_its_offset(driver: OffsetDriver) -> None:
    driver.commit("g", {T0: 1}, retention_ms=CHECK_MS, version=4)
    driver.commit("g", {T1: 2}, retention_ms=5 * HOUR_MS, version=4)

    driver.advance(CHECK_MS)
    assert driver.offsets("g") == {T1: 2}
    driver.advance(4 * HOUR_MS)
    assert driver.offsets("g") == {T1: 2}
    driver.advance(HOUR_MS)
    assert driver.offsets("g") == {}


def test_a_pending_offset_holds_up_expiry_of_its_partition_and_group(driver: OffsetDriver) -> None:
    driver.commit("g", {T0: 1, T1: 2})
    driver.commit_in_transaction(producer(1), "g", {T0: 5})

    driver.advance(RETENTION_MS + CHECK_MS)
    assert driver.offsets("g") == {T0: 1}
    assert driver.group_ids == {"g"}

    driver.end_transaction(producer(1), is_commit=False)
    driver.advance(CHECK_MS)
    assert driver.offsets("g") == {}
    assert driver.group_ids == set()


def test_a_group_of_which_only_aborted_offsets_are_known_goes(driver: OffsetDriver) -> None:
    driver.commit_in_transaction(producer(1), "g", {T0: 5})
    driver.advance(CHECK_MS)
    assert driver.group_ids == {"g"}

    driver.end_transaction(producer(1), is_commit=False)
    driver.advance(CHECK_MS)

    assert driver.group_ids == set()


def test_expiry_goes_on_after_the_log_has_refused_it(driver: OffsetDriver) -> None:
    driver.commit("g", {T0: 1})
    driver.append_error = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no replicas")
    driver.advance(RETENTION_MS + CHECK_MS)
    assert driver.offsets("g") == {T0: 1}

    driver.append_error = None
    driver.advance(CHECK_MS)

    assert driver.offsets("g") == {}


def test_tombstones_of_expiry_need_not_be_one_batch(driver: OffsetDriver) -> None:
    driver.commit("g", {T0: 1})
    driver.clock.advance(RETENTION_MS)

    effects = driver.machine.expire()

    assert effects is not None
    assert not effects.is_atomic
    assert len(effects.records) == 2


def test_many_offsets_expire_in_parts_and_their_group_with_the_last(driver: OffsetDriver) -> None:
    offsets = {(topic, partition): 1 for topic in ("t", "u") for partition in range(700)}
    driver.commit("g", offsets)
    driver.clock.advance(RETENTION_MS)
    parts = []
    while (effects := driver.machine.expire()) is not None:
        assert driver.group_ids == {"g"}
        parts.append(len(effects.records))
        driver.carry_out(effects)
    assert max(parts) <= 600
    assert sum(parts) == 1_401
    assert driver.group_ids == set()
    driver.assert_restart_changes_nothing()


def test_what_is_committed_between_two_parts_stays_and_its_group(driver: OffsetDriver) -> None:
    driver.commit("g", {("t", partition): 1 for partition in range(1_000)})
    driver.clock.advance(RETENTION_MS)
    first = driver.machine.expire()
    assert first is not None
    driver.carry_out(first)
    driver.commit("g", {("t", 0): 2, ("t", 999): 3})
    driver.advance(0)
    assert driver.offsets("g") == {("t", 0): 2, ("t", 999): 3}
    assert driver.group_ids == {"g"}


def test_a_member_that_comes_between_two_parts_keeps_what_is_left(driver: OffsetDriver) -> None:
    driver.commit("g", {("t", partition): 1 for partition in range(1_000)})
    driver.clock.advance(RETENTION_MS)
    first = driver.machine.expire()
    assert first is not None
    driver.carry_out(first)
    left = driver.offsets("g")
    driver.join("g", ["t"])
    driver.advance(0)
    assert 0 < len(left) < 1_000
    assert driver.offsets("g") == left
