"""Consumer groups: what happens when topics or subscriptions change."""

from __future__ import annotations

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from dohle.coordination.effects import Effects
from dohle.core.ids import Uuid
from dohle.groups.consumer.member import MemberState
from dohle.groups.consumer.metadata_hash import TopicHashes
from dohle.groups.consumer.xxh3 import xxh3_64
from dohle.protocol.messages.records.consumer_group import (
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
)
from dohle.protocol.record_framing import CoordinatorRecord
from tests.groups.consumer.consumer_world import GROUP, NO_DISK, FakeTopics, World

A = {("a", 0), ("a", 1), ("a", 2)}
B = {("b", 0), ("b", 1), ("b", 2)}


@given(st.binary(max_size=4_000))
def test_the_hash_is_xxh3(data: bytes) -> None:
    assert xxh3_64(data) == xxhash.xxh3_64_intdigest(data)


@pytest.mark.parametrize("length", [*range(300), 1_023, 1_024, 1_025, 1_088, 1_089, 2_048])
def test_the_hash_is_xxh3_at_every_length(length: int) -> None:
    data = bytes(at * 7 % 251 for at in range(length))
    assert xxh3_64(data) == xxhash.xxh3_64_intdigest(data)


def test_the_bytes_that_are_hashed_are_kafkas() -> None:
    topics = FakeTopics()
    topics.create("foo", 2)
    topics.ids["foo"] = Uuid(bytes(range(16)))
    topics.racks_of[("foo", 1)] = ["r2", "r1", "r1"]
    expected = (
        b"\x00"
        + bytes(range(7, -1, -1))
        + bytes(range(15, 7, -1))
        + "foo".encode("utf-16-le")
        + (3).to_bytes(4, "little")
        + (2).to_bytes(4, "little")
        + (0).to_bytes(4, "little")
        + (1).to_bytes(4, "little")
        + b"".join(
            (2).to_bytes(4, "little") + rack.encode("utf-16-le") + (2).to_bytes(4, "little")
            for rack in ("r1", "r1", "r2")
        )
    )
    of_topic = xxhash.xxh3_64_intdigest(expected).to_bytes(8, "little")
    of_group = int.from_bytes(xxhash.xxh3_64_digest(of_topic), "big", signed=True)
    assert TopicHashes(topics).of_group(["foo", "missing"]) == of_group
    assert TopicHashes(topics).of_group(["missing"]) == 0


def test_a_group_is_hashed_by_its_topics_in_order_of_their_names() -> None:
    topics = FakeTopics(z=1, y=2)
    assert TopicHashes(topics).of_group(["y", "z"]) == TopicHashes(topics).of_group(["z", "y"])
    assert TopicHashes(topics).of_group(["y"]) != TopicHashes(topics).of_group(["z"])


def test_new_partitions_of_a_topic_are_assigned_with_the_next_heartbeat() -> None:
    world = World()
    one = world.joined("one", "a")
    world.topics.grow("a", 4)
    world.topics_changed("a")
    mark = len(world.driver.log)
    one.beat()
    assert one.epoch == 2
    assert one.owned == A | {("a", 3)}
    assert world.written(mark) == [
        "Metadata",
        "TargetAssignmentMember",
        "TargetAssignmentMetadata",
        "CurrentMemberAssignment",
    ]


def test_changes_of_other_topics_change_nothing() -> None:
    world = World()
    one = world.joined("one", "a")
    world.topics.grow("b", 9)
    world.topics_changed("b")
    mark = len(world.driver.log)
    one.beat()
    assert one.epoch == 1
    assert len(world.driver.log) == mark


def test_a_topic_that_is_created_later_is_assigned_then() -> None:
    world = World()
    one = world.joined("one", "a", "later")
    assert one.owned == A
    world.topics.create("later", 1)
    world.topics_changed("later", created=True)
    one.beat()
    assert one.owned == A | {("later", 0)}


def test_a_topic_that_is_deleted_is_taken_away() -> None:
    world = World()
    one = world.joined("one", "a", "b")
    assert one.owned == A | B
    world.topics.delete("b")
    world.topics_changed(deleted="b")
    one.beat()
    assert one.assigned == A
    assert world.group.member("one").state is MemberState.UNREVOKED_PARTITIONS
    one.revoke()
    one.heartbeat()
    assert (one.epoch, one.owned) == (2, A)


