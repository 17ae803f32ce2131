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
