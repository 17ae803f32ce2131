"""Groups that move between the protocols while members are live, both ways."""

from __future__ import annotations

from typing import Any

import pytest

from dohle.core.errors import ErrorCode, KafkaError
from dohle.groups.classic.group import ClassicGroup
from dohle.groups.consumer.group import ConsumerGroup
from dohle.protocol.messages.join_group import JoinGroupRequestProtocol
from tests.groups.classic.classic_consumer import (
    CLASSIC_REBALANCE_MS,
    CLASSIC_SESSION_MS,
    ClassicConsumer,
    classic_group,
)
from tests.groups.consumer.consumer_world import GROUP, NO_DISK, FakeTopics, World

A = {("a", 0), ("a", 1), ("a", 2), ("a", 3)}


def _world(**settings: Any) -> World:
    return World(FakeTopics(a=4, b=2), **settings)


def _upgraded(world: World) -> tuple[ClassicConsumer, ClassicConsumer]:
    one, two = ClassicConsumer(world, ["a"]), ClassicConsumer(world, ["a"])
    classic_group(world, one, two)
    return one, two


def _one_more_protocol(consumer: ClassicConsumer) -> tuple[JoinGroupRequestProtocol, ...]:
    metadata = consumer.subscription()
    return (
        JoinGroupRequestProtocol(name="cooperative-sticky", metadata=metadata),
        JoinGroupRequestProtocol(name="range", metadata=metadata),
    )


def test_a_classic_group_is_upgraded_by_the_first_heartbeat() -> None:
    world = _world()
    one, two = _upgraded(world)
    mark = len(world.driver.log)
    new = world.joined("new", "a")
    assert isinstance(world.group, ConsumerGroup)
    assert set(world.group.members) == {one.member_id, two.member_id, "new"}
    # Generation 1 goes on as group epoch 1, and the new member moves it to 2.
    assert (new.epoch, new.owned) == (2, set())
    assert world.written(mark) == [
        "-GroupMetadata",
        *["MemberMetadata"] * 2,
        "Metadata",
        *["TargetAssignmentMember"] * 2,
        "TargetAssignmentMetadata",
        *["CurrentMemberAssignment"] * 2,
        "MemberMetadata",
        "Metadata",
        *["TargetAssignmentMember"] * 2,
        "TargetAssignmentMetadata",
        "CurrentMemberAssignment",
    ]


def test_members_of_both_protocols_share_the_partitions() -> None:
    world = _world()
    one, two = _upgraded(world)
    assert one.owned | two.owned == A
    new = world.joined("new", "a")
    for _ in range(4):
        one.follow()
        two.follow()
        new.beat()
    assert one.owned | two.owned | new.owned == A
    assert len(one.owned) + len(two.owned) + len(new.owned) == len(A)
    assert new.owned
    assert world.state() == "Stable"


def test_a_classic_member_keeps_its_partitions_until_it_has_joined_again() -> None:
    world = _world()
    one = ClassicConsumer(world, ["a"])
    classic_group(world, one)
    new = world.joined("new", "a")
    assert one.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    one.join()
    # It still owns everything: it is told what is left, and has to come again.
    assert one.generation == 1
    assert len(one.sync()) == 2
    new.beat()
    assert new.owned == set()
    assert one.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    one.join()
    assert one.generation == 2
    one.sync()
    new.beat()
    assert new.owned | one.owned == A
    assert one.heartbeat() is ErrorCode.NONE


def test_a_classic_member_joins_again_when_its_partitions_are_free() -> None:
    world = _world()
    new = world.joined("new", "a")
    one = ClassicConsumer(world, ["a"])
    one.join()
    assert one.sync() == set()
    # Nothing to get yet, so that there is no use in joining again.
    assert one.heartbeat() is ErrorCode.NONE
    new.beat()
    new.revoke()
    new.heartbeat()
    assert one.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    one.join()
    assert len(one.sync()) == 2
    assert one.heartbeat() is ErrorCode.NONE
    assert world.state() == "Stable"


