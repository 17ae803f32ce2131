from __future__ import annotations

import logging

from dohle.cli.log_limits import LogLimits


def record(place: int = 1, level: int = logging.WARNING, msg: str = "no %s") -> logging.LogRecord:
    return logging.LogRecord("dohle.test", level, "test.py", place, msg, (), None)


def admitted(limits: LogLimits, now: float, count: int, place: int = 1) -> int:
    return sum(limits.admits(record(place), now) for _ in range(count))


def test_the_first_lines_of_an_interval_pass_and_the_others_are_counted_once_it_is_over() -> None:
    limits = LogLimits(lines_max=3, interval_s=10)
    assert admitted(limits, now=0, count=5) == 3
    assert limits.is_suppressing
    assert admitted(limits, now=9, count=2) == 0
    assert limits.take_suppressed(9.5) == []
    (told,) = limits.take_suppressed(10)
    assert (told.count, told.template, told.name) == (4, "no %s", "dohle.test")
    assert admitted(limits, now=10, count=5) == 3


def test_what_is_not_taken_yet_goes_on_counting() -> None:
    limits = LogLimits(lines_max=1, interval_s=10)
    assert admitted(limits, now=0, count=2) == 1
    assert admitted(limits, now=50, count=2) == 0
    (told,) = limits.take_suppressed(51)
    assert told.count == 3


def test_kinds_do_not_count_for_each_other() -> None:
    limits = LogLimits(lines_max=2, interval_s=10)
    assert admitted(limits, now=0, count=9, place=1) == 2
    assert admitted(limits, now=0, count=9, place=2) == 2
    assert sorted(told.count for told in limits.take_suppressed(10)) == [7, 7]


def test_few_lines_an_interval_are_never_held_back() -> None:
    limits = LogLimits(lines_max=2, interval_s=10)
    assert all(admitted(limits, now=10 * turn, count=2) == 2 for turn in range(5))
    assert limits.take_suppressed(100) == []


def test_debug_messages_and_critical_ones_are_not_limited() -> None:
    limits = LogLimits(lines_max=1, interval_s=10)
    for level in (logging.DEBUG, logging.CRITICAL):
        assert all(limits.admits(record(level=level), 0) for _ in range(5))
