"""A disk that fails in one place, or becomes read-only: its directory alone goes offline."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from contextlib import suppress

import pytest

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName, TopicPartition
from dohle.storage import log_read
from dohle.storage.config import LogConfig
from dohle.testing.simulation.disk_faults import Operation
from tests.storage.logs import NOW_MS, Node, append, batch, data, log_records, offsets, refuses

CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=50, retention_ms=-1)
#: The first is in /a, the directory that fails.
KEYS = [TopicPartition(TopicName("orders"), number) for number in range(2)]
CHANGES = [
    Operation.CREATE,
    Operation.WRITE,
    Operation.TRUNCATE,
    Operation.ALLOCATE,
    Operation.MAKE_DIR,
    Operation.RENAME,
    Operation.REMOVE,
    Operation.SET_MTIME,
]


def two_directories() -> Node:
    node = Node(CONFIG, paths=["/a", "/b"])
    for key in KEYS:
        append(node.create(key), data(1))
    return node


def use(node: Node, key: TopicPartition) -> None:
    """Do what makes a log use every kind of its files."""
    log = node.create(key)
    assert len(offsets(log_records(log))) == log.log_end_offset
    for sequence in range(6):
        found = batch([NOW_MS], value=bytes(40), pid=7, epoch=0, sequence=sequence)
        log.append_as_leader(found, 4 + sequence // 3)
    log.update_high_watermark(log.log_end_offset)
    log.flush()


def recur(node: Node) -> None:
    node.clock.advance(60_000)
    node.manager.run_due()


def ends(*suffixes: str) -> Callable[[str], bool]:
    return lambda path: path.startswith("/a/") and path.endswith(suffixes)


PLACES: dict[str, tuple[Operation, str | Callable[[str], bool]]] = {
    "reading records": (Operation.READ, ends(".log")),
    "appending": (Operation.WRITE, ends(".log")),
    "syncing records": (Operation.SYNC, ends(".log")),
    "making a segment": (Operation.CREATE, ends(".log")),
    "writing an offset index": (Operation.WRITE, ends(".index")),
    "writing a time index": (Operation.WRITE, ends(".timeindex")),
    "syncing an index": (Operation.SYNC, ends(".index")),
    "writing a snapshot": (Operation.WRITE, ends(".snapshot")),
    "syncing a snapshot": (Operation.SYNC, ends(".snapshot")),
    "writing leader epochs": (Operation.WRITE, ends("leader-epoch-checkpoint.tmp")),
    "renaming leader epochs": (Operation.RENAME, ends("leader-epoch-checkpoint.tmp")),
    "writing a checkpoint": (Operation.WRITE, "/a/recovery-point-offset-checkpoint.later.tmp"),
    "syncing a checkpoint": (Operation.SYNC, "/a/replication-offset-checkpoint.later.tmp"),
    "renaming a checkpoint": (Operation.RENAME, "/a/recovery-point-offset-checkpoint.later.tmp"),
    "syncing a folder": (Operation.SYNC_DIR, "/a/orders-0"),
    "syncing the directory": (Operation.SYNC_DIR, lambda path: path == "/a"),
}


@pytest.mark.parametrize("place", PLACES)
def test_an_error_in_one_place_takes_the_directory_offline_and_no_other(
    place: str, caplog: pytest.LogCaptureFixture
) -> None:
    node = two_directories()
    before = offsets(log_records(node.create(KEYS[0])))
    operation, where = PLACES[place]
    node.disk.fail(operation, where, errno.EIO)
    with caplog.at_level(logging.ERROR, "dohle.storage"):
        with suppress(KafkaError):
            use(node, KEYS[0])
        recur(node)
    assert list(node.manager.offline_directories) == ["/a"]
    assert "Input/output error" in node.manager.offline_directories["/a"]
    assert any("/a" in one.getMessage() for one in caplog.records)
    log = node.manager.get(KEYS[0])
    assert log is not None
    refuses(ErrorCode.KAFKA_STORAGE_ERROR, lambda: log_read.read(log, 0, 100))
    refuses(ErrorCode.KAFKA_STORAGE_ERROR, lambda: log.append_as_leader(data(1), 9))
    use(node, KEYS[1])
    node.stop()
    assert not node.fs.exists("/a/.kafka_cleanshutdown")
    node.disk.heal()
    node.start()
    found = offsets(log_records(node.create(KEYS[0])))
    assert found[: len(before)] == before
    assert len(log_records(node.create(KEYS[1]))) == 7


def test_a_disk_that_becomes_read_only_under_open_files_goes_offline_at_the_next_write() -> None:
    node = two_directories()
    node.disk.fail(CHANGES, "/a", errno.EROFS)
    log = node.create(KEYS[0])
    assert offsets(log_records(log)) == [0]
    refuses(ErrorCode.KAFKA_STORAGE_ERROR, lambda: log.append_as_leader(data(1), 4))
    assert "Read-only" in node.manager.offline_directories["/a"]
    use(node, KEYS[1])
    recur(node)
    node.stop()
    node.disk.heal()
    node.start()
    assert offsets(log_records(node.create(KEYS[0]))) == [0]
