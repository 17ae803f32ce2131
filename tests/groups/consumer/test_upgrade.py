"""Classic groups that cannot become consumer groups, and what is left of earlier lives."""

from __future__ import annotations

from typing import Any

import pytest

from dohle.core.errors import ErrorCode
from dohle.groups.classic.group import ClassicGroup
from dohle.groups.context import GroupTimerKey
from dohle.protocol.messages.join_group import JoinGroupRequestProtocol
from tests.groups.classic.classic_consumer import ClassicConsumer, classic_group
from tests.groups.consumer.consumer_world import GROUP, FakeTopics, World


def _world(**settings: Any) -> World:
    return World(FakeTopics(a=4, b=2), **settings)


def _classic(world: World) -> tuple[ClassicConsumer, ClassicConsumer]:
    one, two = ClassicConsumer(world, ["a"]), ClassicConsumer(world, ["a"])
    classic_group(world, one, two)
    return one, two


def _one_more_protocol(consumer: ClassicConsumer) -> tuple[JoinGroupRequestProtocol, ...]:
    metadata = consumer.subscription()
    return (
        JoinGroupRequestProtocol(name="cooperative-sticky", metadata=metadata),
        JoinGroupRequestProtocol(name="range", metadata=metadata),
    )


@pytest.mark.parametrize("policy", ["downgrade", "disabled"])
def test_an_upgrade_that_the_policy_forbids_is_refused(policy: str) -> None:
    world = _world(group_consumer_migration_policy=policy)
    _classic(world)
    assert world.consumer("new", "a").refused() is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_that_is_not_of_consumers_is_not_classic() -> None:
    world = _world()
    ticket = ClassicConsumer(world, ["a"], instance="i").join_later(protocol_type="connect")
    world.advance(10_000)
    assert ticket in world.driver.replies
    assert world.consumer("new", "a").refused() is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_too_large_for_the_new_protocol_is_not_classic() -> None:
    world = _world(group_consumer_max_size=1)
    _classic(world)
    assert world.consumer("new", "a").refused() is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_refused_upgrade_answers_nobody() -> None:
    world = _world(group_consumer_max_size=2)
    one, _ = _classic(world)
    waiting = one.join_later(protocols=_one_more_protocol(one))
    assert world.consumer("new", regex="(").refused() is not ErrorCode.NONE
    assert waiting not in world.driver.replies
    assert world.state() == "PreparingRebalance"


def test_a_group_in_which_two_members_have_the_same_partition_is_not_classic() -> None:
    world = _world()
    one, two = ClassicConsumer(world, ["a"]), ClassicConsumer(world, ["a"])
    classic_group(world, one, two)
    group = world.machine.context.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    first, second = group.members.values()
    second.assignment = first.assignment
    assert world.consumer("new", "a").refused() is ErrorCode.GROUP_ID_NOT_FOUND
    assert world.machine.context.groups[GROUP] is group


def test_deadlines_from_before_a_downgrade_do_not_come_after_an_upgrade() -> None:
    world = _world()
    new = world.joined("new", "a")
    one = ClassicConsumer(world, ["a"])
    one.join()
    # The deadline to sync runs; the group is a classic one before it comes.
    new.leave()
    assert isinstance(world.machine.context.groups[GROUP], ClassicGroup)
    world.joined("newer", "a")
    key = GroupTimerKey("consumer", "sync", GROUP, one.member_id)
    assert key not in world.machine.context.timers
