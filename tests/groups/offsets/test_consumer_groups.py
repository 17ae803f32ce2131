"""Offsets of groups that follow the consumer protocol (KIP-848): members and their epochs."""

from __future__ import annotations

import pytest

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import GroupId, TopicName
from dohle.core.steps import finish
from dohle.groups.consumer.report import report_of
from dohle.groups.group import Caller, GroupType
from dohle.groups.settings import GroupSettings
from dohle.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.groups.offsets.offset_driver import Member, OffsetDriver, producer

T0 = ("t", 0)
U0 = ("u", 0)
HOUR_MS = 3600 * 1000
CHECK_MS = 10 * 60 * 1000
LEAVES = -1


@pytest.fixture
def driver() -> OffsetDriver:
    return OffsetDriver(GroupSettings(offsets_retention_minutes=120))


def heartbeat(driver: OffsetDriver, member: Member, epoch: int, *topics: str) -> Member:
    """Send a heartbeat of a member; ``generation`` is its epoch then."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=GroupId(member.group_id),
        member_id=member.member_id,
        member_epoch=epoch,
        rebalance_timeout_ms=30_000 if topics else -1,
        subscribed_topic_names=tuple(TopicName(topic) for topic in topics) or None,
        topic_partitions=() if epoch == 0 else None,
    )
    report = finish(report_of(request))
    answer = driver.ask(
        lambda machine, ticket: machine.consumer.heartbeat(
            request, report, ticket, Caller("client", "/127.0.0.1", 1)
        )
    )
    assert answer.error_code == ErrorCode.NONE, answer
    return member._replace(generation=answer.member_epoch)


def join(driver: OffsetDriver, *topics: str) -> Member:
    return heartbeat(driver, Member("g", "member-1", 0), 0, *topics)


def keep_alive(driver: OffsetDriver, member: Member, ms: int) -> None:
    for _ in range(ms // 30_000 + 1):
        driver.advance(30_000)
        heartbeat(driver, member, member.generation)


def test_a_member_commits_in_its_epoch(driver: OffsetDriver) -> None:
    member = join(driver, "t")

    assert driver.commit("g", {T0: 5}, member=member) == {T0: ErrorCode.NONE}

    for attempt, version, code in [
        (member._replace(generation=member.generation - 1), 9, ErrorCode.STALE_MEMBER_EPOCH),
        (member._replace(generation=member.generation + 1), 9, ErrorCode.STALE_MEMBER_EPOCH),
        (member._replace(member_id="other"), 9, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 9, ErrorCode.UNKNOWN_MEMBER_ID),
        (member, 8, ErrorCode.UNSUPPORTED_VERSION),
    ]:
        with pytest.raises(KafkaError) as refused:
            driver.commit("g", {T0: 6}, member=attempt, version=version)
        assert refused.value.code is code
    assert driver.offsets("g") == {T0: 5}
    driver.assert_restart_changes_nothing()


def test_a_producer_is_told_of_a_stale_epoch_as_of_a_generation(driver: OffsetDriver) -> None:
    member = join(driver, "t")
    driver.commit_in_transaction(producer(1), "g", {T0: 5}, member=member)

    stale = member._replace(generation=member.generation + 1)
    with pytest.raises(KafkaError) as refused:
        driver.commit_in_transaction(producer(1), "g", {T0: 6}, member=stale)

    assert refused.value.code is ErrorCode.ILLEGAL_GENERATION


def test_a_fetch_that_names_a_member_must_name_its_epoch(driver: OffsetDriver) -> None:
    member = join(driver, "t")
    driver.commit("g", {T0: 5}, member=member)

    for member_id, epoch in [(None, -1), (member.member_id, member.generation)]:
        [found] = driver.fetch("g", {"t": [0]}, member_id=member_id, member_epoch=epoch)
        assert found.partitions[0][1].offset == 5
    for member_id, epoch, code in [
        (member.member_id, member.generation + 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("other", member.generation, ErrorCode.UNKNOWN_MEMBER_ID),
    ]:
        with pytest.raises(KafkaError) as refused:
            driver.fetch("g", {"t": [0]}, member_id=member_id, member_epoch=epoch)
        assert refused.value.code is code


def test_offsets_of_subscribed_topics_cannot_be_deleted(driver: OffsetDriver) -> None:
    member = join(driver, "t")
    driver.commit("g", {T0: 5, U0: 6}, member=member)

    assert driver.delete("g", [T0, U0]) == {
        T0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        U0: ErrorCode.NONE,
    }


def test_offsets_of_topics_that_no_member_wants_expire(driver: OffsetDriver) -> None:
    member = join(driver, "t")
    driver.commit("g", {T0: 5, U0: 6}, member=member)

    keep_alive(driver, member, 2 * HOUR_MS + CHECK_MS)

    assert driver.offsets("g") == {T0: 5}


def test_an_empty_group_goes_when_its_offsets_have_expired_since_their_commit(
    driver: OffsetDriver,
) -> None:
    member = join(driver, "t")
    driver.commit("g", {T0: 5}, member=member)
    keep_alive(driver, member, HOUR_MS)
    heartbeat(driver, member, LEAVES)

    driver.advance(HOUR_MS - CHECK_MS)
    assert driver.offsets("g") == {T0: 5}
    driver.advance(2 * CHECK_MS)

    assert driver.offsets("g") == {}
    assert driver.group_ids == set()
    driver.restart()
    assert driver.group_ids == set()


def test_a_consumer_group_takes_the_place_of_the_simple_group_of_its_offsets(
    driver: OffsetDriver,
) -> None:
    member = join(driver, "t")
    driver.commit("g", {T0: 5}, member=member)
    # What compaction may leave: the offset first, then the group.
    driver.log.sort(key=lambda stored: stored.record.key.RECORD_TYPE if stored.record else 0)

    driver.restart()

    assert driver.machine.context.groups["g"].type is GroupType.CONSUMER
    assert driver.offsets("g") == {T0: 5}
    assert driver.commit("g", {T0: 6}, member=member) == {T0: ErrorCode.NONE}
