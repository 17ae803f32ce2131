"""Keys go where Java clients and librdkafka put them; records without keys stay together."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from aiokafka.partitioner import murmur2 as murmur2_of_aiokafka
from hypothesis import given, settings
from hypothesis import strategies as st

from dohle.client.producer.partitioner import StickyPartitioner, murmur2, partition_of_key
from dohle.core.ids import TopicName

TOPIC = TopicName("t")


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_gives_the_values_of_java(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_murmur2_agrees_with_aiokafka(key: bytes) -> None:
    assert murmur2(key) & 0xFFFFFFFF == murmur2_of_aiokafka(key) & 0xFFFFFFFF


@settings(deadline=None)
@given(st.binary(max_size=50), st.integers(1, 1000))
def test_a_key_has_one_partition_within_range(key: bytes, partitions: int) -> None:
    assert 0 <= partition_of_key(key, partitions) < partitions


def test_records_without_a_key_stay_until_they_are_moved() -> None:
    sticky = StickyPartitioner(random.Random(1))
    first = sticky.current(TOPIC, range(10))
    assert all(sticky.current(TOPIC, range(10)) == first for _ in range(20))
    moved = sticky.move(TOPIC, range(10))
    assert moved != first
    assert sticky.current(TOPIC, range(10)) == moved


def test_moving_reaches_all_partitions_alike() -> None:
    sticky = StickyPartitioner(random.Random(1))
    seen = Counter(sticky.move(TOPIC, range(5)) for _ in range(5000))
    assert set(seen) == set(range(5))
    assert max(seen.values()) < 1.2 * min(seen.values())


def test_a_partition_that_lost_its_leader_is_left() -> None:
    sticky = StickyPartitioner(random.Random(1))
    first = sticky.current(TOPIC, (0, 1))
    assert sticky.current(TOPIC, (1 - first,)) == 1 - first


def test_a_topic_of_one_partition_needs_no_other() -> None:
    sticky = StickyPartitioner(random.Random(1))
    assert sticky.move(TOPIC, (0,)) == sticky.move(TOPIC, (0,)) == 0
