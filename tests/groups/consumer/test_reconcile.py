"""Consumer groups: how partitions move between members without ever having two owners."""

from __future__ import annotations

from dohle.core.errors import ErrorCode
from dohle.groups.consumer.member import MemberState
from dohle.protocol.messages.records.consumer_group import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
    TopicPartitions,
)
from tests.groups.consumer.consumer_world import (
    GROUP,
    NO_DISK,
    REBALANCE_MS,
    SESSION_MS,
    FakeTopics,
    World,
)

A = {("a", 0), ("a", 1), ("a", 2)}


def test_the_first_member_gets_everything_at_once() -> None:
    world = World()
    consumer = world.joined("one", "a")
    assert (consumer.epoch, consumer.owned) == (1, A)
    assert world.state() == "Stable"
    assert world.group.member("one").state is MemberState.STABLE


def test_joining_writes_what_kafka_writes_in_kafkas_order() -> None:
    world = World()
    world.joined("one", "a")
    assert world.written(0) == [
        "MemberMetadata",
        "Metadata",
        "TargetAssignmentMember",
        "TargetAssignmentMetadata",
        "CurrentMemberAssignment",
    ]
    topic_id = world.topics.ids["a"]
    topics = (TopicPartitions(topic_id=topic_id, partitions=(0, 1, 2)),)
    assert [record.value for record in world.records()] == [
        ConsumerGroupMemberMetadataValue(
            instance_id=None,
            rack_id=None,
            client_id="client",
            client_host="/127.0.0.1",
            subscribed_topic_names=("a",),
            subscribed_topic_regex="",
            rebalance_timeout_ms=REBALANCE_MS,
            server_assignor=None,
            classic_member_metadata=None,
        ),
        ConsumerGroupMetadataValue(epoch=1, metadata_hash=world.group.metadata_hash),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=(TopicPartition(topic_id=topic_id, partitions=(0, 1, 2)),)
        ),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=1),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=1, previous_member_epoch=0, state=0, assigned_partitions=topics
        ),
    ]
    assert {record.value_version for record in world.records()} == {0}


def test_a_heartbeat_that_tells_nothing_new_writes_nothing() -> None:
    world = World()
    consumer = world.joined("one", "a")
    before = len(world.driver.log)
    response = consumer.beat()
    assert response.assignment is None
    assert (response.member_epoch, response.heartbeat_interval_ms) == (1, 5_000)
    assert len(world.driver.log) == before


def test_a_full_request_is_told_its_assignment_again() -> None:
    world = World()
    consumer = world.joined("one", "a")
    assert consumer.heartbeat().assignment is not None
    assert consumer.heartbeat(topic_partitions=None).assignment is None
    assert consumer.heartbeat(rebalance_timeout_ms=-1).assignment is None
    assert consumer.heartbeat(subscribed_topic_names=None).assignment is None


def test_a_second_member_waits_until_the_first_has_given_back() -> None:
    world = World()
    one = world.joined("one", "a")
    two = world.joined("two", "a")
    # It is in the new epoch with nothing: all that it is to get belongs to the first.
    assert (two.epoch, two.owned) == (2, set())
    assert world.group.member("two").state is MemberState.UNRELEASED_PARTITIONS
    assert world.state() == "Reconciling"
    one.beat()
    assert one.epoch == 1
    assert len(one.to_revoke) == 1
    assert world.group.member("one").state is MemberState.UNREVOKED_PARTITIONS
    two.beat()
    assert two.owned == set()
    # Saying nothing of what it owns does not count as giving back.
    one.beat()
    assert one.epoch == 1
    one.revoke()
    one.heartbeat()
    assert one.epoch == 2
    two.beat()
    assert one.owned | two.owned == A
    assert not one.owned & two.owned
    assert world.state() == "Stable"


def test_a_member_in_revocation_that_still_owns_stays_in_its_epoch() -> None:
    world = World()
    one = world.joined("one", "a")
    world.joined("two", "a")
    one.heartbeat()
    before = len(world.driver.log)
    one.heartbeat()
    assert one.epoch == 1
    assert len(world.driver.log) == before


def test_partitions_of_a_member_that_leaves_go_to_the_others() -> None:
    world = World()
    one, two = world.consumer("one", "a"), world.consumer("two", "a")
    world.settle(one, two)
    epoch = world.group.group_epoch
    mark = len(world.driver.log)
    response = two.leave()
    assert (response.member_id, response.member_epoch) == ("two", -1)
    assert world.written(mark) == [
        "-CurrentMemberAssignment",
        "-TargetAssignmentMember",
        "-MemberMetadata",
        "Metadata",
    ]
    assert world.group.group_epoch == epoch + 1
    assert world.state() == "Assigning"
    one.beat()
    assert one.owned == A
    assert one.epoch == epoch + 1


