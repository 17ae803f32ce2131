"""Filters that are pushed down: they leave out nothing that is wanted."""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import datasource as spark

from dohle.core.ids import TopicName, TopicPartition
from dohle.spark.source.filters import Wanted

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)


class Row(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: datetime


_TESTS: dict[type[spark.Filter], Callable[[Any, Any], bool]] = {
    spark.EqualTo: operator.eq,
    spark.GreaterThan: operator.gt,
    spark.GreaterThanOrEqual: operator.ge,
    spark.LessThan: operator.lt,
    spark.LessThanOrEqual: operator.le,
    spark.In: lambda value, choices: value in choices,
}


def _holds(each: Any, row: Row) -> bool:
    if isinstance(each, spark.Not):
        return not _holds(each.child, row)
    if isinstance(each, spark.IsNotNull):
        return True
    return _TESTS[type(each)](getattr(row, each.attribute[0]), each.value)


def _filters() -> st.SearchStrategy[spark.Filter]:
    values: dict[str, st.SearchStrategy[Any]] = {
        "topic": st.sampled_from("ab"),
        "partition": st.integers(0, 2),
        "offset": st.integers(0, 6),
        "timestamp": st.integers(0, 6000).map(lambda us: NOON + timedelta(microseconds=us)),
    }
    compared = [
        st.builds(kind, st.just((column,)), value)
        for kind in _TESTS
        if kind is not spark.In
        for column, value in values.items()
    ]
    chosen = [
        st.builds(spark.In, st.just((column,)), st.lists(value, max_size=3).map(tuple))
        for column, value in values.items()
    ]
    present = st.builds(spark.IsNotNull, st.sampled_from([(column,) for column in values]))
    plain = st.one_of(*compared, *chosen, present)
    return plain | plain.filter(lambda f: not isinstance(f, spark.IsNotNull)).map(spark.Not)


@given(
    st.lists(_filters(), max_size=4),
    st.lists(
        st.builds(
            Row,
            st.sampled_from("ab"),
            st.integers(0, 2),
            st.integers(0, 6),
            st.integers(0, 6).map(lambda ms: NOON + timedelta(milliseconds=ms)),
        )
    ),
)
def test_what_is_read_and_filtered_again_is_what_was_asked_for(
    filters: list[spark.Filter], rows: list[Row]
) -> None:
    wanted = Wanted()
    left = [each for each in filters if not wanted.take(each)]

    def is_read(row: Row) -> bool:
        begin, end = wanted.narrowed(0, 1000)
        early = (row.timestamp - NOON) // timedelta(milliseconds=1) + NOON_MS < (
            wanted.timestamp_ms_min or 0
        )
        partition = TopicPartition(TopicName(row.topic), row.partition)
        return wanted.has(partition) and begin <= row.offset < end and not early

    asked = [row for row in rows if all(_holds(each, row) for each in filters)]
    got = [row for row in rows if is_read(row) and all(_holds(each, row) for each in left)]
    assert got == asked


@pytest.mark.parametrize(
    "given_filter",
    [
        spark.EqualTo(("topic",), "a"),
        spark.In(("partition",), (0, 1)),
        spark.Not(spark.EqualTo(("partition",), 1)),
        spark.GreaterThan(("offset",), 5),
        spark.EqualTo(("offset",), 5),
        spark.IsNotNull(("timestamp",)),
    ],
)
def test_partitions_and_offsets_are_left_to_nobody_else(given_filter: spark.Filter) -> None:
    assert Wanted().take(given_filter)


@pytest.mark.parametrize(
    "given_filter",
    [
        spark.GreaterThanOrEqual(("timestamp",), NOON),
        spark.EqualTo(("key",), b"k"),
        spark.EqualTo(("offset",), None),
        spark.EqualTo(("offset",), 5.0),
        spark.Not(spark.EqualTo(("offset",), 5)),
        spark.IsNotNull(("key",)),
        spark.IsNull(("offset",)),
        spark.StringStartsWith(("topic",), "a"),
        spark.EqualTo(("headers", "key"), "a"),
    ],
)
def test_what_is_not_carried_out_completely_is_left_to_spark(given_filter: spark.Filter) -> None:
    assert not Wanted().take(given_filter)


def test_a_time_between_two_milliseconds_begins_at_the_later_one() -> None:
    wanted = Wanted()
    wanted.take(spark.GreaterThanOrEqual(("timestamp",), NOON + timedelta(microseconds=1)))

    assert wanted.timestamp_ms_min == NOON_MS + 1


def test_a_time_before_1970_leaves_nothing_out() -> None:
    wanted = Wanted()
    wanted.take(spark.GreaterThanOrEqual(("timestamp",), datetime(1960, 1, 1, tzinfo=UTC)))

    assert wanted.timestamp_ms_min is None


def test_a_time_without_a_zone_is_not_taken() -> None:
    wanted = Wanted()
    wanted.take(spark.GreaterThanOrEqual(("timestamp",), NOON.replace(tzinfo=None)))

    assert wanted.timestamp_ms_min is None
