from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import BrokerId
from dohle.core.seams import Rng
from dohle.metadata.image import BrokerRegistration
from dohle.metadata.placement import place_replicas
from tests.metadata.cluster import uuid


def broker(
    number: int, rack: str | None = None, *, fenced: bool = False, stopping: bool = False
) -> BrokerRegistration:
    return BrokerRegistration(
        BrokerId(number), 1, uuid(number), {}, rack, fenced, in_controlled_shutdown=stopping
    )


BROKERS = st.lists(
    st.tuples(st.sampled_from((None, "a", "b", "c")), st.booleans()), min_size=1, max_size=9
).map(lambda rows: [broker(id_, rack, fenced=fenced) for id_, (rack, fenced) in enumerate(rows)])


@given(BROKERS, st.integers(1, 40), st.data())
def test_no_partition_has_a_broker_twice_and_no_leader_is_fenced(
    brokers: list[BrokerRegistration], partitions: int, data: st.DataObject
) -> None:
    unfenced = {each.id for each in brokers if not each.fenced}
    factor = data.draw(st.integers(1, len(brokers)))
    if not unfenced:
        return
    placed = place_replicas(brokers, partitions, factor, Rng(data.draw(st.integers(0, 99))))
    assert len(placed) == partitions
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        assert replicas[0] in unfenced


@given(st.integers(1, 8), st.integers(1, 40), st.integers(0, 99))
def test_leaders_are_spread_evenly_over_a_cluster_without_racks(
    count: int, partitions: int, seed: int
) -> None:
    brokers = [broker(number) for number in range(count)]
    placed = place_replicas(brokers, partitions, 1, Rng(seed))
    leads = Counter(replicas[0] for replicas in placed)
    assert max(leads.values()) - min(leads[each.id] for each in brokers) <= 1


@given(st.integers(1, 30), st.integers(0, 99))
def test_replicas_are_in_as_many_racks_as_there_are(partitions: int, seed: int) -> None:
    racks = {BrokerId(number): "abc"[number % 3] for number in range(9)}
    brokers = [broker(number, rack) for number, rack in racks.items()]
    for replicas in place_replicas(brokers, partitions, 3, Rng(seed)):
        assert {racks[replica] for replica in replicas} == {"a", "b", "c"}


def test_partitions_of_one_cluster_differ_from_each_other() -> None:
    brokers = [broker(number) for number in range(5)]
    placed = place_replicas(brokers, 5, 3, Rng(1))
    assert all(one != next_one for one, next_one in pairwise(placed))
    assert len(set(placed)) == 5


def test_a_fenced_broker_is_taken_only_if_no_other_is_left() -> None:
    brokers = [broker(1), broker(2), broker(3, fenced=True)]
    assert all(3 not in replicas for replicas in place_replicas(brokers, 20, 2, Rng(1)))
    assert all(replicas[2] == 3 for replicas in place_replicas(brokers, 20, 3, Rng(1)))


@pytest.mark.parametrize(
    ("brokers", "factor", "message"),
    [
        ([broker(1)], 2, "only 1 broker"),
        ([broker(1), broker(2, stopping=True)], 2, "only 1 broker"),
        ([broker(1, fenced=True)], 1, "currently fenced"),
        ([], 1, "currently fenced"),
        ([broker(1)], 0, "must be positive"),
    ],
)
def test_too_few_brokers_are_refused(
    brokers: list[BrokerRegistration], factor: int, message: str
) -> None:
    with pytest.raises(KafkaError, match=message) as refused:
        place_replicas(brokers, 1, factor, Rng(1))
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


class _Unmoved(Rng):
    """Chance that always takes the first, and leaves every order as it is."""

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return 0

    def shuffle(self, x: object) -> None:
        pass


def racks(*sizes: int) -> list[BrokerRegistration]:
    """Return racks a, b, … with brokers 10, 11, …; 20, 21, …"""
    return [
        broker(10 * (1 + rack) + each, "abc"[rack])
        for rack, size in enumerate(sizes)
        for each in range(size)
    ]


def test_three_racks_of_three_take_turns() -> None:
    """P4: (A0,B0,C0), (B1,C1,A1), (C2,A2,B2), and the same again until nine are placed."""
    placed = place_replicas(racks(3, 3, 3), 9, 3, _Unmoved())
    assert placed == [(10, 20, 30), (21, 31, 11), (32, 12, 22)] * 3


def test_a_fourth_replica_is_in_the_rack_of_the_first() -> None:
    """P4: the first replica's rack is the doubled one."""
    placed = place_replicas(racks(3, 3, 3), 2, 4, _Unmoved())
    assert placed == [(10, 20, 30, 11), (21, 31, 11, 22)]


def test_after_as_many_partitions_as_there_are_brokers_the_order_is_shuffled() -> None:
    """P3: not with a single broker that is not fenced (P4)."""
    shuffled: list[int] = []

    class Counting(_Unmoved):
        def shuffle(self, x: object) -> None:
            shuffled.append(1)

    place_replicas(racks(3, 3, 3), 9, 3, Counting())
    assert not shuffled
    place_replicas(racks(3, 3, 3), 10, 3, Counting())
    # The racks, and the fenced and unfenced brokers of each.
    assert len(shuffled) == 7
    shuffled.clear()
    alone = [broker(1), broker(2, fenced=True)]
    placed = place_replicas(alone, 5, 2, Counting())
    assert (set(placed), shuffled) == ({(1, 2)}, [])


def test_brokers_without_a_rack_are_one_rack_before_those_with_names() -> None:
    """P1, P2."""
    brokers = [broker(1, "a"), broker(2), broker(3)]
    assert place_replicas(brokers, 2, 2, _Unmoved()) == [(2, 1), (1, 3)]