def test_a_topic_that_is_deleted_and_created_again_is_another_topic() -> None:
    world = World(FakeTopics(a=1))
    one = world.joined("one", "a")
    old = world.topics.ids["a"]
    world.topics.delete("a")
    world.topics.create("a", 1)
    world.topics_changed("a", created=True)
    one.beat()
    # By id: it has to give back the old one first.
    assert one.epoch == 1
    one.heartbeat(topic_partitions=())
    assert one.epoch == 2
    assert list(world.group.member("one").assigned) == [world.topics.ids["a"]]
    assert world.topics.ids["a"] != old


def test_a_topic_with_other_racks_moves_the_epoch() -> None:
    world = World()
    one = world.joined("one", "a")
    world.topics.racks_of[("a", 0)] = ["r1"]
    world.topics_changed("a")
    one.beat()
    assert one.epoch == 2


def test_after_a_restart_a_group_looks_at_its_topics() -> None:
    world = World()
    one = world.joined("one", "a")
    world.topics.grow("a", 4)
    world.driver.restart()
    one.beat()
    assert one.owned == A | {("a", 3)}


def test_an_epoch_that_could_not_be_written_is_tried_again() -> None:
    world = World()
    one = world.joined("one", "a")
    world.topics.grow("a", 4)
    world.topics_changed("a")
    world.driver.append_error = NO_DISK
    assert one.refused() is NO_DISK.code
    world.driver.append_error = None
    one.beat()
    assert one.epoch == 2


def test_a_new_subscription_moves_the_epoch() -> None:
    world = World()
    one = world.joined("one", "a")
    one.topics = ["a", "b"]
    one.heartbeat()
    assert (one.epoch, one.owned) == (2, A | B)
    one.topics = ["b"]
    one.heartbeat()
    assert one.epoch == 2
    assert one.assigned == B
    one.revoke()
    one.heartbeat()
    assert (one.epoch, one.owned) == (3, B)


def test_the_same_subscription_in_another_order_is_no_news() -> None:
    world = World()
    one = world.joined("one", "a", "b")
    one.topics = ["b", "a"]
    mark = len(world.driver.log)
    one.heartbeat()
    assert len(world.driver.log) == mark


def test_a_member_without_topics_is_a_member() -> None:
    world = World()
    one = world.joined("one")
    assert (one.epoch, one.owned) == (1, set())
    assert world.state() == "Stable"


def test_a_new_rack_is_written_without_a_new_epoch() -> None:
    world = World()
    one = world.joined("one", "a")
    mark = len(world.driver.log)
    one.beat(rack_id="r1")
    assert world.written(mark) == ["MemberMetadata"]
    assert world.group.member("one").rack_id == "r1"
    assert one.epoch == 1


def test_the_assignor_that_most_members_ask_for_is_taken() -> None:
    world = World()
    one = world.joined("one", "a", assignor="range")
    assert world.machine.consumer.describe(GROUP).assignor_name == "range"
    two = world.joined("two", "a", assignor="uniform")
    three = world.joined("three", "a", assignor="uniform")
    assert world.machine.consumer.describe(GROUP).assignor_name == "uniform"
    world.settle(one, two, three)
    assert world.state() == "Stable"


def test_range_gives_the_first_members_the_lower_partitions() -> None:
    world = World(FakeTopics(a=3, b=3))
    one = world.consumer("one", "a", "b", assignor="range")
    two = world.consumer("two", "a", "b", assignor="range")
    world.settle(one, two)
    assert sorted(map(len, (one.owned, two.owned))) == [2, 4]


def test_without_a_preference_the_first_assignor_of_the_config_is_taken() -> None:
    world = World(group_consumer_assignors=("range", "uniform"))
    world.joined("one", "a")
    assert world.machine.consumer.describe(GROUP).assignor_name == "range"


def test_subscription_metadata_of_an_older_release_is_deleted_with_the_next_check() -> None:
    world = World()
    one = world.joined("one", "a")
    record = CoordinatorRecord(
        ConsumerGroupPartitionMetadataKey(group_id=GROUP), ConsumerGroupPartitionMetadataValue(), 0
    )
    world.driver.carry_out(Effects([record]))
    world.topics_changed("a")
    mark = len(world.driver.log)
    one.beat()
    assert world.written(mark) == ["-PartitionMetadata"]
    one.beat()
    assert len(world.driver.log) == mark + 1


def test_the_hash_is_in_the_record_of_the_epoch() -> None:
    world = World()
    world.joined("one", "a")
    value = world.records()[1].value
    assert isinstance(value, ConsumerGroupMetadataValue)
    assert value.metadata_hash == TopicHashes(world.topics).of_group(["a"])