def test_a_group_whose_last_member_left_is_empty_and_goes_on_from_its_epoch() -> None:
    world = World()
    one = world.joined("one", "a")
    one.leave()
    assert world.state() == "Empty"
    one.heartbeat()
    assert (one.epoch, one.owned) == (3, A)


def test_a_target_that_changes_during_revocation_is_taken_up_after_it() -> None:
    world = World()
    one = world.joined("one", "a")
    two = world.joined("two", "a")
    one.beat()
    three = world.joined("three", "a")
    assert one.epoch == 1
    world.settle(one, two, three)
    assert {len(c.owned) for c in (one, two, three)} == {1}
    assert one.owned | two.owned | three.owned == A
    assert world.state() == "Stable"


def test_a_partition_that_comes_back_to_a_member_before_it_gave_it_back_stays() -> None:
    world = World(FakeTopics(a=2))
    one = world.joined("one", "a")
    two = world.joined("two", "a")
    one.beat()
    assert len(one.to_revoke) == 1
    two.leave()
    one.beat()
    assert one.epoch == 1
    one.revoke()
    one.heartbeat()
    assert (one.epoch, one.owned) == (3, {("a", 0), ("a", 1)})


def test_a_reply_that_was_lost_does_not_fence_a_member() -> None:
    world = World()
    one = world.joined("one", "a")
    world.joined("two", "a")
    one.beat()
    one.revoke()
    before = one.request()
    one.heartbeat()
    assert one.epoch == 2
    # It sends the same once more: the reply never came.
    again = world.send(before)
    assert again.member_epoch == 2
    assert again.assignment is not None


def test_an_old_epoch_with_partitions_of_others_is_fenced() -> None:
    world = World()
    one = world.joined("one", "a")
    two = world.joined("two", "a")
    world.settle(one, two)
    stale = one.request(member_epoch=1)
    taken = two.request().topic_partitions
    assert one.refused(member_epoch=1, topic_partitions=taken) is ErrorCode.FENCED_MEMBER_EPOCH
    assert one.refused(member_epoch=1, topic_partitions=None) is ErrorCode.FENCED_MEMBER_EPOCH
    assert world.send(stale).member_epoch == 2


def test_epochs_from_the_future_and_from_long_ago_are_fenced() -> None:
    world = World()
    one = world.joined("one", "a")
    two = world.joined("two", "a")
    world.settle(one, two)
    three = world.joined("three", "a")
    world.settle(one, two, three)
    assert one.refused(member_epoch=one.epoch + 1) is ErrorCode.FENCED_MEMBER_EPOCH
    assert one.refused(member_epoch=1, topic_partitions=()) is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_fenced_member_joins_again_with_epoch_0() -> None:
    world = World()
    one = world.joined("one", "a")
    assert one.refused(member_epoch=7) is ErrorCode.FENCED_MEMBER_EPOCH
    one.forget()
    one.heartbeat()
    assert (one.epoch, one.owned) == (1, A)


