"""The server-side assignors: what they promise, by tables and by properties."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.core.ids import Uuid
from dohle.groups.assignors.assignment import Assignment, Assignor, MemberSubscription
from dohle.groups.assignors.registry import ASSIGNORS

UNIFORM = ASSIGNORS["uniform"]
RANGE = ASSIGNORS["range"]


def topic(number: int) -> Uuid:
    return Uuid(b"topic" + number.to_bytes(11, "big"))


T1, T2, T3, T4 = (topic(number) for number in range(1, 5))


def member(
    *topic_ids: Uuid, instance_id: str | None = None, **assigned: tuple[int, ...]
) -> MemberSubscription:
    """Make a member; what it has is given as T1=(0, 1)."""
    names = {"T1": T1, "T2": T2, "T3": T3, "T4": T4}
    return MemberSubscription(
        frozenset(topic_ids),
        {names[name]: frozenset(partitions) for name, partitions in assigned.items()},
        instance_id,
    )


def having(
    members: Mapping[str, MemberSubscription], assignments: Mapping[str, Assignment]
) -> dict[str, MemberSubscription]:
    """Return the members with these assignments."""
    return {
        member_id: MemberSubscription(
            member.subscribed_topic_ids, assignments.get(member_id, {}), member.instance_id
        )
        for member_id, member in members.items()
    }


def pairs(assignment: Assignment) -> set[tuple[Uuid, int]]:
    return {(topic_id, p) for topic_id, partitions in assignment.items() for p in partitions}


def size(assignment: Assignment) -> int:
    return sum(map(len, assignment.values()))


def sizes(assignments: Mapping[str, Assignment]) -> list[int]:
    return sorted(size(assignment) for assignment in assignments.values())


def assert_valid(
    members: Mapping[str, MemberSubscription],
    counts: Mapping[Uuid, int],
    assignments: Mapping[str, Assignment],
) -> None:
    """Every partition of a subscribed topic has one owner, and that is a subscriber."""
    assert set(assignments) == set(members)
    assigned = [pair for assignment in assignments.values() for pair in pairs(assignment)]
    subscribed = (
        set().union(*(m.subscribed_topic_ids for m in members.values())) if members else set()
    )
    assert sorted(assigned) == [(t, p) for t in sorted(subscribed) for p in range(counts[t])]
    for member_id, assignment in assignments.items():
        assert assignment.keys() <= members[member_id].subscribed_topic_ids
        assert all(assignment.values())


COUNTS = st.fixed_dictionaries({t: st.integers(0, 12) for t in (T1, T2, T3, T4)})
MEMBER_IDS = st.text("abcxyz", min_size=1, max_size=3)
TOPIC_SETS = st.frozensets(st.sampled_from([T1, T2, T3, T4]), max_size=4)


@st.composite
def groups(
    draw: st.DrawFn, *, homogeneous: bool, owning: bool = True
) -> dict[str, MemberSubscription]:
    """Members, with whatever they may have had: also what is gone, foreign or had by two."""
    member_ids = draw(st.lists(MEMBER_IDS, unique=True, max_size=8))
    same = draw(TOPIC_SETS) if homogeneous else None
    members = {}
    for member_id in member_ids:
        assigned: dict[Uuid, frozenset[int]] = {}
        if owning:
            assigned = draw(
                st.dictionaries(
                    st.sampled_from([T1, T2, T3, T4, topic(99)]),
                    st.frozensets(st.integers(0, 14), min_size=1, max_size=8),
                    max_size=3,
                )
            )
        subscribed = draw(TOPIC_SETS) if same is None else same
        instance_id = draw(st.sampled_from([None, f"instance-{member_id}"]))
        members[member_id] = MemberSubscription(subscribed, assigned, instance_id)
    return members


GROUPS = st.booleans().flatmap(lambda homogeneous: groups(homogeneous=homogeneous))
ANY = pytest.mark.parametrize("assignor", [UNIFORM, RANGE], ids=["uniform", "range"])


@ANY
def test_no_members_get_nothing(assignor: Assignor) -> None:
    assert assignor({}, {T1: 3}) == {}


@ANY
def test_members_without_subscriptions_get_nothing(assignor: Assignor) -> None:
    assert assignor({"a": member(T1=(0,)), "b": member()}, {T1: 3}) == {"a": {}, "b": {}}


@ANY
@pytest.mark.parametrize("other", [member(T2), member(T1, T2)])
def test_an_unknown_topic_is_refused(assignor: Assignor, other: MemberSubscription) -> None:
    with pytest.raises(ValueError, match="unknown topic"):
        assignor({"a": member(T2), "b": other}, {T1: 3})


@ANY
@given(members=GROUPS, counts=COUNTS)
def test_every_partition_has_one_owner_who_wants_it(
    assignor: Assignor, members: dict[str, MemberSubscription], counts: dict[Uuid, int]
) -> None:
    assert_valid(members, counts, assignor(members, counts))


@ANY
@given(members=GROUPS, counts=COUNTS)
def test_the_order_of_members_does_not_matter(
    assignor: Assignor, members: dict[str, MemberSubscription], counts: dict[Uuid, int]
) -> None:
    reordered = dict(reversed(members.items()))
    assert assignor(reordered, counts) == assignor(members, counts)


@ANY
@given(members=GROUPS, counts=COUNTS)
def test_without_a_change_nothing_moves(
    assignor: Assignor, members: dict[str, MemberSubscription], counts: dict[Uuid, int]
) -> None:
    first = assignor(members, counts)
    assert assignor(having(members, first), counts) == first


# Range


def test_ranges_are_contiguous_and_the_first_members_get_one_more() -> None:
    members = {"a": member(T1), "b": member(T1), "c": member(T1)}
    assert RANGE(members, {T1: 8}) == {
        "a": {T1: frozenset({0, 1, 2})},
        "b": {T1: frozenset({3, 4, 5})},
        "c": {T1: frozenset({6, 7})},
    }


def test_topics_with_as_many_partitions_are_copartitioned() -> None:
    members = {"a": member(T1, T2), "b": member(T1, T2)}
    assert RANGE(members, {T1: 3, T2: 3}) == {
        "a": {T1: frozenset({0, 1}), T2: frozenset({0, 1})},
        "b": {T1: frozenset({2}), T2: frozenset({2})},
    }


def test_more_members_than_partitions_leave_the_last_ones_without() -> None:
    members = {"a": member(T1), "b": member(T1), "c": member(T1)}
    assert RANGE(members, {T1: 2}) == {
        "a": {T1: frozenset({0})},
        "b": {T1: frozenset({1})},
        "c": {},
    }


def test_each_topic_is_divided_among_its_own_subscribers() -> None:
    members = {"a": member(T1, T2), "b": member(T3), "c": member(T2, T3)}
    assert RANGE(members, {T1: 3, T2: 3, T3: 2}) == {
        "a": {T1: frozenset({0, 1, 2}), T2: frozenset({0, 1})},
        "b": {T3: frozenset({0})},
        "c": {T2: frozenset({2}), T3: frozenset({1})},
    }


def test_static_members_come_first_by_instance_id() -> None:
    members = {
        "a": member(T1),
        "z": member(T1, instance_id="1"),
        "y": member(T1, instance_id="2"),
    }
    assert RANGE(members, {T1: 3}) == {
        "z": {T1: frozenset({0})},
        "y": {T1: frozenset({1})},
        "a": {T1: frozenset({2})},
    }


def test_a_restarted_static_member_keeps_its_ranges() -> None:
    before = {"a": member(T1, instance_id="1"), "b": member(T1, instance_id="2")}
    after = {"z": member(T1, instance_id="1"), "b": member(T1, instance_id="2")}
    first, second = RANGE(before, {T1: 5}), RANGE(after, {T1: 5})
    assert second == {"z": first["a"], "b": first["b"]}


@given(members=GROUPS, counts=COUNTS)
def test_ranges_of_a_topic_differ_by_one_at_most(
    members: dict[str, MemberSubscription], counts: dict[Uuid, int]
) -> None:
    assignments = RANGE(members, counts)
    for topic_id in counts:
        lengths = []
        for member_id, subscription in members.items():
            if topic_id in subscription.subscribed_topic_ids:
                partitions = sorted(assignments[member_id].get(topic_id, ()))
                lengths.append(len(partitions))
                assert partitions == list(
                    range(partitions[0], partitions[-1] + 1) if partitions else []
                )
        assert not lengths or max(lengths) - min(lengths) <= 1


# Uniform, all members with the same subscription


def test_a_new_group_is_filled_member_by_member() -> None:
    members = {"a": member(T1, T2), "b": member(T1, T2)}
    assert UNIFORM(members, {T1: 3, T2: 2}) == {
        "a": {T1: frozenset({0, 1, 2})},
        "b": {T2: frozenset({0, 1})},
    }


def test_a_joining_member_gets_its_share_and_no_more_moves() -> None:
    members = {"a": member(T1, T1=(0, 2, 4)), "b": member(T1, T1=(1, 3, 5)), "c": member(T1)}
    assert UNIFORM(members, {T1: 6}) == {
        "a": {T1: frozenset({0, 2})},
        "b": {T1: frozenset({1, 3})},
        "c": {T1: frozenset({4, 5})},
    }


def test_what_a_leaving_member_had_goes_to_the_others() -> None:
    members = {"a": member(T1, T1=(0, 3)), "c": member(T1, T1=(2, 5))}
    assert UNIFORM(members, {T1: 6}) == {
        "a": {T1: frozenset({0, 1, 3})},
        "c": {T1: frozenset({2, 4, 5})},
    }


def test_who_has_one_more_already_keeps_it() -> None:
    members = {"a": member(T1, T1=(0,)), "b": member(T1, T1=(1, 2)), "c": member(T1)}
    assert UNIFORM(members, {T1: 4}) == {
        "a": {T1: frozenset({0})},
        "b": {T1: frozenset({1, 2})},
        "c": {T1: frozenset({3})},
    }


def test_an_unsubscribed_topic_is_dropped_and_new_partitions_are_given_away() -> None:
    members = {"a": member(T1, T1=(0,), T2=(0, 1)), "b": member(T1, T1=(1,))}
    assert UNIFORM(members, {T1: 4, T2: 2}) == {
        "a": {T1: frozenset({0, 2})},
        "b": {T1: frozenset({1, 3})},
    }


@given(members=groups(homogeneous=True), counts=COUNTS)
def test_uniform_numbers_differ_by_one_at_most(
    members: dict[str, MemberSubscription], counts: dict[Uuid, int]
) -> None:
    found = sizes(UNIFORM(members, counts))
    assert not found or found[-1] - found[0] <= 1


@given(members=groups(homogeneous=True, owning=False), counts=COUNTS, data=st.data())
def test_uniform_moves_only_what_balance_demands(
    members: dict[str, MemberSubscription], counts: dict[Uuid, int], data: st.DataObject
) -> None:
    had: dict[str, dict[Uuid, frozenset[int]]] = {member_id: {} for member_id in members}
    if members:
        owners = [None, *members]
        for topic_id, count in counts.items():
            for partition in range(count):
                owner = data.draw(st.sampled_from(owners))
                if owner is not None:
                    had[owner][topic_id] = had[owner].get(topic_id, frozenset()) | {partition}
    assignments = UNIFORM(having(members, had), counts)
    assert_valid(members, counts, assignments)
    wanted = next(iter(members.values())).subscribed_topic_ids if members else frozenset()
    valid = [sum(len(parts) for t, parts in mine.items() if t in wanted) for mine in had.values()]
    quota, extra = divmod(sum(counts[t] for t in wanted), len(members) or 1)
    kept = sum(len(pairs(assignments[m]) & pairs(had[m])) for m in members)
    most = sum(min(count, quota) for count in valid) + min(extra, sum(c > quota for c in valid))
    assert kept == most


@given(members=groups(homogeneous=True), counts=COUNTS, data=st.data())
def test_nobody_who_stays_loses_anything_when_a_member_leaves(
    members: dict[str, MemberSubscription], counts: dict[Uuid, int], data: st.DataObject
) -> None:
    first = UNIFORM(members, counts)
    if not members:
        return
    leaving = data.draw(st.sampled_from(sorted(members)))
    staying = {member_id: m for member_id, m in members.items() if member_id != leaving}
    second = UNIFORM(having(staying, first), counts)
    for member_id in staying:
        assert pairs(second[member_id]) >= pairs(first[member_id])


# Uniform, members with different subscriptions


def test_scarce_topics_are_given_away_first() -> None:
    members = {"a": member(T1), "b": member(T1, T2), "c": member(T2, T3)}
    assignments = UNIFORM(members, {T1: 3, T2: 3, T3: 3})
    assert assignments["c"] == {T3: frozenset({0, 1, 2})}
    assert sizes(assignments) == [3, 3, 3]


def test_a_member_that_wants_more_topics_gets_no_more_partitions() -> None:
    members = {"a": member(T1), "b": member(T1, T2)}
    assert UNIFORM(members, {T1: 4, T2: 2}) == {
        "a": {T1: frozenset({0, 1, 2})},
        "b": {T1: frozenset({3}), T2: frozenset({0, 1})},
    }


def test_an_overloaded_member_gives_up_its_last_partitions() -> None:
    members = {"a": member(T1, T1=(0, 1, 2, 3)), "b": member(T1, T2)}
    assert UNIFORM(members, {T1: 4, T2: 0}) == {
        "a": {T1: frozenset({0, 1})},
        "b": {T1: frozenset({2, 3})},
    }


def test_a_member_keeps_what_only_it_wants_however_much() -> None:
    members = {"a": member(T1, T2, T1=tuple(range(9)), T2=(0, 1)), "b": member(T2)}
    assert UNIFORM(members, {T1: 9, T2: 2}) == {
        "a": {T1: frozenset(range(9))},
        "b": {T2: frozenset({0, 1})},
    }


@given(members=groups(homogeneous=False), counts=COUNTS)
def test_no_single_move_makes_the_numbers_more_even(
    members: dict[str, MemberSubscription], counts: dict[Uuid, int]
) -> None:
    assignments = UNIFORM(members, counts)
    for assignment in assignments.values():
        for topic_id in assignment:
            for other, subscription in members.items():
                if topic_id in subscription.subscribed_topic_ids:
                    assert size(assignment) - size(assignments[other]) <= 1
