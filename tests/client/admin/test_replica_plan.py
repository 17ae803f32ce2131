"""Plans of where replicas should be: valid, spread over racks, balanced, and with few moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.client.admin.replica_plan import moves, plan_replicas
from dohle.core.ids import TopicName, TopicPartition

TOPIC = TopicName("t")
Current = dict[TopicPartition, tuple[int, ...]]


def partitions(*replicas: Sequence[int]) -> Current:
    return {TopicPartition(TOPIC, index): tuple(each) for index, each in enumerate(replicas)}


def loads(
    planned: Mapping[TopicPartition, Sequence[int]], brokers: Mapping[int, object]
) -> Counter[int]:
    found = Counter(dict.fromkeys(brokers, 0))
    for replicas in planned.values():
        found.update(replicas)
    return found


ids = st.integers(1, 6)
currents = st.integers(1, 3).flatmap(
    lambda factor: st.lists(
        st.lists(ids, min_size=factor, max_size=factor, unique=True), min_size=1, max_size=20
    )
)
targets = st.dictionaries(
    st.integers(1, 8), st.sampled_from(("a", "b", "c")), min_size=3, max_size=8
)


@given(current=currents, brokers=targets, has_racks=st.booleans(), balance=st.booleans())
def test_every_plan_is_valid_and_planning_again_changes_nothing(
    current: list[list[int]], brokers: dict[int, str], has_racks: bool, balance: bool
) -> None:
    before = partitions(*current)
    racks = {broker: rack if has_racks else None for broker, rack in brokers.items()}
    planned = plan_replicas(before, racks, balance=balance)
    assert planned.keys() == before.keys()
    for key, replicas in planned.items():
        assert len(set(replicas)) == len(replicas) == len(before[key])
        assert set(replicas) <= set(brokers)
    if has_racks:
        sizes = Counter(brokers.values())
        for replicas in planned.values():
            used = Counter(brokers[each] for each in replicas)
            # No rack has two more than another that has room.
            for rack, size in sizes.items():
                if used[rack] < size:
                    assert max(used.values()) - used[rack] <= 1
    elif balance:
        found = loads(planned, brokers)
        assert max(found.values()) - min(found.values()) <= 1
    assert plan_replicas(planned, racks, balance=balance) == planned


@given(current=currents, gone=ids)
def test_to_remove_a_broker_moves_what_it_has_and_nothing_else(
    current: list[list[int]], gone: int
) -> None:
    before = partitions(*current)
    brokers = dict.fromkeys(set(range(1, 7)) - {gone})
    planned = plan_replicas(before, brokers, balance=False)
    for key, replicas in planned.items():
        for old, new in zip(before[key], replicas, strict=True):
            assert (old == new) == (old != gone)


@given(current=currents)
def test_balancing_moves_no_more_than_it_must(current: list[list[int]]) -> None:
    before = partitions(*current)
    brokers = dict.fromkeys(range(1, 7))
    planned = plan_replicas(before, brokers)
    moved = sum(map(len, moves(before, planned).values()))
    held = loads(before, brokers)
    average, over = divmod(sum(held.values()), len(brokers))
    # The fullest brokers may be the ones that have one more than the others.
    wanted = sorted((average + (index < over) for index in range(len(brokers))), reverse=True)
    excess = zip(sorted(held.values(), reverse=True), wanted, strict=True)
    assert moved == sum(max(has - should, 0) for has, should in excess)


def test_a_new_broker_gets_its_share_of_replicas_and_of_leaderships() -> None:
    before = partitions((1, 2), (2, 1), (1, 2), (2, 1), (1, 2), (2, 1))
    planned = plan_replicas(before, dict.fromkeys((1, 2, 3)))
    assert loads(planned, {1: None, 2: None, 3: None}) == {1: 4, 2: 4, 3: 4}
    assert Counter(replicas[0] for replicas in planned.values()) == {1: 2, 2: 2, 3: 2}
    assert sum(map(len, moves(before, planned).values())) == 4


def test_two_replicas_in_one_rack_are_put_apart() -> None:
    planned = plan_replicas(partitions((1, 2)), {1: "a", 2: "a", 3: "b"}, balance=False)
    assert planned == partitions((1, 3))


def test_the_number_of_replicas_may_change() -> None:
    before = partitions((1, 2), (2, 3), (3, 1))
    brokers = dict.fromkeys((1, 2, 3))
    more = plan_replicas(before, brokers, replication_factor=3)
    assert all(set(replicas) == {1, 2, 3} for replicas in more.values())
    fewer = plan_replicas(before, brokers, replication_factor=1)
    assert loads(fewer, brokers) == {1: 1, 2: 1, 3: 1}
    assert moves(before, fewer) == {}


def test_too_few_brokers_are_refused() -> None:
    with pytest.raises(ValueError, match="t-0 is to have 2 replicas, and there are too few"):
        plan_replicas(partitions((1, 2)), {1: None})


@given(current=currents, away=ids, balance=st.booleans())
def test_a_broker_that_is_down_keeps_what_it_has_and_gets_nothing(
    current: list[list[int]], away: int, balance: bool
) -> None:
    before = partitions(*current)
    brokers = dict.fromkeys(set(range(1, 7)) - {away})
    planned = plan_replicas(before, brokers, down={away: None}, balance=balance)
    for key, replicas in planned.items():
        assert (away in replicas) == (away in before[key])
    if balance:
        found = loads(planned, brokers)
        del found[away]
        assert max(found.values()) - min(found.values()) <= 1 or away in loads(before, {})
