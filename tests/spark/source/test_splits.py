"""Ranges of offsets as work of tasks: all of it, once, in about as many pieces as asked for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dohle.core.ids import TopicName, TopicPartition
from dohle.spark.source.splits import OffsetRange, split_ranges

T = TopicName("t")
Ranges = dict[TopicPartition, tuple[int, int]]

ranges = st.dictionaries(
    st.builds(TopicPartition, st.just(T), st.integers(0, 5)),
    st.tuples(st.integers(0, 1000), st.integers(0, 1000)).map(lambda r: (r[0], sum(r))),
)
some = st.none() | st.integers(1, 40)


def _sizes(work: list[OffsetRange]) -> list[int]:
    return [each.end - each.start for each in work]


@given(ranges, some, some)
def test_pieces_are_all_of_the_ranges_and_none_is_empty(
    wanted: Ranges, partitions_min: int | None, records_max: int | None
) -> None:
    work = split_ranges(wanted, {}, partitions_min=partitions_min, records_max=records_max)
    read = sorted((p.partition, o) for p in work for o in range(p.start, p.end))

    assert read == sorted((p.partition, o) for p, (a, b) in wanted.items() for o in range(a, b))
    assert all(size > 0 for size in _sizes(work))


@given(ranges, some, st.integers(1, 40))
def test_no_piece_is_larger_than_allowed(
    wanted: Ranges, partitions_min: int | None, records_max: int
) -> None:
    work = split_ranges(wanted, {}, partitions_min=partitions_min, records_max=records_max)

    assert max(_sizes(work), default=0) <= records_max


@given(ranges)
def test_without_options_there_is_one_task_a_partition(wanted: Ranges) -> None:
    work = split_ranges(wanted, {})

    assert [p.topic_partition for p in work] == sorted(p for p, (a, b) in wanted.items() if b > a)


def test_a_large_partition_is_cut_into_more_pieces_than_a_small_one() -> None:
    wanted = {TopicPartition(T, 0): (0, 9000), TopicPartition(T, 1): (500, 1500)}
    work = split_ranges(wanted, {T: "id"}, partitions_min=10)

    assert [p.partition for p in work] == [0] * 9 + [1]
    assert set(_sizes(work)) == {1000}
    assert {p.topic_id for p in work} == {"id"}


def test_there_are_no_more_pieces_than_offsets() -> None:
    assert len(split_ranges({TopicPartition(T, 0): (5, 8)}, {}, partitions_min=100)) == 3