def test_a_classic_member_of_a_consumer_group_is_given_an_id_first() -> None:
    world = _world()
    world.joined("new", "a")
    one = ClassicConsumer(world, ["a"])
    with pytest.raises(KafkaError) as refusal:
        one.joined(one.join_later())
    assert refusal.value.code is ErrorCode.MEMBER_ID_REQUIRED
    assert len(one.member_id) == 22
    response = one.join()
    assert (response.protocol_type, response.protocol_name) == ("consumer", "cooperative-sticky")
    assert (response.leader, response.members) == ("", ())


def test_those_who_wait_for_a_rebalance_are_sent_into_the_new_group() -> None:
    world = _world()
    one, two = _upgraded(world)
    waiting = one.join_later(protocols=_one_more_protocol(one))
    assert world.state() == "PreparingRebalance"
    world.joined("new", "a")
    assert world.driver.replies[waiting].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    one.follow()
    two.follow()
    assert one.member_id in world.group.members


def test_a_group_in_its_first_rebalance_can_be_upgraded() -> None:
    world = _world()
    one = ClassicConsumer(world, ["a"])
    with pytest.raises(KafkaError):
        one.joined(one.join_later())
    waiting = one.join_later()
    new = world.joined("new", "a")
    assert world.driver.replies[waiting].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    one.join()
    one.sync()
    for _ in range(3):
        new.heartbeat()
        new.revoke()
        one.follow()
    assert len(one.owned) == len(new.owned) == 2


def test_the_last_member_of_the_new_protocol_takes_the_group_back() -> None:
    world = _world()
    one, two = _upgraded(world)
    new = world.joined("new", "a")
    for _ in range(4):
        one.follow()
        two.follow()
        new.beat()
    epoch = world.group.group_epoch
    mark = len(world.driver.log)
    new.leave()
    group = world.machine.context.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    assert group.generation == epoch
    assert set(group.members) == {one.member_id, two.member_id}
    assert world.written(mark) == [
        *["-CurrentMemberAssignment"] * 3,
        *["-TargetAssignmentMember"] * 3,
        "-TargetAssignmentMetadata",
        *["-MemberMetadata"] * 3,
        "-PartitionMetadata",
        "-Metadata",
        "GroupMetadata",
    ]
    world.advance(0)
    assert world.state() == "PreparingRebalance"
    assert one.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_downgraded_group_rebalances_as_classic_groups_do() -> None:
    world = _world()
    one, two = _upgraded(world)
    new = world.joined("new", "a")
    one.follow()
    two.follow()
    new.leave()
    tickets = [consumer.join_later() for consumer in (one, two)]
    for consumer, ticket in zip((one, two), tickets, strict=True):
        consumer.joined(ticket)
    assert one.generation == two.generation
    leader = one if one.leads else two
    share = {one.member_id: {("a", 0)}, two.member_id: A - {("a", 0)}}
    syncs = [c.sync_later(share if c is leader else None) for c in (one, two)]
    assert [c.synced(t) for c, t in zip((one, two), syncs, strict=True)] == list(share.values())


def test_a_member_of_the_new_protocol_that_is_put_out_takes_the_group_back() -> None:
    world = _world(group_consumer_session_timeout_ms=8_000)
    one = ClassicConsumer(world, ["a"])
    classic_group(world, one)
    world.joined("new", "a")
    world.advance(7_000)
    assert one.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    world.advance(1_000)
    assert isinstance(world.machine.context.groups[GROUP], ClassicGroup)


def test_a_downgraded_group_survives_a_restart() -> None:
    world = _world()
    one, two = _upgraded(world)
    new = world.joined("new", "a")
    new.leave()
    world.driver.restart()
    group = world.machine.context.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    assert set(group.members) == {one.member_id, two.member_id, "new"}
    world.advance(6_000)
    assert set(group.members) == {one.member_id, two.member_id}
    assert one.heartbeat() in (ErrorCode.NONE, ErrorCode.ILLEGAL_GENERATION)


def test_a_rebalance_that_a_crash_cuts_short_is_made_up_for() -> None:
    world = _world()
    one = ClassicConsumer(world, ["a"])
    classic_group(world, one)
    new = world.joined("new", "a")
    for _ in range(3):
        one.follow()
        new.beat()
    new.leave()
    assert one.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    world.driver.restart()
    assert world.state() == "Stable"
    # Nobody has what the one who left had; the group finds out when its session ends.
    assert one.heartbeat() is ErrorCode.NONE
    world.advance(6_000)
    assert one.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_downgrade_that_could_not_be_written_leaves_the_group_as_it_is() -> None:
    world = _world()
    one = ClassicConsumer(world, ["a"])
    classic_group(world, one)
    new = world.joined("new", "a")
    world.driver.append_error = NO_DISK
    assert new.refused(member_epoch=-1) is NO_DISK.code
    world.driver.append_error = None
    assert set(world.group.members) == {one.member_id, "new"}
    new.leave()
    assert isinstance(world.machine.context.groups[GROUP], ClassicGroup)


