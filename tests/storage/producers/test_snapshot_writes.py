"""Snapshots of many producers: made when a segment rolls, and written by the flush behind it."""

from __future__ import annotations

import errno

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import ProducerId
from dohle.storage.config import LogConfig
from dohle.storage.flush import FlushJob
from dohle.storage.log import Log
from dohle.storage.producers import snapshot_files
from dohle.storage.producers.entry import BatchMetadata, ProducerEntry
from dohle.storage.producers.snapshot import (
    begin_snapshot,
    decode_snapshot,
    encode_snapshot,
    snapshot_name,
    write_snapshot,
)
from dohle.testing.simulation.disk_faults import Operation
from dohle.testing.simulation.files import SimulatedFileSystem
from tests.storage.logs import LEADER_EPOCH, NOW_MS, Node, batch, refuses

CONFIG = LogConfig(segment_bytes=1_000, retention_ms=-1)


def entries(count: int) -> tuple[ProducerEntry, ...]:
    return tuple(
        ProducerEntry(
            ProducerId(1000 + n),
            n % 7,
            3,
            NOW_MS + n,
            -1,
            (BatchMetadata(n, 2 * n, 1, NOW_MS + n),),
        )
        for n in range(count)
    )


@pytest.mark.parametrize("count", [0, 1, 499, 500, 501, 1_000, 1_234])
def test_a_snapshot_that_is_written_in_pieces_has_the_same_bytes(count: int) -> None:
    fs = SimulatedFileSystem()
    fs.make_dirs("/data")
    found = entries(count)
    write = begin_snapshot(fs, "/data/soon", found)
    assert fs.read("/data/soon") == b""
    write.run()
    write_snapshot(fs, "/data/once", found, sync=False)
    assert fs.read("/data/soon") == fs.read("/data/once") == encode_snapshot(found)


def test_a_longer_file_that_a_crash_has_left_is_replaced() -> None:
    fs = SimulatedFileSystem()
    fs.make_dirs("/data")
    write_snapshot(fs, "/data/snapshot", entries(700), sync=False)
    write_snapshot(fs, "/data/snapshot", entries(2), sync=False)
    assert fs.read("/data/snapshot") == encode_snapshot(entries(2))


# In a log


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    """A node that takes two producers for many."""
    monkeypatch.setattr(snapshot_files, "WRITTEN_AT_ONCE_MAX", 1)
    return Node(CONFIG)


def append_of(log: Log, *producers: int, sequence: int = 0) -> None:
    for producer in producers:
        found = batch([NOW_MS], pid=producer, epoch=0, sequence=sequence, value=bytes(200))
        log.append_as_leader(found, LEADER_EPOCH)
    log.update_high_watermark(log.log_end_offset)


def rolled(node: Node, *producers: int) -> str:
    """Append of these producers and roll; return the path of the snapshot."""
    append_of(node.log, *producers)
    node.log.roll()
    return node.path(snapshot_name(node.log.log_end_offset))


def prepared(log: Log) -> FlushJob:
    job = log.prepare_flush()
    assert job is not None
    return job


def test_a_roll_makes_the_file_and_the_flush_fills_it(node: Node) -> None:
    path = rolled(node, 1, 2, 3)
    assert node.fs.read(path) == b""
    node.manager.flush_due_now()
    assert [entry.producer_id for entry in decode_snapshot(node.fs.read(path))] == [1, 2, 3]
    node.disk.power_loss_everything_unsynced_lost()
    assert [entry.producer_id for entry in decode_snapshot(node.fs.read(path))] == [1, 2, 3]


def test_what_is_appended_behind_the_roll_is_not_in_it(node: Node) -> None:
    path = rolled(node, 1, 2)
    append_of(node.log, 4)
    append_of(node.log, 1, sequence=1)
    node.manager.flush_due_now()
    found = decode_snapshot(node.fs.read(path))
    assert [(entry.producer_id, entry.last_sequence) for entry in found] == [(1, 0), (2, 0)]


def test_a_kill_before_the_flush_loses_no_producer(node: Node) -> None:
    rolled(node, 1, 2, 3)
    append_of(node.log, 1, sequence=1)
    before = dict(node.log.producer_state.producers)
    after = node.restart(clean=False).producer_state.producers
    assert {key: entry.last_sequence for key, entry in after.items()} == {
        key: entry.last_sequence for key, entry in before.items()
    }


def test_it_is_written_before_the_records_go_that_could_make_up_for_it(node: Node) -> None:
    rolled(node, 1, 2, 3)
    path = rolled(node, 4, 5)
    node.log.remove_segments([node.log.segments.first], "retention")
    node.kill()
    assert [entry.producer_id for entry in decode_snapshot(node.fs.read(path))] == [1, 2, 3, 4, 5]
    node.start()
    assert set(node.log.producer_state.producers) == {1, 2, 3, 4, 5}


def test_a_flush_that_comes_late_writes_to_no_file_that_has_taken_the_name(node: Node) -> None:
    path = rolled(node, 1, 2, 3)
    late = prepared(node.log)
    node.log.truncate_to(1)
    assert rolled(node, 8, 9) == path
    late.run()
    node.log.complete_flush(late)
    assert node.fs.read(path) == b""
    node.log.flush()
    assert [entry.producer_id for entry in decode_snapshot(node.fs.read(path))] == [1, 8, 9]


def test_a_clean_stop_writes_it(node: Node) -> None:
    append_of(node.log, 1, 2, 3)
    log = node.restart(clean=True)
    path = node.path(snapshot_name(log.log_end_offset))
    assert [entry.producer_id for entry in decode_snapshot(node.fs.read(path))] == [1, 2, 3]


@pytest.mark.parametrize("operation", [Operation.WRITE, Operation.SYNC])
def test_a_disk_that_does_not_take_it_goes_offline(node: Node, operation: Operation) -> None:
    path = rolled(node, 1, 2, 3)
    node.disk.fail(operation, path, errno.EIO)
    node.manager.flush_due_now()
    refuses(ErrorCode.KAFKA_STORAGE_ERROR, lambda: append_of(node.log, 4))
