"""The target assignment: what is found out quickly is what the assignor would come to."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from dohle.groups.consumer.member import ConsumerMember
from dohle.groups.consumer.target import assign_anew, assign_changes
from tests.groups.consumer.consumer_world import Consumer, FakeTopics, World

WANTED = ("a", "b")


def _both_ways(world: World, updated: ConsumerMember) -> None:
    group = world.group
    anew = assign_anew(group, updated, world.topics, epoch=9, assignor="uniform")
    changes = assign_changes(group, updated, world.topics)
    assert changes is not None
    assert {**group.target, **changes} == anew
    others = changes.keys() - {updated.member_id}
    assert all(group.target[member_id] != changes[member_id] for member_id in others)


@settings(deadline=None)
@given(
    counts=st.tuples(st.integers(0, 12), st.integers(0, 12)),
    names=st.permutations("klmnopqrstuvw"),
    joining=st.integers(1, 10),
    leaving=st.lists(st.integers(0, 9), max_size=4),
    growth=st.integers(0, 7),
)
def test_what_one_member_changes_is_what_the_assignor_would_change(
    counts: tuple[int, int],
    names: Sequence[str],
    joining: int,
    leaving: list[int],
    growth: int,
) -> None:
    world = World(FakeTopics(**dict(zip(WANTED, counts, strict=True))))
    consumers: list[Consumer] = []
    for name in names[:joining]:
        consumers.append(world.joined(name, *WANTED))
        _both_ways(world, ConsumerMember("new", subscribed_topic_names=frozenset(WANTED)))
    for number in leaving:
        if number < len(consumers) and len(consumers) > 1:
            consumers.pop(number).leave()
    world.topics.grow("a", counts[0] + growth)
    _both_ways(world, world.group.members[consumers[0].name])
    _both_ways(world, ConsumerMember("aaa", subscribed_topic_names=frozenset(WANTED)))


def test_members_that_want_different_topics_are_left_to_the_assignor() -> None:
    world = World()
    world.joined("one", "a")
    other = ConsumerMember("two", subscribed_topic_names=frozenset({"b"}))
    by_regex = ConsumerMember(
        "two", subscribed_topic_names=frozenset({"a"}), subscribed_topic_regex="b"
    )
    assert assign_changes(world.group, other, world.topics) is None
    assert assign_changes(world.group, by_regex, world.topics) is None


def test_a_target_with_a_deleted_topic_or_one_partition_twice_is_left_to_the_assignor() -> None:
    world = World()
    world.joined("one", "a", "b")
    new = ConsumerMember("two", subscribed_topic_names=frozenset({"a", "b"}))
    assert assign_changes(world.group, new, world.topics) is not None
    world.joined("two", "a", "b")
    world.group.set_target("two", world.group.target["one"])
    assert assign_changes(world.group, new, world.topics) is None
    world = World()
    world.joined("one", "a", "b")
    world.topics.delete("b")
    assert assign_changes(world.group, new, world.topics) is None


def test_a_static_member_in_the_place_of_another_is_left_to_the_assignor() -> None:
    world = World()
    world.joined("one", "a", instance="i")
    back = ConsumerMember("back", instance_id="i", subscribed_topic_names=frozenset({"a"}))
    assert assign_changes(world.group, back, world.topics) is None


def test_the_index_of_the_target_survives_a_restart() -> None:
    world = World()
    for name in ("one", "two", "three"):
        world.joined(name, "a", "b")
    before = (world.group.member_ids, world.group.target_sizes)
    assert before == (["one", "three", "two"], {"one": 2, "two": 2, "three": 2})
    world.driver.restart()
    assert (world.group.member_ids, world.group.target_sizes) == before