@pytest.mark.parametrize("policy", ["upgrade", "disabled"])
def test_without_a_downgrade_a_group_of_classic_members_stays_a_consumer_group(
    policy: str,
) -> None:
    world = _world()
    one, two = _upgraded(world)
    new = world.joined("new", "a")
    world.configure(group_consumer_migration_policy=policy)
    new.leave()
    for _ in range(3):
        one.follow()
        two.follow()
    assert one.owned | two.owned == A
    assert set(world.group.members) == {one.member_id, two.member_id}


def test_a_group_too_large_for_the_classic_protocol_is_not_downgraded() -> None:
    world = _world()
    _upgraded(world)
    new = world.joined("new", "a")
    world.configure(group_max_size=1)
    new.leave()
    assert len(world.group.members) == 2


def test_an_empty_classic_group_becomes_a_consumer_group() -> None:
    world = _world(group_consumer_migration_policy="disabled")
    one = ClassicConsumer(world, ["a"])
    classic_group(world, one)
    one.leave()
    assert world.state() == "Empty"
    mark = len(world.driver.log)
    new = world.joined("new", "a")
    assert world.written(mark)[0] == "-GroupMetadata"
    assert (new.epoch, new.owned) == (1, A)


def test_an_empty_consumer_group_becomes_a_classic_group() -> None:
    world = _world(group_consumer_migration_policy="disabled")
    world.joined("new", "a").leave()
    one = ClassicConsumer(world, ["a"])
    classic_group(world, one)
    assert isinstance(world.machine.context.groups[GROUP], ClassicGroup)
    assert one.owned == A
    world.driver.restart()
    assert isinstance(world.machine.context.groups[GROUP], ClassicGroup)


def test_a_classic_member_that_leaves_frees_its_partitions() -> None:
    world = _world()
    new = world.joined("new", "a")
    one = ClassicConsumer(world, ["a"])
    one.join()
    for _ in range(3):
        new.heartbeat()
        new.revoke()
        one.follow()
    assert len(new.owned) == 2
    assert one.leave() is ErrorCode.NONE
    assert one.leave() is ErrorCode.UNKNOWN_MEMBER_ID
    new.beat()
    assert new.owned == A


def test_a_classic_member_has_its_own_session_timeout() -> None:
    world = _world()
    new = world.joined("new", "a")
    one = ClassicConsumer(world, ["a"])
    one.join()
    one.sync()
    world.advance(CLASSIC_SESSION_MS - 1)
    assert one.heartbeat() is ErrorCode.NONE
    world.advance(CLASSIC_SESSION_MS)
    assert list(world.group.members) == ["new"]
    assert one.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert new.beat().member_epoch == 3


