"""Checkpoints that are gathered in steps and written in a thread, while the loop goes on."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import TopicName, TopicPartition
from dohle.core.steps import Blocking, Steps, finish
from dohle.storage.directory.checkpoints import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    read_offsets,
)
from dohle.testing.simulation.disk_faults import Operation
from tests.storage.logs import Node, append, data, refuses

KEYS = [TopicPartition(TopicName("orders"), number) for number in range(450)]
FILES = (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT)


def filled() -> Node:
    node = Node()
    for key in KEYS:
        append(node.create(key), data(2))
    return node


def written(node: Node, name: str) -> dict[TopicPartition, int]:
    return read_offsets(node.fs, f"/data/{name}")


def gathered(steps: Steps[None]) -> Callable[[], object]:
    """Take all steps but that which is left to a thread; return it."""
    step: Any = None
    while step is None:
        step = next(steps)
    assert isinstance(step, Blocking)
    return step


def test_they_have_what_is_written_in_one_piece() -> None:
    node = filled()
    node.log.delete_records(1)
    checkpoints = node.manager.directories[0].checkpoints
    checkpoints.write_all()
    at_once = {name: node.fs.read(f"/data/{name}") for name in FILES}
    for name in FILES:
        node.fs.remove(f"/data/{name}")
        finish(checkpoints.write_in_steps(name))
    assert at_once == {name: node.fs.read(f"/data/{name}") for name in FILES}
    assert written(node, LOG_START_OFFSET_CHECKPOINT) == {KEYS[0]: 1}


@pytest.mark.parametrize("steps_before", [1, 2])
def test_a_log_deleted_while_they_are_gathered_is_in_none_of_them(steps_before: int) -> None:
    node = filled()
    checkpoints = node.manager.directories[0].checkpoints
    gathering = [checkpoints.write_in_steps(name) for name in FILES]
    for steps in gathering:
        for _ in range(steps_before):
            next(steps)
    node.manager.delete(KEYS[0])
    for steps in gathering:
        finish(steps)
    for name in FILES:
        assert KEYS[0] not in written(node, name)


def test_what_a_thread_writes_late_replaces_nothing_newer() -> None:
    node = filled()
    node.log.flush()
    steps = node.manager.directories[0].checkpoints.write_in_steps(RECOVERY_POINT_CHECKPOINT)
    late = gathered(steps)
    assert late() is None
    append(node.log, data(2))
    node.log.flush()
    node.log.truncate_to(1)
    finish(steps)
    assert written(node, RECOVERY_POINT_CHECKPOINT)[KEYS[0]] == 1


def test_a_disk_that_does_not_take_them_goes_offline() -> None:
    node = filled()
    node.disk.fail(Operation.SYNC, f"/data/{HIGH_WATERMARK_CHECKPOINT}.later.tmp", errno.EIO)
    node.clock.advance(node.manager.next_due_ms() - node.clock.monotonic_ms())
    node.manager.run_due()
    assert HIGH_WATERMARK_CHECKPOINT in node.manager.offline_directories["/data"]


def left_to_threads(node: Node, steps: Steps[None], at_each: Callable[[int], None]) -> int:
    """Take all steps, of which none may sync; return how many there were for a thread to take.

    ``at_each`` gets their number so far, while the next is still to be taken.
    """
    syncs = (Operation.SYNC, Operation.SYNC_DIR)
    result: object = None
    in_threads = 0
    while True:
        node.disk.trace.clear()
        try:
            step = steps.send(result)
        except StopIteration:
            return in_threads
        assert not [path for operation, path in node.disk.trace if operation in syncs]
        result = None
        if step is not None:
            assert isinstance(step, Blocking)
            in_threads += 1
            at_each(in_threads)
            result = step()


def test_a_deletion_leaves_all_that_waits_for_the_disk_to_threads() -> None:
    node = filled()
    node.manager.directories[0].checkpoints.write_all()
    recurring = [node.manager.directories[0].checkpoints.write_in_steps(name) for name in FILES]

    def write_what_recurs(number: int) -> None:
        """Do so while the deletion waits for its thread."""
        if recurring and number % 2 == 0:
            finish(recurring.pop())

    deletion = node.manager.delete_in_steps(KEYS[:3])
    assert left_to_threads(node, deletion, write_what_recurs) == 1 + 2 * len(FILES)
    assert not recurring
    for name in FILES:
        assert not set(KEYS[:3]) & written(node, name).keys()


def test_setting_strays_aside_leaves_all_that_waits_for_the_disk_to_threads() -> None:
    node = filled()
    node.manager.directories[0].checkpoints.write_all()
    strays = KEYS[:3]
    setting_aside = node.manager.mark_stray_in_steps(strays)
    # The files of each; once for all the names, and the checkpoints.
    expected = len(strays) + 1 + 2 * len(FILES)
    assert left_to_threads(node, setting_aside, lambda _: None) == expected
    assert not [key for key in strays if node.manager.get(key)]
    for name in FILES:
        assert not set(strays) & written(node, name).keys()
    node.disk.power_loss_everything_unsynced_lost()
    node.start()
    assert {log.partition for log in node.manager} == set(KEYS[3:])
    names = [entry.name for entry in node.fs.list_dir("/data")]
    found = {name.partition(".")[0] for name in names if name.endswith("-stray")}
    assert found == {f"orders-{key.partition}" for key in strays}


@pytest.mark.parametrize("operation", [Operation.SYNC, Operation.SYNC_DIR])
def test_a_disk_that_fails_at_a_deletion_goes_offline(operation: Operation) -> None:
    node = filled()
    node.disk.fail(operation, "/data", errno.EIO)
    refuses(ErrorCode.KAFKA_STORAGE_ERROR, lambda: node.manager.delete(KEYS[0]))
    assert "/data" in node.manager.offline_directories
