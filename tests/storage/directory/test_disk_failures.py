from __future__ import annotations

import errno
import logging
from collections.abc import Callable

import pytest

from dohle.core.errors import ErrorCode, KafkaError
from dohle.core.ids import TopicName, TopicPartition
from dohle.records.batch import batches
from dohle.storage import log_read
from dohle.storage.config import LogConfig
from dohle.storage.directory.retention import delete_old_segments
from dohle.storage.log import Log
from dohle.testing.simulation.disk_faults import Operation
from tests.storage.logs import (
    LEADER_EPOCH,
    NOW_MS,
    TOPIC_ID,
    Node,
    append,
    batch,
    data,
    log_batches,
    log_records,
    offsets,
    refuses,
)

#: Partition 0 is in /a, the directory that fails, partition 1 in /b.
ORDERS = [TopicPartition(TopicName("orders"), number) for number in range(2)]
CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=50, retention_ms=-1)
STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR


def two_directories() -> Node:
    node = Node(CONFIG, paths=["/a", "/b"])
    for partition in ORDERS:
        node.create(partition)
    assert [list(directory.logs) for directory in node.manager.directories] == [
        [ORDERS[0]],
        [ORDERS[1]],
    ]
    return node


class Producer:
    """Writes to one log and remembers what was acknowledged."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.acknowledged: list[bytes] = []
        self.error: KafkaError | None = None

    def run(self, step: int) -> None:
        """Append, flush now and then; the first failure is for good."""
        sent = batch([NOW_MS + step], value=b"%d" % step, pid=9, epoch=0, sequence=step)
        try:
            if step % 5 == 4:
                self.log.flush()
            self.log.append_as_leader(sent, LEADER_EPOCH + step // 8)
            self.acknowledged.append(bytes(sent))
            self.log.update_high_watermark(self.log.log_end_offset)
        except KafkaError as error:
            self.error = error


def contents(log: Log) -> list[bytes]:
    return [bytes(one.buffer) for one in log_batches(log)]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=["ENOSPC", "EIO"])
@pytest.mark.parametrize(
    "operation",
    [
        Operation.WRITE,
        Operation.CREATE,
        Operation.TRUNCATE,
        Operation.SYNC,
        Operation.SYNC_DIR,
        Operation.RENAME,
    ],
    ids=lambda operation: operation.value,
)
def test_a_failing_disk_takes_its_own_directory_offline_and_costs_no_acknowledged_record(
    operation: Operation, number: int
) -> None:
    for skip in range(0, 60, 3):
        node = two_directories()
        good_until = node.disk.operations
        node.disk.fail(operation, "/a", number, partial_bytes=30, skip=skip)
        failing, healthy = [Producer(node.create(partition)) for partition in ORDERS]
        for step in range(14):
            failing.run(step)
            healthy.run(step)
            node.clock.advance(5_000)
            node.manager.run_due()
        first, second = node.manager.directories
        assert second.disk.failure is None
        assert healthy.error is None
        assert failing.error is None or failing.error.code is STORAGE_ERROR
        assert node.disk.operations > good_until
        node.stop()
        struck = first.disk.failure is not None
        assert node.fs.exists("/a/.kafka_cleanshutdown") is not struck
        assert node.fs.exists("/b/.kafka_cleanshutdown")
        if not struck:
            assert failing.error is None
            assert len(failing.acknowledged) == 14
        node.disk.heal()
        node.start()
        assert node.manager.offline_directories == {}
        found = contents(node.create(ORDERS[0]))
        # What was not acknowledged may be there or not, but only behind all that was.
        assert found[: len(failing.acknowledged)] == failing.acknowledged
        assert len(found) <= len(failing.acknowledged) + 1
        assert contents(node.create(ORDERS[1])) == healthy.acknowledged
        # The producer can go on where its acknowledgements ended.
        step = len(failing.acknowledged)
        again = batch([NOW_MS + step], value=b"%d" % step, pid=9, epoch=0, sequence=step)
        info = node.create(ORDERS[0]).append_as_leader(again, LEADER_EPOCH + 9)
        assert info.is_duplicate == (len(found) > step)
        node.stop()
        if not struck:
            break


def test_a_full_disk_takes_its_directory_offline_and_costs_no_acknowledged_record(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = two_directories()
    failing, healthy = [Producer(node.create(partition)) for partition in ORDERS]
    used = sum(len(found) for path, found in node.disk.files().items() if path.startswith("/a/"))
    node.disk.set_capacity("/a", used + 700)
    with caplog.at_level(logging.ERROR, logger="dohle.storage"):
        for step in range(20):
            failing.run(step)
            healthy.run(step)
    assert failing.error is not None
    assert failing.error.code is STORAGE_ERROR
    assert 0 < len(failing.acknowledged) < 20
    assert len(healthy.acknowledged) == 20
    assert any("/a goes offline" in record.getMessage() for record in caplog.records)
    node.disk.set_capacity("/a", None)
    node.kill()
    node.start()
    assert contents(node.create(ORDERS[0]))[: len(failing.acknowledged)] == failing.acknowledged


def offline() -> tuple[Node, Log, Log]:
    """A node whose directory /a has just gone offline, with the log there and the other."""
    node = two_directories()
    bad, good = (node.create(partition) for partition in ORDERS)
    append(bad, data(2), data(2))
    append(good, data(2))
    fault = node.disk.fail(Operation.WRITE, "/a", errno.EIO, times=1)
    refuses(STORAGE_ERROR, lambda: bad.append_as_leader(data(1), LEADER_EPOCH))
    node.disk.heal(fault)
    return node, bad, good


CALLS: dict[str, Callable[[Log], object]] = {
    "append": lambda log: log.append_as_leader(data(1), LEADER_EPOCH),
    "follower append": lambda log: log.append_as_follower(data(1, base_offset=9), LEADER_EPOCH),
    "read": lambda log: log_read.read(log, 0, 1000),
    "find_by_timestamp": lambda log: log_read.find_by_timestamp(log, NOW_MS),
    "find_max_timestamp": lambda log: log_read.find_max_timestamp(log),
    "flush": lambda log: log.flush(),
    "delete_records": lambda log: log.delete_records(1),
    "truncate_to": lambda log: log.truncate_to(1),
    "truncate_fully_and_start_at": lambda log: log.truncate_fully_and_start_at(50),
    "roll": lambda log: log.roll(),
    "remove_segments": lambda log: log.remove_segments(list(log.segments)[:1], "a test"),
    "prepare_flush": lambda log: log.prepare_flush(),
    "retention": lambda log: delete_old_segments(log, NOW_MS + 10**12),
}


@pytest.mark.parametrize("call", CALLS)
def test_an_offline_log_answers_with_a_storage_error_and_writes_nothing(call: str) -> None:
    node, bad, good = offline()
    bad.config = LogConfig(retention_ms=1)
    before = node.disk.files()
    refuses(STORAGE_ERROR, lambda: CALLS[call](bad))
    assert {p: c for p, c in node.disk.files().items() if p.startswith("/a/")} == {
        p: c for p, c in before.items() if p.startswith("/a/")
    }
    CALLS["append"](good)


FAILING: dict[str, tuple[Operation, Callable[[Log], object]]] = {
    "roll": (Operation.CREATE, lambda log: log.roll()),
    "remove_segments": (
        Operation.RENAME,
        lambda log: log.remove_segments(list(log.segments)[:1], "a test"),
    ),
    "prepare_flush": (Operation.WRITE, lambda log: log.prepare_flush()),
}


@pytest.mark.parametrize("call", FAILING)
def test_a_disk_that_fails_at_any_call_takes_the_directory_offline(call: str) -> None:
    node = two_directories()
    log = node.create(ORDERS[0])
    for _ in range(2):
        append(log, data(2), data(2))
        log.roll()
    append(log, data(1))
    log.append_as_leader(data(1), LEADER_EPOCH, defer_write=True)
    operation, attempt = FAILING[call]
    node.disk.fail(operation, "/a", errno.EIO)
    refuses(STORAGE_ERROR, lambda: attempt(log))
    assert node.manager.offline_directories.keys() == {"/a"}
    assert "Input/output" in node.manager.offline_directories["/a"]


def test_a_refusal_keeps_nothing_of_what_was_refused() -> None:
    node, bad, _ = offline()
    texts = set()
    for _ in range(3):
        received = data(1)
        try:
            bad.append_as_leader(memoryview(received), LEADER_EPOCH)
        except KafkaError as error:
            depth, trace = 0, error.__traceback__
            while trace is not None:
                depth, trace = depth + 1, trace.tb_next
            assert depth < 6
            texts.add(str(error))
        # An exception that were kept would keep the memory that a connection reads into.
        received.extend(b"the next request")
    assert len(texts) == 1
    assert node.manager.offline_directories.keys() == {"/a"}


def test_offline_directories_are_told_after_a_stop_too() -> None:
    node, _, _ = offline()
    node.stop()
    assert node.manager.offline_directories.keys() == {"/a"}


def test_recurring_work_leaves_an_offline_directory_alone() -> None:
    node, _, good = offline()
    node.disk.trace.clear()
    node.clock.advance(10**9)
    node.manager.run_due()
    assert node.manager.due_flushes() == []
    assert not [path for _, path in node.disk.trace if path.startswith("/a/")]
    assert [path for _, path in node.disk.trace if path.startswith("/b/")]
    append(good, data(1))


def test_new_partitions_go_to_the_directories_that_work() -> None:
    node, bad, _ = offline()
    for number in range(2, 5):
        append(node.create(TopicPartition(TopicName("orders"), number)), data(1))
    assert len(node.manager.directories[1].logs) == 4
    # The log that was there is not made anew elsewhere.
    assert node.create(ORDERS[0]) is bad


def test_without_any_directory_left_no_partition_can_be_made() -> None:
    node, _, good = offline()
    node.disk.fail(Operation.WRITE, "/b", errno.ENOSPC)
    refuses(STORAGE_ERROR, lambda: good.append_as_leader(data(1), LEADER_EPOCH))
    other = TopicPartition(TopicName("orders"), 7)
    refuses(STORAGE_ERROR, lambda: node.manager.get_or_create(other, TOPIC_ID, CONFIG))


def test_a_read_that_fails_takes_the_directory_offline() -> None:
    node = two_directories()
    log = node.create(ORDERS[0])
    append(log, data(2), data(2))
    node.disk.fail(Operation.READ, "/a/orders-0", errno.EIO)
    refuses(STORAGE_ERROR, lambda: log_read.read(log, 0, 1000))
    assert node.manager.directories[0].disk.failure is not None
    assert node.manager.directories[1].disk.failure is None


@pytest.mark.parametrize(
    "operation", [Operation.READ, Operation.LIST, Operation.OPEN], ids=lambda o: o.value
)
def test_a_directory_that_cannot_be_loaded_is_left_offline(operation: Operation) -> None:
    node = two_directories()
    for partition in ORDERS:
        append(node.create(partition), data(2))
    node.kill()
    before = node.disk.files()
    node.disk.fail(operation, "/a", errno.EIO)
    node.start()
    assert node.manager.offline_directories.keys() == {"/a"}
    assert node.manager.get(ORDERS[0]) is None
    assert offsets(log_records(node.create(ORDERS[1]))) == [0, 1]
    node.stop()
    node.disk.heal()
    assert (
        node.disk.files()["/a/orders-0/" + "0" * 20 + ".log"]
        == before["/a/orders-0/" + "0" * 20 + ".log"]
    )
    node.start()
    assert offsets(log_records(node.create(ORDERS[0]))) == [0, 1]


def test_a_node_without_any_directory_that_works_does_not_start() -> None:
    node = two_directories()
    node.kill()
    node.disk.fail(Operation.LIST, lambda path: path in ("/a", "/b"), errno.EIO)
    refuses(STORAGE_ERROR, node.start)
    node.disk.heal()
    # The failed start has let go of the locks.
    node.start()


def test_a_directory_that_cannot_be_made_is_left_offline() -> None:
    node = two_directories()
    node.kill()
    node.paths.append("/c")
    node.disk.fail(Operation.MAKE_DIR, "/c", errno.EACCES)
    node.start()
    assert node.manager.offline_directories.keys() == {"/c"}
    assert len(node.manager.online_directories) == 2


def test_a_stop_that_fails_claims_no_clean_stop() -> None:
    node = two_directories()
    for partition in ORDERS:
        append(node.create(partition), data(2), data(1))
    node.disk.fail(Operation.SYNC, "/a/orders-0", errno.EIO)
    node.stop()
    assert not node.fs.exists("/a/.kafka_cleanshutdown")
    assert node.fs.exists("/b/.kafka_cleanshutdown")
    node.disk.heal()
    node.start()
    assert offsets(log_records(node.create(ORDERS[0]))) == [0, 1, 2]


def test_a_torn_append_is_cut_off_at_the_next_start() -> None:
    node = two_directories()
    log = node.create(ORDERS[0])
    append(log, data(2))
    node.disk.fail(Operation.WRITE, "/a", errno.ENOSPC, partial_bytes=70)
    refuses(STORAGE_ERROR, lambda: log.append_as_leader(data(1), LEADER_EPOCH))
    node.kill()
    name = "/a/orders-0/" + "0" * 20 + ".log"
    assert len(node.disk.files()[name]) == 170
    node.disk.heal()
    node.start()
    assert [one.base_offset for one in batches(node.disk.files()[name])] == [0]
    assert len(node.disk.files()[name]) == 100
