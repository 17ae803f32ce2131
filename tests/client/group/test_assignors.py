from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyAssignorUserDataV1
from hypothesis import given
from hypothesis import strategies as st

from dohle.client.group.assignors import ASSIGNORS, Assignment, Members
from dohle.client.group.consumer_protocol import (
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from dohle.client.group.sticky_user_data import read_user_data, write_user_data
from dohle.core.ids import TopicName, TopicPartition
from dohle.protocol.errors import MalformedMessage

A, B, C = TopicName("a"), TopicName("b"), TopicName("c")
TOPICS = (A, B, C)

members_of_one_kind = st.integers(1, 6).map(
    lambda count: {f"m{number}": Subscription((A, B)) for number in range(count)}
)
any_members = st.dictionaries(
    st.sampled_from([f"m{number}" for number in range(6)]),
    st.sets(st.sampled_from(TOPICS)).map(lambda topics: Subscription(tuple(sorted(topics)))),
    min_size=1,
)
any_counts = st.fixed_dictionaries({topic: st.integers(0, 9) for topic in TOPICS})


def wanted(members: Members, counts: dict[TopicName, int]) -> set[TopicPartition]:
    topics = {topic for subscription in members.values() for topic in subscription.topics}
    return {TopicPartition(topic, each) for topic in topics for each in range(counts[topic])}


def flat(assignment: Assignment) -> list[TopicPartition]:
    return [each for some in assignment.values() for each in some]


@pytest.mark.parametrize("name", ASSIGNORS)
@given(members=any_members, counts=any_counts)
def test_what_is_wanted_has_one_owner_who_wants_it(
    name: str, members: dict[str, Subscription], counts: dict[TopicName, int]
) -> None:
    assignment = ASSIGNORS[name].assign(members, counts)
    assert assignment.keys() == members.keys()
    assert sorted(flat(assignment)) == sorted(wanted(members, counts))
    for member_id, partitions in assignment.items():
        assert {each.topic for each in partitions} <= set(members[member_id].topics)


@pytest.mark.parametrize("name", ["roundrobin", "sticky", "cooperative-sticky"])
@given(members=members_of_one_kind, counts=any_counts)
def test_members_who_want_the_same_get_equally_many(
    name: str, members: dict[str, Subscription], counts: dict[TopicName, int]
) -> None:
    sizes = [len(some) for some in ASSIGNORS[name].assign(members, counts).values()]
    assert max(sizes) - min(sizes) <= 1


def test_ranges_are_neighbours_and_the_first_members_have_the_larger_ones() -> None:
    members = {"m2": Subscription((A,)), "m1": Subscription((A,)), "m3": Subscription((B,))}
    assert ASSIGNORS["range"].assign(members, {A: 5, B: 1}) == {
        "m1": [TopicPartition(A, 0), TopicPartition(A, 1), TopicPartition(A, 2)],
        "m2": [TopicPartition(A, 3), TopicPartition(A, 4)],
        "m3": [TopicPartition(B, 0)],
    }


def test_static_members_are_placed_by_their_names_across_restarts() -> None:
    before = {
        "x": Subscription((A,), instance_id="two"),
        "y": Subscription((A,), instance_id="one"),
    }
    after = {
        "z": Subscription((A,), instance_id="one"),
        "w": Subscription((A,), instance_id="two"),
    }
    counts = {A: 2}
    assert ASSIGNORS["range"].assign(before, counts)["y"] == [TopicPartition(A, 0)]
    assert ASSIGNORS["range"].assign(after, counts)["z"] == [TopicPartition(A, 0)]


def settle(
    members: dict[str, Subscription], counts: dict[TopicName, int]
) -> tuple[Assignment, int]:
    """Let members join again until nobody gives anything up; return how many rounds it took."""
    assignor = ASSIGNORS["cooperative-sticky"]
    for rounds in range(1, 4):
        assignment = assignor.assign(members, counts)
        given_up = [
            each for name in members for each in members[name].owned if each not in assignment[name]
        ]
        members = {
            name: Subscription(each.topics, tuple(assignment[name]), each.generation + 1)
            for name, each in members.items()
        }
        if not given_up:
            return assignment, rounds
    raise AssertionError("it does not come to rest")


@given(sizes=st.tuples(st.integers(1, 5), st.integers(1, 5)), counts=any_counts)
def test_partitions_move_by_being_given_up_first_and_no_more_than_must(
    sizes: tuple[int, int], counts: dict[TopicName, int]
) -> None:
    old, new = sizes
    before, _ = settle({f"m{n}": Subscription((A, B), (), 0) for n in range(old)}, counts)
    members = {f"m{n}": Subscription((A, B), tuple(before.get(f"m{n}", ())), 1) for n in range(new)}
    first = ASSIGNORS["cooperative-sticky"].assign(members, counts)
    owners = {each: name for name in members for each in members[name].owned}
    for name, partitions in first.items():
        assert all(owners.get(each, name) == name for each in partitions)
    after, _ = settle(members, counts)
    total = len(wanted(members, counts))
    assert len(flat(after)) == total
    sizes_after = [len(some) for some in after.values()]
    assert max(sizes_after) - min(sizes_after) <= 1
    # Whoever has most may have one more than the others, where it does not come out even.
    had = sorted((len(each.owned) for each in members.values()), reverse=True)
    most_kept = sum(min(size, total // new + (n < total % new)) for n, size in enumerate(had))
    assert sum(after[name].count(each) for each, name in owners.items()) == most_kept


def test_h21_of_two_who_claim_a_partition_the_one_of_the_later_generation_has_it() -> None:
    claimed = TopicPartition(A, 0)
    members = {
        "m1": Subscription((A,), (claimed,), 4),
        "m2": Subscription((A,), (claimed,), 5),
        "m3": Subscription((A,), (claimed,), 4),
    }
    assert ASSIGNORS["cooperative-sticky"].assign(members, {A: 1})["m2"] == [claimed]
    equal = {name: Subscription((A,), (claimed,), 4) for name in ("m1", "m2")}
    assert Counter(flat(ASSIGNORS["cooperative-sticky"].assign(equal, {A: 1}))) == {claimed: 1}


def with_user_data(topics: tuple[TopicName, ...], had: Iterable[TopicPartition]) -> Subscription:
    return Subscription(topics, user_data=write_user_data(had, 1))


@given(sizes=st.tuples(st.integers(1, 5), st.integers(1, 5)), counts=any_counts)
def test_sticky_members_get_back_what_they_had_as_far_as_it_is_fair(
    sizes: tuple[int, int], counts: dict[TopicName, int]
) -> None:
    old, new = sizes
    assign = ASSIGNORS["sticky"].assign
    before = assign({f"m{n}": Subscription((A, B)) for n in range(old)}, counts)
    members = {f"m{n}": with_user_data((A, B), before.get(f"m{n}", ())) for n in range(new)}
    after = assign(members, counts)
    total = len(wanted(members, counts))
    assert len(flat(after)) == total, "all at once: nobody reads during the rebalance"
    had = sorted((len(before.get(f"m{n}", ())) for n in range(new)), reverse=True)
    most_kept = sum(min(size, total // new + (n < total % new)) for n, size in enumerate(had))
    kept = sum(len({*after[name]} & {*before.get(name, ())}) for name in members)
    assert kept == most_kept


def test_of_two_sticky_members_who_had_a_partition_the_later_generation_has_it() -> None:
    had = [TopicPartition(A, 0)]
    members = {
        f"m{number}": Subscription((A,), user_data=write_user_data(had, generation))
        for number, generation in enumerate((4, 6, 5))
    }
    assert ASSIGNORS["sticky"].assign(members, {A: 1})["m1"] == had


@given(
    had=st.dictionaries(st.sampled_from(TOPICS), st.sets(st.integers(0, 9), min_size=1)),
    generation=st.integers(-1, 2**31 - 1),
)
def test_what_sticky_members_had_is_written_as_aiokafka_writes_it(
    had: dict[TopicName, set[int]], generation: int
) -> None:
    topics = sorted((topic, sorted(some)) for topic, some in had.items())
    partitions = tuple(TopicPartition(topic, each) for topic, some in topics for each in some)
    theirs = StickyAssignorUserDataV1(topics, generation).encode()
    assert write_user_data(partitions, generation) == theirs
    assert read_user_data(theirs) == (partitions, generation)
    # Version 0 is the same without the generation.
    assert read_user_data(theirs[:-4]) == (partitions, -1)


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x7f\xff\xff\xff", b"librdkafka has its own"])
def test_user_data_that_cannot_be_read_says_nothing(data: bytes) -> None:
    assert read_user_data(data) == ((), -1)


def test_what_members_tell_each_other_is_read_as_it_was_written() -> None:
    owned = (TopicPartition(A, 1), TopicPartition(A, 2), TopicPartition(B, 0))
    subscription = Subscription((A, B), owned, 7)
    assert read_subscription(write_subscription(subscription)) == subscription
    assert read_assignment(write_assignment(owned)) == owned
    assert read_assignment(b"") == ()


@pytest.mark.parametrize("data", [b"\x00", b"\xff\xff\x00\x00", b"\x00\x00\x00\x00\x00\x01"])
def test_metadata_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        read_subscription(data)
