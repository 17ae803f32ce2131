"""Consumer groups: static members, who keep their place while they are away."""

from __future__ import annotations

from dohle.core.errors import ErrorCode
from dohle.groups.consumer.member import MemberState
from tests.groups.consumer.consumer_world import SESSION_MS, World

A = {("a", 0), ("a", 1), ("a", 2)}


def test_a_static_member_that_leaves_for_a_while_keeps_its_partitions() -> None:
    world = World()
    one = world.joined("one", "a", instance="i1")
    two = world.joined("two", "a")
    world.settle(one, two)
    kept = set(one.owned)
    epoch = world.group.group_epoch
    mark = len(world.driver.log)
    response = one.leave(epoch=-2)
    assert (response.member_id, response.member_epoch) == ("one", -2)
    assert world.written(mark) == ["CurrentMemberAssignment"]
    two.beat()
    assert not two.owned & kept
    assert world.group.group_epoch == epoch


def test_a_static_member_that_comes_back_gets_its_partitions_without_a_rebalance() -> None:
    world = World()
    one = world.joined("one", "a", instance="i1")
    two = world.joined("two", "a")
    world.settle(one, two)
    kept = set(one.owned)
    epoch = world.group.group_epoch
    one.leave(epoch=-2)
    mark = len(world.driver.log)
    back = world.joined("back", "a", instance="i1")
    assert (back.epoch, back.owned) == (epoch, kept)
    assert world.group.group_epoch == epoch
    assert set(world.group.members) == {"back", "two"}
    assert world.written(mark) == [
        "-CurrentMemberAssignment",
        "-TargetAssignmentMember",
        "-MemberMetadata",
        "MemberMetadata",
        "TargetAssignmentMember",
        "CurrentMemberAssignment",
        "CurrentMemberAssignment",
    ]
    two.beat()
    assert world.state() == "Stable"


def test_a_static_member_may_come_back_under_its_old_member_id() -> None:
    world = World()
    one = world.joined("one", "a", instance="i1")
    one.leave(epoch=-2)
    one.heartbeat()
    assert one.owned == A
    world.advance(SESSION_MS - 1)
    assert "one" in world.group.members
    world.advance(1)
    assert world.state() == "Empty"


def test_a_static_member_that_stays_away_is_put_out_after_its_session() -> None:
    world = World()
    one = world.joined("one", "a", instance="i1")
    one.leave(epoch=-2)
    world.advance(SESSION_MS)
    assert world.state() == "Empty"
    assert world.group.static_members == {}


def test_a_static_member_that_leaves_for_good_frees_its_partitions() -> None:
    world = World()
    one = world.joined("one", "a", instance="i1")
    two = world.joined("two", "a")
    one.leave()
    two.beat()
    assert two.owned == A


def test_an_instance_id_in_use_is_not_given_away() -> None:
    world = World()
    world.joined("one", "a", instance="i1")
    other = world.consumer("other", "a", instance="i1")
    assert other.refused() is ErrorCode.UNRELEASED_INSTANCE_ID


def test_who_was_replaced_under_its_instance_id_is_fenced() -> None:
    world = World()
    one = world.joined("one", "a", instance="i1")
    old = one.epoch
    one.leave(epoch=-2)
    world.joined("back", "a", instance="i1")
    assert one.refused(member_epoch=old) is ErrorCode.FENCED_INSTANCE_ID
    assert one.refused(member_epoch=-1) is ErrorCode.FENCED_INSTANCE_ID
    assert one.refused(member_epoch=-2) is ErrorCode.FENCED_INSTANCE_ID


def test_an_unknown_instance_id_is_refused() -> None:
    world = World()
    world.joined("one", "a")
    two = world.consumer("two", "a", instance="i2")
    assert two.refused(member_epoch=1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert two.refused(member_epoch=-1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_is_away_is_fenced_until_it_joins_again() -> None:
    world = World()
    one = world.joined("one", "a", instance="i1")
    one.leave(epoch=-2)
    assert one.refused(member_epoch=1) is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_static_member_that_comes_back_with_another_subscription_moves_the_epoch() -> None:
    world = World()
    one = world.joined("one", "a", instance="i1")
    one.leave(epoch=-2)
    back = world.joined("back", "b", instance="i1")
    world.settle(back)
    assert back.epoch == 2
    assert back.owned == {("b", 0), ("b", 1), ("b", 2)}
    assert set(world.group.target) == {"back"}


def test_leaving_for_a_while_counts_as_giving_back() -> None:
    world = World()
    one = world.joined("one", "a", instance="i1")
    two = world.joined("two", "a")
    one.beat()
    assert world.group.member("one").state is MemberState.UNREVOKED_PARTITIONS
    pending = one.to_revoke
    one.leave(epoch=-2)
    two.beat()
    assert two.owned == pending
    back = world.joined("back", "a", instance="i1")
    assert back.owned == A - two.owned
    assert world.state() == "Stable"


def test_the_new_session_of_one_who_came_back_is_not_ended_by_the_old_one() -> None:
    world = World()
    one = world.joined("one", "a", instance="i1")
    one.leave(epoch=-2)
    world.advance(SESSION_MS - 1_000)
    back = world.joined("back", "a", instance="i1")
    world.advance(SESSION_MS - 1)
    back.beat()
    assert list(world.group.members) == ["back"]


def test_static_members_survive_a_restart_of_the_coordinator() -> None:
    world = World()
    one = world.joined("one", "a", instance="i1")
    one.leave(epoch=-2)
    world.driver.restart()
    back = world.joined("back", "a", instance="i1")
    assert (back.epoch, back.owned) == (1, A)