def test_a_classic_member_that_does_not_sync_is_put_out() -> None:
    world = _world()
    world.joined("new", "a")
    one = ClassicConsumer(world, ["a"])
    one.join()
    for _ in range(5):
        world.advance(CLASSIC_REBALANCE_MS // 5)
        if one.member_id in world.group.members:
            one.heartbeat()
    assert list(world.group.members) == ["new"]


def test_a_classic_member_that_does_not_join_again_is_put_out() -> None:
    world = _world()
    one = ClassicConsumer(world, ["a"])
    classic_group(world, one)
    new = world.joined("new", "a")
    for _ in range(6):
        if one.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID:
            break
        new.beat()
        world.advance(CLASSIC_REBALANCE_MS // 5)
    assert list(world.group.members) == ["new"]


def test_requests_of_another_generation_are_refused() -> None:
    world = _world()
    new = world.joined("new", "a")
    one = ClassicConsumer(world, ["a"])
    one.join()
    one.generation += 1
    assert one.heartbeat() is ErrorCode.ILLEGAL_GENERATION
    with pytest.raises(KafkaError) as refusal:
        one.sync()
    assert refusal.value.code is ErrorCode.ILLEGAL_GENERATION
    assert new.beat().error_code == ErrorCode.NONE


def test_a_member_of_the_new_protocol_may_not_use_the_classic_requests() -> None:
    world = _world()
    new = world.joined("new", "a")
    impostor = ClassicConsumer(world, ["a"], member_id="new", generation=new.epoch)
    assert impostor.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_protocol_that_other_classic_members_do_not_know_is_refused() -> None:
    world = _world()
    world.joined("new", "a")
    ClassicConsumer(world, ["a"]).join()
    with pytest.raises(KafkaError) as refusal:
        ClassicConsumer(world, ["a"], protocols=("range",)).join()
    assert refusal.value.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_static_member_changes_to_the_new_protocol_with_its_partitions() -> None:
    world = _world()
    one = ClassicConsumer(world, ["a"], instance="i1")
    two = ClassicConsumer(world, ["a"], instance="i2")
    classic_group(world, one, two)
    kept = set(one.owned)
    new = world.joined("new", "a", instance="i1")
    assert new.owned == kept
    assert set(world.group.members) == {"new", two.member_id}
    assert two.heartbeat() is ErrorCode.NONE
    assert one.heartbeat() is ErrorCode.FENCED_INSTANCE_ID


def test_a_rebalance_that_was_due_is_not_forgotten_by_an_upgrade() -> None:
    world = _world()
    one = ClassicConsumer(world, ["a"], instance="i1")
    two = ClassicConsumer(world, ["a"], instance="i2")
    classic_group(world, one, two)
    two.leave()
    assert world.state() == "PreparingRebalance"
    new = world.joined("new", "a", instance="i1")
    assert new.owned == A


def test_a_static_member_changes_back_and_takes_the_group_with_it() -> None:
    world = _world()
    one = ClassicConsumer(world, ["a"], instance="i1")
    two = ClassicConsumer(world, ["a"], instance="i2")
    classic_group(world, one, two)
    kept = set(one.owned)
    new = world.joined("new", "a", instance="i1")
    assert new.owned == kept
    back = ClassicConsumer(world, ["a"], instance="i1")
    back.join()
    group = world.machine.context.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    assert world.state() == "Stable"
    assert back.sync() == kept
    assert two.heartbeat() is ErrorCode.NONE
    world.driver.restart()
    assert back.heartbeat() is ErrorCode.NONE


def test_a_static_member_that_changes_back_with_another_subscription_rebalances() -> None:
    world = _world()
    one = ClassicConsumer(world, ["a"], instance="i1")
    two = ClassicConsumer(world, ["a"], instance="i2")
    classic_group(world, one, two)
    world.joined("new", "a", instance="i1")
    back = ClassicConsumer(world, ["b"], instance="i1")
    back.join()
    world.advance(0)
    assert isinstance(world.machine.context.groups[GROUP], ClassicGroup)
    assert world.state() == "PreparingRebalance"


def test_a_static_member_that_changes_back_before_a_new_target_rebalances() -> None:
    world = _world()
    world.joined("new", "a", instance="i1")
    world.joined("other", "a").leave()
    assert world.state() == "Assigning"
    back = ClassicConsumer(world, ["a"], instance="i1")
    back.join()
    assert isinstance(world.machine.context.groups[GROUP], ClassicGroup)
    assert world.state() == "PreparingRebalance"


def test_a_static_member_of_the_new_protocol_need_not_leave_to_change_back() -> None:
    world = _world()
    new = world.joined("new", "a", instance="i1")
    other = world.joined("other", "a")
    world.settle(new, other)
    kept = set(new.owned)
    back = ClassicConsumer(world, ["a"], instance="i1")
    back.join()
    assert back.sync() == kept
    assert set(world.group.members) == {back.member_id, "other"}
    assert back.heartbeat() is ErrorCode.NONE


def test_after_a_restart_a_mixed_group_goes_on() -> None:
    world = _world()
    one, two = _upgraded(world)
    new = world.joined("new", "a")
    one.follow()
    world.driver.restart()
    for _ in range(4):
        two.follow()
        new.beat()
        one.follow()
    assert one.owned | two.owned | new.owned == A
    assert world.state() == "Stable"
