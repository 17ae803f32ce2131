"""SyncGroup: one assignment for a generation, written before anybody sees it."""

from __future__ import annotations

from typing import Any

import pytest

from dohle.core.errors import ErrorCode, KafkaError
from tests.groups.classic.classic_world import REBALANCE_MS, ClassicWorld, subscription


@pytest.fixture
def world() -> ClassicWorld:
    return ClassicWorld()


def joined(world: ClassicWorld, count: int = 2) -> list[str]:
    """Bring members to where they await their assignment."""
    members = [world.member_id() for _ in range(count)]
    for member in members:
        world.join(member)
    world.finish_first_rebalance()
    return members


def test_who_is_in_no_group_is_refused(world: ClassicWorld) -> None:
    assert world.code(world.sync("a", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    world.member_id()
    assert world.state() == "Empty"
    assert world.code(world.sync("a", 0)) is ErrorCode.UNKNOWN_MEMBER_ID
    world.stable()
    assert world.code(world.sync("a", 1)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_another_generation_is_refused(world: ClassicWorld) -> None:
    leader, _ = world.stable()
    for generation in (0, 2):
        assert world.code(world.sync(leader, generation)) is ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize("wrong", [{"protocol_type": "connect"}, {"protocol_name": "sticky"}])
def test_another_protocol_is_refused(world: ClassicWorld, wrong: dict[str, Any]) -> None:
    leader, follower = joined(world)
    for member in (leader, follower):
        ticket = world.sync(member, 1, **wrong)
        assert world.code(ticket) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    right: dict[str, Any] = {"protocol_type": "consumer", "protocol_name": "range"}
    assert world.answer(world.sync(follower, 1, **right)) is None


def test_a_rebalance_that_waits_for_members_has_no_assignment(world: ClassicWorld) -> None:
    leader, follower = world.stable()
    world.join(leader)
    assert world.code(world.sync(follower, 1)) is ErrorCode.REBALANCE_IN_PROGRESS


def test_members_wait_for_the_leader_who_assigns_to_all(world: ClassicWorld) -> None:
    leader, *others = joined(world, 3)
    early = world.sync(others[0], 1)
    assert world.answer(early) is None
    assert len(world.records()) == 1
    done = world.sync(leader, 1, {leader: b"L", others[0]: b"A", others[1]: b"B"})
    assert world.state() == "Stable"
    late = world.sync(others[1], 1)
    assert [world.assigned(t) for t in (done, early, late)] == [b"L", b"A", b"B"]
    assert world.answer(late).protocol_type == "consumer"
    assert world.answer(late).protocol_name == "range"
    record = world.records()[-1]
    assert record is not None
    assert (record.generation, record.leader, record.protocol) == (1, leader, "range")
    assert {m.member_id: m.assignment for m in record.members} == {
        leader: b"L",
        others[0]: b"A",
        others[1]: b"B",
    }
    assert record.members[0].client_id == "client"
    assert record.members[0].client_host == "/127.0.0.1"


def test_whom_the_leader_leaves_out_gets_nothing(world: ClassicWorld) -> None:
    leader, follower = joined(world)
    waiting = world.sync(follower, 1)
    world.sync(leader, 1, {leader: b"all", "nobody": b"x"})
    assert world.assigned(waiting) == b""


def test_a_follower_assigns_nothing(world: ClassicWorld) -> None:
    leader, follower = joined(world)
    waiting = world.sync(follower, 1, {leader: b"x", follower: b"y"})
    assert world.answer(waiting) is None
    assert world.state() == "CompletingRebalance"


def test_the_assignment_can_be_asked_for_again(world: ClassicWorld) -> None:
    leader, follower = world.stable()
    assert world.assigned(world.sync(follower, 1)) == follower.encode()
    assert world.assigned(world.sync(leader, 1, {follower: b"other"})) == leader.encode()
    assert world.group().members[follower].assignment == follower.encode()


def test_a_sync_that_is_sent_again_supersedes_the_one_before(world: ClassicWorld) -> None:
    leader, follower = joined(world)
    first = world.sync(follower, 1)
    second = world.sync(follower, 1)
    assert world.code(first) is ErrorCode.REBALANCE_IN_PROGRESS
    world.sync(leader, 1, {follower: b"mine"})
    assert world.assigned(second) == b"mine"


def test_who_does_not_sync_in_time_is_let_go(world: ClassicWorld) -> None:
    leader, follower = joined(world)
    waiting = world.sync(leader, 1, {leader: b"L", follower: b"F"})
    assert world.assigned(waiting) == b"L"
    for _ in range(12):
        world.advance(REBALANCE_MS // 12)
        world.heartbeat(leader, 1)
        world.heartbeat(follower, 1)
    assert set(world.group().members) == {leader}
    assert world.state() == "PreparingRebalance"
    assert follower in world.group().rebalance_reason


def test_a_leader_that_does_not_sync_in_time_is_let_go(world: ClassicWorld) -> None:
    leader, follower = joined(world)
    waiting = world.sync(follower, 1)
    for _ in range(12):
        world.advance(REBALANCE_MS // 12)
        world.heartbeat(leader, 1)
    assert world.code(waiting) is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.group().leader_id == follower
    assert world.joined(world.join(follower)).generation_id == 2


def test_if_nobody_syncs_in_time_the_group_is_empty(world: ClassicWorld) -> None:
    members = joined(world)
    for _ in range(12):
        world.advance(REBALANCE_MS // 12)
        for member in members:
            world.heartbeat(member, 1)
    assert world.state() == "Empty"
    assert world.group().generation == 2


def test_when_all_have_synced_no_deadline_is_left(world: ClassicWorld) -> None:
    members = world.stable()
    for _ in range(20):
        world.advance(REBALANCE_MS // 10)
        assert [world.heartbeat(member, 1) for member in members] == [ErrorCode.NONE] * 2
    assert world.state() == "Stable"


def test_who_waits_for_the_leader_needs_no_heartbeat_until_it_has_assigned(
    world: ClassicWorld,
) -> None:
    leader, follower = joined(world)
    waiting = world.sync(follower, 1)
    for _ in range(3):
        world.advance(9_000)
        world.heartbeat(leader, 1)
    world.sync(leader, 1, {follower: b"mine"})
    assert world.assigned(waiting) == b"mine"
    world.advance(9_999)
    assert set(world.group().members) == {leader, follower}
    world.advance(1)
    assert not set(world.group().members)


def test_an_assignment_that_cannot_be_written_is_nobodys(world: ClassicWorld) -> None:
    leader, *others = joined(world, 3)
    early = world.sync(others[0], 1)
    world.driver.append_error = KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "too large")
    done = world.sync(leader, 1, {leader: b"L", others[0]: b"A", others[1]: b"B"})
    assert {world.code(t) for t in (early, done)} == {ErrorCode.MESSAGE_TOO_LARGE}
    assert world.state() == "PreparingRebalance"
    world.driver.append_error = None
    joins = [world.join(member) for member in (leader, *others)]
    assert {world.joined(t).generation_id for t in joins} == {2}
    world.sync_all([leader, *others])


def test_subscriptions_are_known_if_all_can_be_read(world: ClassicWorld) -> None:
    one = world.join(version=3, protocols={"range": subscription("a", "b", version=1)})
    two = world.join(version=3, protocols={"range": subscription("c", version=3)})
    world.finish_first_rebalance()
    group = world.group()
    assert [group.is_subscribed_to(topic) for topic in "abcd"] == [True, True, True, False]
    world.sync_all([world.joined(one).member_id, world.joined(two).member_id])
    world.driver.restart()
    group = world.group()
    assert [group.is_subscribed_to(topic) for topic in "abcd"] == [True, True, True, False]


@pytest.mark.parametrize("metadata", [b"", b"\x00", b"\x00\x00\x00\x00\x00\x05", b"\xff\xff"])
def test_of_unreadable_subscriptions_any_topic_may_be_meant(
    world: ClassicWorld, metadata: bytes
) -> None:
    world.stable(1, protocols={"range": metadata})
    assert world.group().is_subscribed_to("any")


def test_of_groups_that_are_not_of_consumers_any_topic_may_be_meant(world: ClassicWorld) -> None:
    (member,) = world.stable(1, protocol_type="connect")
    assert world.group().is_subscribed_to("any")
    world.leave(member)
    assert not world.group().is_subscribed_to("any")
