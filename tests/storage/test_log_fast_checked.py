"""The fast path into the log: what it takes, and that it leaves no trace of what it does not."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace

import pytest

from dohle.core.errors import ErrorCode
from dohle.records.batch import RecordBatch
from dohle.records.checking.validation import ValidationRules
from dohle.storage.config import LogConfig
from dohle.storage.log import Log
from dohle.storage.log_values import AppendInfo
from dohle.testing.simulation.disk_faults import Operation
from tests.records.checking.in_one_go import fast_check
from tests.storage.logs import (
    BATCH_SIZE,
    LEADER_EPOCH,
    NOW_MS,
    Node,
    append_marker,
    append_transactional,
    batch,
    data,
    log_bytes,
    refuses,
    state_of,
)


def append_fast_checked(
    log: Log, built: bytearray, leader_epoch: int = LEADER_EPOCH
) -> AppendInfo | None:
    is_transactional = RecordBatch(memoryview(built)).is_transactional
    plain = fast_check(
        memoryview(built), ValidationRules(), NOW_MS, is_transactional=is_transactional
    )
    assert plain is not None
    return log.append_fast_checked(plain, leader_epoch)


def append_general(log: Log, built: bytearray) -> AppendInfo:
    return log.append_validated(RecordBatch(memoryview(built)), LEADER_EPOCH, defer_write=True)


def batch_of(
    pid: int, sequence: int, count: int = 1, epoch: int = 0, *, transactional: bool = False
) -> bytearray:
    return batch(
        [NOW_MS] * count, pid=pid, epoch=epoch, sequence=sequence, transactional=transactional
    )


def test_batches_go_the_short_way_once_epoch_and_producer_are_known() -> None:
    short, general = Node(), Node()
    assert append_fast_checked(short.log, data(1)) is None
    for node in (short, general):
        append_general(node.log, batch_of(7, 0, 2))
    for built in (data(3), batch_of(7, 2), batch_of(7, 3, 4), data(1), batch_of(7, 7)):
        info = append_fast_checked(short.log, bytearray(built))
        assert info == append_general(general.log, built)
    for node in (short, general):
        node.log.write_appends()
    assert log_bytes(short.log) == log_bytes(general.log)
    assert state_of(short.log) == state_of(general.log)


def test_batches_of_an_open_transaction_go_the_short_way() -> None:
    short, general = Node(), Node()
    for node in (short, general):
        append_transactional(node.log, 7, 0)
    for sequence in (1, 2):
        built = batch_of(7, sequence, transactional=True)
        info = append_fast_checked(short.log, bytearray(built))
        assert info == append_general(general.log, built)
    for node in (short, general):
        node.log.write_appends()
        assert node.log.producer_state.first_unstable_offset == 0
        append_marker(node.log, 7, commit=False)
        node.log.update_high_watermark(node.log.log_end_offset)
        assert node.log.last_stable_offset == 4
    assert log_bytes(short.log) == log_bytes(general.log)
    assert state_of(short.log) == state_of(general.log)


def test_a_plain_batch_is_written_with_what_else_is_held() -> None:
    node = Node()
    append_general(node.log, data(1))
    node.log.write_appends()
    node.disk.trace.clear()
    for _ in range(3):
        assert append_fast_checked(node.log, data(2)) is not None
    assert node.disk.trace == []
    node.log.write_appends()
    assert [operation for operation, _ in node.disk.trace] == [Operation.WRITE]
    assert len(log_bytes(node.log)) == 4 * BATCH_SIZE


def transactional_batch(pid: int, sequence: int) -> bytearray:
    return batch_of(pid, sequence, transactional=True)


def fill(log: Log) -> None:
    while log.size < 9 * BATCH_SIZE:
        append_general(log, data(1))


def wait_for_transaction(log: Log) -> None:
    log.producer_state.start_transaction_verification(7, 1, 0, False, NOW_MS)


def stamp(log: Log) -> None:
    log.update_config(replace(log.config, message_timestamp_type_log_append=True))


OTHERS: dict[str, tuple[Callable[[Log], object], Callable[[], bytearray]]] = {
    "a full segment": (fill, lambda: batch([NOW_MS], value=bytes(60))),
    "an old segment": (lambda log: None, lambda: data(1, timestamp=NOW_MS + 60_000)),
    "LogAppendTime": (stamp, lambda: data(1)),
    "an unknown producer": (lambda log: None, lambda: batch_of(8, 0)),
    "a batch sent again": (lambda log: None, lambda: batch_of(7, 0)),
    "a gap": (lambda log: None, lambda: batch_of(7, 2)),
    "an older epoch": (
        lambda log: append_general(log, batch_of(7, 0, epoch=1)),
        lambda: batch_of(7, 1),
    ),
    "a newer epoch": (lambda log: None, lambda: batch_of(7, 0, epoch=1)),
    "an open transaction": (lambda log: append_transactional(log, 7, 1), lambda: batch_of(7, 2)),
    "a transaction that is not open": (lambda log: None, lambda: transactional_batch(7, 1)),
    "a transaction that is over": (
        lambda log: (append_transactional(log, 7, 1), append_marker(log, 7, commit=True)),
        lambda: transactional_batch(7, 2),
    ),
    "a transaction to come": (wait_for_transaction, lambda: batch_of(7, 1)),
}


@pytest.mark.parametrize("other", OTHERS)
def test_what_needs_more_is_left_to_the_general_way(other: str) -> None:
    config = LogConfig(retention_ms=-1, segment_bytes=10 * BATCH_SIZE, segment_ms=10_000)
    prepare, make = OTHERS[other]
    node = Node(config)
    append_general(node.log, batch_of(7, 0))
    prepare(node.log)
    built = make()
    sent = bytes(built)
    before = state_of(node.log)
    assert append_fast_checked(node.log, built) is None
    assert built == sent
    assert state_of(node.log) == before


def test_another_leader_epoch_is_left_to_the_general_way() -> None:
    node = Node()
    append_general(node.log, data(1))
    for epoch in (LEADER_EPOCH - 1, LEADER_EPOCH + 1):
        assert append_fast_checked(node.log, data(1), epoch) is None
    assert append_fast_checked(node.log, data(1)) is not None


def test_flush_messages_counts_plain_batches() -> None:
    node = Node(LogConfig(retention_ms=-1, flush_messages=3))
    append_general(node.log, data(1))
    assert append_fast_checked(node.log, data(1)) is not None
    assert node.log.recovery_point == 0
    assert append_fast_checked(node.log, data(1)) is not None
    assert node.log.recovery_point == 3


def test_flush_ms_counts_from_the_first_plain_batch() -> None:
    node = Node(LogConfig(retention_ms=-1, flush_ms=100))
    append_general(node.log, data(1))
    node.log.flush()
    assert node.log.flushing.due_ms is None
    assert append_fast_checked(node.log, data(1)) is not None
    assert node.log.flushing.due_ms == NOW_MS + 100


def test_an_offline_directory_takes_no_plain_batch() -> None:
    node = Node(paths=("/data", "/other"))
    append_general(node.log, data(1))
    node.log.disk.failed("testing", OSError(errno.EIO, "broken"))
    refuses(ErrorCode.KAFKA_STORAGE_ERROR, lambda: append_fast_checked(node.log, data(1)))
    assert node.log.log_end_offset == 1
