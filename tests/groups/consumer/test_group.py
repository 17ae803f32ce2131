"""Consumer groups: what others ask of them, how they are described, and odd logs."""

from __future__ import annotations

import pytest

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName
from dohle.core.steps import finish
from dohle.groups.classic.group import ClassicGroup
from dohle.groups.consumer.group import ConsumerGroup
from dohle.protocol.messages.consumer_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from tests.groups.classic.classic_consumer import ClassicConsumer
from tests.groups.classic.commands import delete_group
from tests.groups.consumer.consumer_world import GROUP, World


def _commit_code(
    group: ConsumerGroup,
    member_id: str,
    epoch: int,
    *,
    instance: str | None = None,
    is_transactional: bool = False,
    version: int = 9,
) -> ErrorCode:
    try:
        group.validate_offset_commit(
            member_id, instance, epoch, is_transactional=is_transactional, version=version
        )
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def _fetch_code(group: ConsumerGroup, member_id: str | None, epoch: int) -> ErrorCode:
    try:
        group.validate_offset_fetch(member_id, epoch)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def test_a_member_commits_and_fetches_offsets_in_its_epoch_only() -> None:
    world = World()
    one = world.joined("one", "a")
    group = world.group
    assert _commit_code(group, "one", one.epoch) is ErrorCode.NONE
    assert _commit_code(group, "one", one.epoch + 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert _commit_code(group, "one", 0) is ErrorCode.STALE_MEMBER_EPOCH
    assert _commit_code(group, "two", one.epoch) is ErrorCode.UNKNOWN_MEMBER_ID
    assert _fetch_code(group, "one", one.epoch) is ErrorCode.NONE
    assert _fetch_code(group, "one", 9) is ErrorCode.STALE_MEMBER_EPOCH
    assert _fetch_code(group, "two", one.epoch) is ErrorCode.UNKNOWN_MEMBER_ID
    assert _fetch_code(group, None, 3) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_of_the_new_protocol_needs_the_version_that_knows_its_epoch() -> None:
    world = World()
    one = world.joined("one", "a")
    code = _commit_code(world.group, "one", one.epoch, version=8)
    assert code is ErrorCode.UNSUPPORTED_VERSION
    code = _commit_code(world.group, "one", one.epoch, version=3, is_transactional=True)
    assert code is ErrorCode.NONE


def test_a_classic_member_of_a_consumer_group_has_generations() -> None:
    world = World()
    world.joined("one", "a")
    two = ClassicConsumer(world, ["a"])
    two.join()
    assert _commit_code(world.group, two.member_id, two.generation, version=2) is ErrorCode.NONE
    code = _commit_code(world.group, two.member_id, two.generation + 1)
    assert code is ErrorCode.ILLEGAL_GENERATION
    assert _fetch_code(world.group, two.member_id, 99) is ErrorCode.ILLEGAL_GENERATION


def test_without_a_member_offsets_are_committed_to_an_empty_group_only() -> None:
    world = World()
    one = world.joined("one", "a")
    assert _commit_code(world.group, "", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert _commit_code(world.group, "", -1, is_transactional=True) is ErrorCode.NONE
    assert _fetch_code(world.group, None, -1) is ErrorCode.NONE
    one.leave()
    assert _commit_code(world.group, "", -1) is ErrorCode.NONE


def test_only_an_empty_group_can_be_deleted() -> None:
    world = World()
    one = world.joined("one", "a")
    with pytest.raises(KafkaError) as refusal:
        world.group.validate_delete_group()
    assert refusal.value.code is ErrorCode.NON_EMPTY_GROUP
    one.leave()
    mark = len(world.driver.log)
    world.ask(lambda machine, ticket: delete_group(machine, GROUP, ticket))
    assert world.written(mark) == [
        "-TargetAssignmentMetadata",
        "-PartitionMetadata",
        "-Metadata",
    ]
    assert GROUP not in world.machine.context.groups
    world.driver.restart()
    assert GROUP not in world.machine.context.groups


def test_a_group_knows_what_it_is_subscribed_to() -> None:
    world = World()
    one = world.joined("one", "a", "missing")
    two = world.joined("two", "a")
    assert world.group.is_subscribed_to("a")
    assert world.group.is_subscribed_to("missing")
    assert not world.group.is_subscribed_to("b")
    one.leave()
    assert world.group.is_subscribed_to("a")
    assert not world.group.is_subscribed_to("missing")
    two.leave()
    assert not world.group.is_subscribed_to("a")


def test_a_group_is_described() -> None:
    world = World()
    world.joined("one", "a", instance="i1", rack="r1")
    two = ClassicConsumer(world, ["a"])
    two.join()
    a = world.topics.ids["a"]
    described = world.machine.consumer.describe(GROUP)
    assert described == DescribedGroup(
        group_id=GROUP,
        group_state="Reconciling",
        group_epoch=2,
        assignment_epoch=2,
        assignor_name="uniform",
        members=described.members,
    )
    one, classic = described.members
    assert one == Member(
        member_id="one",
        instance_id="i1",
        rack_id="r1",
        member_epoch=1,
        client_id="client",
        client_host="/127.0.0.1",
        subscribed_topic_names=(TopicName("a"),),
        subscribed_topic_regex="",
        assignment=_assignment(world, 0, 1, 2),
        target_assignment=one.target_assignment,
        member_type=1,
    )
    assert len(one.target_assignment.topic_partitions[0].partitions) == 2
    assert one.target_assignment.topic_partitions[0].topic_id == a
    assert (classic.member_type, classic.client_id) == (0, "classic")


def _assignment(world: World, *partitions: int) -> Assignment:
    topic_id = world.topics.ids["a"]
    part = TopicPartitions(topic_id=topic_id, topic_name=TopicName("a"), partitions=partitions)
    return Assignment(topic_partitions=(part,))


def test_a_topic_that_is_no_more_is_left_out_of_a_description() -> None:
    world = World()
    world.joined("one", "a")
    world.topics.delete("a")
    (member,) = world.machine.consumer.describe(GROUP).members
    assert member.assignment == Assignment()


def test_only_consumer_groups_are_described() -> None:
    world = World()
    for group_id in ("none", "classic"):
        if group_id == "classic":
            world.machine.classic.get_or_create("classic")
        with pytest.raises(KafkaError) as refusal:
            world.machine.consumer.describe(group_id)
        assert refusal.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_is_listed_with_its_state_and_its_type() -> None:
    world = World()
    world.joined("one", "a")
    (listed,) = finish(world.machine.list_groups(set(), set()))
    assert (listed.group_state, listed.group_type) == ("Stable", "consumer")
    assert listed.protocol_type == "consumer"
    assert not finish(world.machine.list_groups(set(), {"classic"}))
    assert finish(world.machine.list_groups({"stable"}, {"consumer"}))


def test_records_replace_a_group_that_only_has_offsets() -> None:
    world = World()
    world.joined("one", "a")
    records = world.records()
    other = World(world.topics)
    simple = other.machine.classic.get_or_create(GROUP)
    assert isinstance(simple, ClassicGroup)
    for record in records:
        other.machine.replay(record, None)
    assert set(other.group.members) == {"one"}


def test_tombstones_of_what_a_compacted_log_no_longer_has_are_passed_over() -> None:
    world = World()
    one = world.joined("one", "a", regex="b")
    world.advance(0)
    one.leave()
    tombstones = [record for record in world.records() if record.value is None]
    other = World(world.topics)
    for record in tombstones:
        other.machine.replay(record, None)
    assert other.machine.context.groups == {}
    for record in tombstones:
        world.machine.replay(record, None)
    assert world.group.members == {}


def test_a_late_record_of_a_former_owner_does_not_free_what_another_has() -> None:
    world = World()
    one = world.joined("one", "a")
    two = world.joined("two", "a")
    world.settle(one, two)
    topic_id = world.topics.ids["a"]
    _, taken = next(iter(two.owned))
    current = [r for r in world.records() if "Current" in type(r.key).__name__]
    of_one = [record for record in current if record.key == current[0].key]
    of_two = [record for record in current if record.key != current[0].key]
    # As if compaction had left them in another order than they were written in.
    for record in (of_one[0], of_two[-1], of_one[-1]):
        world.machine.replay(record, None)
    assert world.group.owner(topic_id, taken) == "two"