def test_unknown_members_and_groups_are_refused() -> None:
    world = World()
    one = world.consumer("one", "a")
    assert one.refused(member_epoch=1) is ErrorCode.GROUP_ID_NOT_FOUND
    assert one.refused(member_epoch=-1) is ErrorCode.GROUP_ID_NOT_FOUND
    one.heartbeat()
    two = world.consumer("two", "a")
    assert two.refused(member_epoch=1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert two.refused(member_epoch=-1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_without_an_id_is_given_one() -> None:
    world = World()
    consumer = world.consumer("", "a")
    consumer.heartbeat()
    assert len(consumer.name) == 22
    assert consumer.name in world.group.members


def test_a_silent_member_is_put_out_after_its_session() -> None:
    world = World()
    one = world.joined("one", "a")
    two = world.joined("two", "a")
    world.settle(one, two)
    world.advance(SESSION_MS - 1)
    two.beat()
    world.advance(1)
    assert list(world.group.members) == ["two"]
    two.beat()
    assert two.owned == A
    assert one.refused() is ErrorCode.UNKNOWN_MEMBER_ID


def test_every_heartbeat_starts_the_session_anew() -> None:
    world = World(group_consumer_session_timeout_ms=1_000)
    one = world.joined("one", "a")
    for _ in range(5):
        world.advance(999)
        one.beat()
    world.advance(1_000)
    assert world.state() == "Empty"


def test_a_group_may_have_its_own_session_timeout() -> None:
    world = World()
    world.group_configs[GROUP] = {
        "consumer.session.timeout.ms": "50000",
        "consumer.heartbeat.interval.ms": "7000",
    }
    consumer = world.consumer("one", "a")
    assert consumer.heartbeat().heartbeat_interval_ms == 7_000
    world.advance(49_999)
    assert world.state() == "Stable"
    world.advance(1)
    assert world.state() == "Empty"


def test_a_member_that_does_not_give_back_is_put_out_after_its_rebalance_timeout() -> None:
    world = World()
    one = world.joined("one", "a", rebalance_ms=20_000)
    two = world.joined("two", "a")
    one.beat()
    world.advance(19_999)
    one.beat()
    two.beat()
    assert set(world.group.members) == {"one", "two"}
    world.advance(1)
    assert set(world.group.members) == {"two"}
    two.beat()
    assert two.owned == A


def test_a_member_is_put_out_for_its_deadline_though_the_log_refused_that_at_first() -> None:
    world = World()
    one = world.joined("one", "a", rebalance_ms=20_000)
    two = world.joined("two", "a")
    one.beat()
    world.driver.append_error = NO_DISK
    world.advance(20_000)
    world.driver.append_error = None
    # To be heard of keeps its session, but gives nothing back.
    one.beat()
    two.beat()
    world.advance(499)
    assert set(world.group.members) == {"one", "two"}
    world.advance(1)
    assert set(world.group.members) == {"two"}


def test_a_member_that_gave_back_in_time_is_left_alone() -> None:
    world = World()
    one = world.joined("one", "a", rebalance_ms=20_000)
    two = world.joined("two", "a")
    one.beat()
    one.revoke()
    one.heartbeat()
    for _ in range(2):
        world.advance(20_000)
        one.beat()
        two.beat()
    assert set(world.group.members) == {"one", "two"}


def test_after_a_restart_members_have_a_session_and_the_time_to_give_back() -> None:
    world = World()
    one = world.joined("one", "a", rebalance_ms=20_000)
    two = world.joined("two", "a", rebalance_ms=REBALANCE_MS)
    one.beat()
    world.driver.restart()
    world.advance(20_000)
    assert set(world.group.members) == {"two"}
    world.advance(SESSION_MS - 20_000)
    assert world.state() == "Empty"
    assert two.refused() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_is_as_it_was_after_a_restart() -> None:
    world = World()
    one = world.joined("one", "a")
    two = world.joined("two", "a", "b")
    one.beat()
    before = world.machine.consumer.describe(GROUP)
    world.driver.restart()
    assert world.machine.consumer.describe(GROUP) == before
    world.settle(one, two)
    assert one.owned | two.owned == A | {("b", 0), ("b", 1), ("b", 2)}


def test_a_log_that_refuses_a_join_leaves_nothing_behind() -> None:
    world = World()
    world.driver.append_error = NO_DISK
    one = world.consumer("one", "a")
    assert one.refused() is NO_DISK.code
    assert GROUP not in world.machine.context.groups
    world.driver.append_error = None
    one.heartbeat()
    assert one.owned == A


def test_a_member_whose_end_could_not_be_written_is_put_out_a_little_later() -> None:
    world = World()
    world.joined("one", "a")
    world.driver.append_error = NO_DISK
    world.advance(SESSION_MS + 10_000)
    assert list(world.group.members) == ["one"]
    world.driver.append_error = None
    world.advance(500)
    assert world.state() == "Empty"


def test_a_leave_that_could_not_be_written_keeps_the_member_for_a_session() -> None:
    world = World()
    one = world.joined("one", "a")
    world.driver.append_error = NO_DISK
    assert one.refused(member_epoch=-1) is NO_DISK.code
    world.driver.append_error = None
    world.advance(SESSION_MS - 1)
    assert list(world.group.members) == ["one"]
    world.advance(1)
    assert world.state() == "Empty"


def test_a_group_takes_no_more_members_than_it_may_have() -> None:
    world = World(group_consumer_max_size=1)
    one = world.joined("one", "a")
    two = world.consumer("two", "a")
    assert two.refused() is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.consumer("", "a").refused() is ErrorCode.GROUP_MAX_SIZE_REACHED
    one.beat()


def test_a_state_of_a_newer_release_sends_the_member_back_to_the_start() -> None:
    world = World()
    one = world.joined("one", "a")
    record = world.records()[-1]
    assert record.value is not None
    world.machine.replay(record._replace(value=record.value.replace(state=9)), None)
    assert one.refused() is ErrorCode.FENCED_MEMBER_EPOCH
    one.forget()
    one.heartbeat()
    assert (one.epoch, one.owned) == (1, A)
