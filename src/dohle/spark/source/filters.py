"""Filters of batch queries that reduce what is read: on topic, partition, offset and time.

A filter on topic, partition or offset is fully applied by leaving out partitions and offsets. One
on time only determines the start, at the first record with such a timestamp: later records may be
older, so Spark applies it again.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import datasource as spark

from dohle.core.ids import TopicPartition

_Comparison = (
    spark.EqualTo
    | spark.GreaterThan
    | spark.GreaterThanOrEqual
    | spark.LessThan
    | spark.LessThanOrEqual
    | spark.In
)
_TESTS: dict[type[spark.Filter], Callable[[Any, Any], bool]] = {
    spark.EqualTo: operator.eq,
    spark.GreaterThan: operator.gt,
    spark.GreaterThanOrEqual: operator.ge,
    spark.LessThan: operator.lt,
    spark.LessThanOrEqual: operator.le,
    spark.In: lambda value, choices: value in choices,
}

#: Columns that are never null.
_PRESENT = ("topic", "partition", "offset", "timestamp", "timestampType")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class _PartitionTest:
    column: str
    test: Callable[[Any, Any], bool]
    value: Any
    expected: bool

    def holds(self, partition: TopicPartition) -> bool:
        value = partition.topic if self.column == "topic" else partition.partition
        return self.test(value, self.value) is self.expected


@dataclass(slots=True)
class Wanted:
    """What is left to read after the accepted filters."""

    offset_min: int = 0
    #: Before this one; None if there is no such limit.
    offset_end: int | None = None
    timestamp_ms_min: int | None = None
    _tests: list[_PartitionTest] = field(default_factory=list)

    def take(self, given: spark.Filter) -> bool:
        """Apply a filter; return whether that is complete."""
        if isinstance(given, spark.IsNotNull):
            return len(given.attribute) == 1 and given.attribute[0] in _PRESENT
        negated = isinstance(given, spark.Not)
        comparison = given.child if isinstance(given, spark.Not) else given
        if not isinstance(comparison, _Comparison) or len(comparison.attribute) != 1:
            return False
        column = comparison.attribute[0]
        if column in ("topic", "partition"):
            return self._take_of_partition(column, comparison, negated)
        if negated:
            return False
        if column == "offset":
            return self._take_offset(comparison)
        if column == "timestamp":
            self._take_timestamp(comparison)
        return False

    def has(self, partition: TopicPartition) -> bool:
        """Tell whether records of this partition are wanted at all."""
        return all(each.holds(partition) for each in self._tests)

    def narrowed(self, start: int, end: int) -> tuple[int, int]:
        """Return the part of a range of offsets that is wanted."""
        start = max(start, self.offset_min)
        if self.offset_end is not None:
            end = min(end, self.offset_end)
        return start, max(start, end)

    def _take_of_partition(self, column: str, given: _Comparison, negated: bool) -> bool:
        kind = str if column == "topic" else int
        values = given.value if isinstance(given, spark.In) else (given.value,)
        if not all(type(value) is kind for value in values):
            return False
        self._tests.append(_PartitionTest(column, _TESTS[type(given)], given.value, not negated))
        return True

    def _take_offset(self, given: _Comparison) -> bool:
        value = given.value
        if isinstance(given, spark.In):
            if value and all(type(each) is int for each in value):
                self._from(min(value))
                self._before(max(value) + 1)
            return False
        if type(value) is not int:
            return False
        match given:
            case spark.EqualTo():
                self._from(value)
                self._before(value + 1)
            case spark.GreaterThan():
                self._from(value + 1)
            case spark.GreaterThanOrEqual():
                self._from(value)
            case spark.LessThan():
                self._before(value)
            case spark.LessThanOrEqual():
                self._before(value + 1)
        return True

    def _take_timestamp(self, given: _Comparison) -> None:
        values = given.value if isinstance(given, spark.In) else (given.value,)
        if not values or not all(isinstance(each, datetime) and each.tzinfo for each in values):
            return
        since = min(values) - _EPOCH
        match given:
            case spark.GreaterThan():
                least = since // _MILLISECOND + 1
            case spark.EqualTo() | spark.GreaterThanOrEqual() | spark.In():
                least = -(-since // _MILLISECOND)
            case _:
                return
        # Brokers search for times from 1970 on; records without a timestamp count as just before.
        if least > 0:
            self.timestamp_ms_min = max(least, self.timestamp_ms_min or 0)

    def _from(self, offset: int) -> None:
        self.offset_min = max(self.offset_min, offset)

    def _before(self, offset: int) -> None:
        self.offset_end = offset if self.offset_end is None else min(self.offset_end, offset)
