"""Appends whose bytes are unwritten back and written together."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.core.errors import ErrorCode
from dohle.storage import log_read
from dohle.storage.config import LogConfig
from dohle.storage.log import Log
from dohle.testing.simulation.disk_faults import Operation
from tests.storage.logs import (
    BATCH_SIZE,
    LEADER_EPOCH,
    NOW_MS,
    Node,
    batch,
    data,
    log_records,
    name_of,
    offsets,
    property_test,
    refuses,
)


def defer(log: Log, *found: bytearray) -> None:
    for one in found:
        log.append_as_leader(one, LEADER_EPOCH, defer_write=True)


def test_held_appends_are_written_with_one_call() -> None:
    node = Node()
    node.log.append_as_leader(data(1), LEADER_EPOCH)
    node.disk.trace.clear()
    defer(node.log, data(1), data(2), data(1))
    assert node.log.log_end_offset == 5
    assert len(node.files(".log")[name_of(0, ".log")]) == BATCH_SIZE
    assert node.disk.trace == []
    node.log.write_appends()
    assert node.disk.trace == [(Operation.WRITE, node.path(name_of(0, ".log")))]
    assert len(node.files(".log")[name_of(0, ".log")]) == 4 * BATCH_SIZE
    node.log.write_appends()
    assert len(node.disk.trace) == 1
    assert offsets(log_records(node.log)) == [0, 1, 2, 3, 4]


WRITERS: dict[str, Callable[[Node], object]] = {
    "read": lambda node: log_read.read(node.log, 0, 1000).slice,
    "flush": lambda node: node.log.flush(),
    "roll": lambda node: node.log.roll(),
    "append": lambda node: node.log.append_as_leader(data(1), LEADER_EPOCH),
    "stop": lambda node: node.stop(),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_whatever_needs_the_file_writes_what_was_held_first(writer: str) -> None:
    node = Node()
    defer(node.log, data(1), data(2), data(1))
    WRITERS[writer](node)
    assert len(node.files(".log")[name_of(0, ".log")]) >= 3 * BATCH_SIZE
    if writer == "stop":
        node.start()
    assert offsets(log_records(node.log))[:4] == [0, 1, 2, 3]
    assert offsets(log_records(node.restart(clean=False)))[:4] == [0, 1, 2, 3]


def test_a_roll_in_between_leaves_nothing_held_in_the_old_segment() -> None:
    node = Node(LogConfig(segment_bytes=2 * BATCH_SIZE))
    defer(node.log, *[data(1) for _ in range(5)])
    assert node.log.segments.base_offsets == (0, 2, 4)
    node.log.write_appends()
    assert [len(found) for found in node.files(".log").values()] == [200, 200, 100]
    assert offsets(log_records(node.restart(clean=False))) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("offset", [0, 1, 3])
def test_held_appends_can_be_taken_back(offset: int) -> None:
    node = Node()
    defer(node.log, data(1), data(2), data(1))
    node.log.truncate_to(offset)
    node.log.write_appends()
    assert offsets(log_records(node.log)) == list(range(offset))
    defer(node.log, data(2))
    node.log.write_appends()
    assert offsets(log_records(node.restart(clean=False))) == list(range(offset + 2))


def test_a_flush_of_held_appends_survives_a_power_cut() -> None:
    node = Node(LogConfig(flush_messages=3))
    defer(node.log, data(1), data(1), data(1))
    assert node.log.recovery_point == 3
    node.disk.power_loss_everything_unsynced_lost()
    node.start()
    assert offsets(log_records(node.log)) == [0, 1, 2]


def test_a_write_of_held_appends_that_fails_takes_the_directory_offline() -> None:
    node = Node()
    node.log.append_as_leader(data(1), LEADER_EPOCH)
    defer(node.log, data(1), data(1))
    node.disk.fail(Operation.WRITE, "/data", errno.ENOSPC, partial_bytes=130)
    refuses(ErrorCode.KAFKA_STORAGE_ERROR, node.log.write_appends)
    log = node.log
    node.disk.heal()
    refuses(ErrorCode.KAFKA_STORAGE_ERROR, log.write_appends)
    node.kill()
    node.start()
    # What got through whole may stay: nothing was answered.
    assert offsets(log_records(node.log)) == [0, 1]


def test_a_kill_costs_only_what_was_held() -> None:
    node = Node()
    node.log.append_as_leader(data(2), LEADER_EPOCH)
    defer(node.log, data(1), data(1))
    log = node.restart(clean=False)
    assert offsets(log_records(log)) == [0, 1]
    assert log.append_as_leader(data(1), LEADER_EPOCH).first_offset == 2


@property_test()
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 3), st.integers(0, 200)), max_size=25))
def test_a_log_is_the_same_whether_appends_are_held_or_not(
    sent: list[tuple[bool, int, int]],
) -> None:
    config = LogConfig(segment_bytes=800, index_interval_bytes=150)
    unwritten, plain = Node(config), Node(config)
    for now, count, size in sent:
        built = batch([NOW_MS + size] * count, value=bytes(size))
        plain.log.append_as_leader(bytearray(built), LEADER_EPOCH)
        unwritten.log.append_as_leader(built, LEADER_EPOCH, defer_write=not now)
    assert log_records(unwritten.log) == log_records(plain.log)
    unwritten.stop()
    plain.stop()
    if sent:
        assert unwritten.files() == plain.files()
