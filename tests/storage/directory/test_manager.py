from __future__ import annotations

import errno
import random
import subprocess
import sys
from pathlib import Path

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.ids import BrokerId, TopicName, TopicPartition, Uuid
from dohle.core.seams import ManualClock
from dohle.storage.config import LogConfig
from dohle.storage.directory.directory import LogDirectoryInUse
from dohle.storage.directory.manager import Identity, LogManager
from dohle.storage.directory.meta_properties import InvalidMetaProperties, read_meta_properties
from dohle.storage.files import OsFileSystem, write_atomically
from dohle.testing.simulation.disk_faults import Operation
from dohle.testing.simulation.files import SimulatedCrash, SimulatedFileSystem
from tests.storage.logs import (
    BATCH_SIZE,
    IDENTITY,
    PARTITION,
    TOPIC_ID,
    Node,
    append,
    batch,
    data,
    log_records,
    offsets,
    refuses,
)

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"


def partition(number: int, topic: str = "orders") -> TopicPartition:
    return TopicPartition(TopicName(topic), number)


def names(node: Node, path: str = "/data") -> set[str]:
    return {entry.name for entry in node.fs.list_dir(path)}


# Directories and where partitions go


def test_a_new_partition_goes_to_the_directory_with_the_fewest() -> None:
    node = Node(paths=["/a", "/b", "/c"])
    for number in range(7):
        node.create(partition(number))
    assert [len(d.logs) for d in node.manager.directories] == [3, 2, 2]
    node.manager.delete(partition(1))
    node.create(partition(7))
    assert [len(d.logs) for d in node.manager.directories] == [3, 2, 2]
    assert "orders-7" in names(node, "/b")


def test_an_existing_partition_is_found_wherever_it_is() -> None:
    node = Node(paths=["/a", "/b"])
    logs = [node.create(partition(number)) for number in range(4)]
    assert [node.create(partition(number)) for number in range(4)] == logs
    assert [node.manager.get(partition(number)) for number in range(5)] == [*logs, None]
    assert set(node.manager) == set(logs)


def test_a_partition_in_two_directories_is_refused() -> None:
    node = Node(paths=["/a", "/b"])
    append(node.create(PARTITION), data(1))
    node.stop()
    node.fs.make_dirs("/b/orders-0")
    with pytest.raises(InvalidMetaProperties, match="orders-0"):
        node.start()


def test_a_restart_keeps_everything() -> None:
    node = Node(LogConfig(segment_bytes=2 * BATCH_SIZE), paths=["/a", "/b"])
    for number in range(4):
        append(node.create(partition(number)), *[data(number + 1) for _ in range(5)])
    before = {log.partition: (log_records(log), log.high_watermark) for log in node.manager}
    for clean in (True, False, True):
        if clean:
            node.stop()
        else:
            node.kill()
        node.start()
        after = {log.partition: (log_records(log), log.high_watermark) for log in node.manager}
        assert after == before
        assert {log.topic_id for log in node.manager} == {TOPIC_ID}


def test_folders_that_are_no_partition_of_this_broker_are_left_alone() -> None:
    node = Node()
    append(node.log, data(1))
    node.stop()
    others = [
        "lost+found",
        "__cluster_metadata-0",
        "remote-log-index-cache",
        "orders-1.0123456789abcdef0123456789abcdef-stray",
        "orders-2.0123456789abcdef0123456789abcdef-future",
    ]
    for name in others:
        node.disk.put(f"/data/{name}/{'0' * 20}.log", b"not ours")
    node.start()
    assert [log.partition for log in node.manager] == [PARTITION]
    for name in others:
        assert node.fs.read(f"/data/{name}/{'0' * 20}.log") == b"not ours"
        assert {entry.name for entry in node.fs.list_dir(f"/data/{name}")} == {"0" * 20 + ".log"}


def test_another_topic_of_the_same_name_does_not_get_its_log() -> None:
    node = Node()
    append(node.log, data(1))
    for _ in range(2):
        refuses(
            ErrorCode.INCONSISTENT_TOPIC_ID,
            lambda: node.manager.get_or_create(PARTITION, Uuid(bytes(15) + b"\xcc"), node.config),
        )
        node.restart(clean=True)
    assert offsets(log_records(node.log)) == [0]


def test_partition_metadata_names_the_topic() -> None:
    node = Node()
    node.create(PARTITION)
    assert node.files("partition.metadata") == {
        "partition.metadata": b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    }


def test_a_partition_whose_making_was_cut_short_gets_its_topic_id() -> None:
    node = Node()
    node.disk.fail(Operation.CREATE, lambda path: "partition.metadata" in path, errno.EIO)
    refuses(ErrorCode.KAFKA_STORAGE_ERROR, lambda: node.create(PARTITION))
    node.disk.heal()
    node.kill()
    node.start()
    found = node.manager.get(PARTITION)
    assert found is not None
    assert "partition.metadata" not in node.names()
    assert node.create(PARTITION) is found
    assert found.topic_id == TOPIC_ID
    append(found, data(1))
    node.disk.power_loss_everything_unsynced_lost()
    node.start()
    assert node.log.topic_id == TOPIC_ID


# Attaching and loading


def test_attaching_locks_and_loading_formats() -> None:
    node = Node(paths=["/a", "/b"])
    append(node.log, data(2))
    node.stop()
    before = node.disk.files()
    node.paths.append("/c")
    node.manager = manager = LogManager(node.fs, clock=node.clock, rng=node.rng)
    manager.attach(node.paths, IDENTITY)
    assert list(manager) == []
    assert len({directory.directory_id for directory in manager.directories}) == 3
    after = node.disk.files()
    assert {path for path in after if path not in before} == {"/c/.lock"}
    assert {path: after[path] for path in before} == before
    with pytest.raises(LogDirectoryInUse):
        LogManager(node.fs, clock=node.clock, rng=node.rng).attach(["/b"], IDENTITY)
    manager.load(lambda _: node.config)
    assert read_meta_properties(node.fs, "/c").directory_id == manager.directories[2].directory_id
    assert offsets(log_records(node.log)) == [0, 1]
    assert manager.directories[0].had_clean_shutdown


@pytest.mark.parametrize("path", ["/a", "/b", "/m"])
def test_the_directory_of_the_metadata_log_is_formatted_first(path: str) -> None:
    for operations in range(100):
        clock = ManualClock()
        fs = SimulatedFileSystem(clock)
        fs.cut_after_operations(operations)
        manager = LogManager(fs, clock=clock, rng=random.Random(1))
        try:
            manager.attach(["/a", "/b"], IDENTITY, path)
            manager.load(lambda _: LogConfig())
        except SimulatedCrash:
            fs.power_loss(random.Random(operations))
        else:
            assert operations > 20
            return
        # Whenever the first start was cut short, the next finds nothing to complain of.
        manager = LogManager(fs, clock=clock, rng=random.Random(2))
        manager.attach(["/a", "/b"], IDENTITY, path)
        manager.load(lambda _: LogConfig())
        manager.close()
    pytest.fail("it has no end")


def test_a_failed_attach_lets_go_of_the_locks() -> None:
    node = Node(paths=["/a", "/b"])
    node.stop()
    write_atomically(node.fs, "/b/meta.properties", b"version=7\n")
    stranger = LogManager(node.fs, clock=node.clock, rng=node.rng)
    with pytest.raises(InvalidMetaProperties):
        stranger.attach(node.paths, IDENTITY)
    node.paths = ["/a"]
    node.start()


# Identity


def test_an_empty_directory_is_formatted() -> None:
    node = Node(paths=["/a", "/b"])
    ids = set()
    for path in ("/a", "/b"):
        first, date, *pairs, end = node.fs.read(f"{path}/meta.properties").decode().split("\n")
        assert (first, date, end) == ("#", "#Tue Nov 14 22:13:20 UTC 2023", "")
        found = dict(pair.split("=") for pair in pairs)
        assert found.keys() == {"version", "cluster.id", "node.id", "directory.id"}
        assert found["version"] == "1"
        assert found["cluster.id"] == IDENTITY.cluster_id
        assert found["node.id"] == "1"
        assert len(found["directory.id"]) == 22
        ids.add(found["directory.id"])
    assert len(ids) == 2


def test_a_formatted_directory_is_not_written_again() -> None:
    node = Node()
    before = node.fs.read("/data/meta.properties")
    node.clock.advance(5_000)
    directory_id = node.manager.directories[0].directory_id
    node.restart(clean=True)
    assert node.fs.read("/data/meta.properties") == before
    assert node.manager.directories[0].directory_id == directory_id


@pytest.mark.parametrize(
    ("identity", "message"),
    [
        (Identity("AnotherClusterIdAAAAAA", BrokerId(1)), "cluster.id"),
        (Identity(IDENTITY.cluster_id, BrokerId(2)), "node.id"),
    ],
)
def test_another_nodes_directory_is_refused_and_left_as_it_was(
    identity: Identity, message: str
) -> None:
    node = Node()
    append(node.log, data(1))
    node.stop()
    before = node.disk.files()
    stranger = LogManager(node.fs, clock=node.clock, rng=node.rng)
    with pytest.raises(InvalidMetaProperties, match=message):
        stranger.open(["/data"], identity, lambda _: LogConfig())
    assert node.disk.files() == before
    node.start()
    assert node.manager.directories[0].had_clean_shutdown


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"version=1\nnode.id=1\n", "cluster.id"),
        (b"version=1\ncluster.id=x\nnode.id=one\n", "node.id"),
        (b"version=7\nnode.id=1\ncluster.id=x\n", "version 7"),
        (b"version=1\nnode.id=1\ncluster.id=x\ndirectory.id=no\n", "uuid"),
    ],
)
def test_a_meta_properties_that_cannot_be_right_is_refused(content: bytes, message: str) -> None:
    node = Node(paths=["/a", "/b"])
    node.stop()
    write_atomically(node.fs, "/b/meta.properties", content)
    with pytest.raises(InvalidMetaProperties, match=message):
        node.start()
    assert {entry.name for entry in node.fs.list_dir("/a")} >= {".kafka_cleanshutdown"}


def test_two_directories_with_one_id_are_refused() -> None:
    node = Node(paths=["/a", "/b"])
    node.stop()
    write_atomically(node.fs, "/b/meta.properties", node.fs.read("/a/meta.properties"))
    with pytest.raises(InvalidMetaProperties, match=r"directory\.id"):
        node.start()


def test_a_directory_from_before_directory_ids_gets_one() -> None:
    node = Node()
    append(node.log, data(1))
    node.stop()
    old = f"version=1\nnode.id=1\ncluster.id={IDENTITY.cluster_id}\n".encode()
    write_atomically(node.fs, "/data/meta.properties", old)
    node.start()
    assert b"directory.id=" in node.fs.read("/data/meta.properties")
    assert offsets(log_records(node.log)) == [0]


# The lock


def test_a_second_manager_is_refused_and_the_first_keeps_its_lock(tmp_path: Path) -> None:
    fs = OsFileSystem()
    node = Node(fs=fs, paths=[str(tmp_path)])
    append(node.log, data(1))
    for _ in range(2):
        with pytest.raises(LogDirectoryInUse, match=str(tmp_path)):
            Node(fs=fs, paths=[str(tmp_path)])
    append(node.log, data(1))
    node.stop()
    again = Node(fs=fs, paths=[str(tmp_path)])
    assert again.manager.directories[0].had_clean_shutdown
    assert offsets(log_records(again.log)) == [0, 1]
    again.stop()


SECOND_PROCESS = """
import sys
from dohle.storage.directory.directory import LogDirectoryInUse
from tests.storage.logs import Node
from dohle.storage.files import OsFileSystem
try:
    Node(fs=OsFileSystem(), paths=[sys.argv[1]]).stop()
except LogDirectoryInUse as error:
    sys.exit(f"refused: {error}")
"""


def second_process(path: Path) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[3]
    return subprocess.run(
        [sys.executable, "-c", SECOND_PROCESS, str(path)],
        cwd=root,
        env={"PYTHONPATH": f"{root}:{root / 'src'}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_another_process_is_kept_out_until_the_first_has_let_go(tmp_path: Path) -> None:
    node = Node(fs=OsFileSystem(), paths=[str(tmp_path)])
    # A refused attempt in this process must not give the lock away: locks are per process.
    with pytest.raises(LogDirectoryInUse):
        Node(fs=OsFileSystem(), paths=[str(tmp_path)])
    refused = second_process(tmp_path)
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"refused: {tmp_path} is in use")
    node.kill()
    assert second_process(tmp_path).returncode == 0


# Stopping


def test_a_clean_stop_is_marked_last_of_all() -> None:
    node = Node(paths=["/a", "/b"])
    for number in range(3):
        append(node.create(partition(number)), data(2))
    node.disk.trace.clear()
    node.stop()
    for path in ("/a", "/b"):
        changes = [found for found in node.disk.trace if found[1].startswith(path)]
        mark = f"{path}/.kafka_cleanshutdown"
        tail = changes[-5:]
        assert [name for _, name in tail[:-1]] == [f"{mark}.tmp"] * 4
        assert tail[-2:] == [(Operation.RENAME, f"{mark}.tmp"), (Operation.SYNC_DIR, path)]
        assert node.fs.read(mark) == b'{"version":0,"brokerEpoch":7}'


def test_the_mark_of_a_clean_stop_is_gone_before_anything_else_is_changed() -> None:
    node = Node()
    append(node.log, data(2))
    node.stop()
    node.disk.trace.clear()
    node.start()
    assert node.manager.directories[0].had_clean_shutdown
    assert node.disk.trace[:2] == [
        (Operation.REMOVE, "/data/.kafka_cleanshutdown"),
        (Operation.SYNC_DIR, "/data"),
    ]


def test_the_metadata_logs_folder_survives_a_power_cut_though_its_maker_was_killed() -> None:
    node = Node()
    metadata = partition(0, "__cluster_metadata")
    node.disk.make_dirs(f"/data/{metadata}")
    log = node.manager.directories[0].open_internal(metadata, TOPIC_ID, LogConfig())
    append(log, data(2))
    log.flush()
    node.disk.power_loss_everything_unsynced_lost()
    node.start()
    log = node.manager.directories[0].open_internal(metadata, TOPIC_ID, LogConfig())
    assert offsets(log_records(log)) == [0, 1]


def test_nothing_is_lost_if_the_power_goes_right_after_a_clean_stop() -> None:
    node = Node(LogConfig(segment_bytes=2 * BATCH_SIZE))
    append(node.log, *[batch(pid=5, epoch=0, sequence=n) for n in range(7)])
    node.stop()
    before = node.disk.files()
    node.disk.power_loss_everything_unsynced_lost()
    assert node.disk.files() == before
    node.start()
    assert node.log.producer_state.producers[5].last_sequence == 6


def test_a_clean_stop_writes_the_checkpoints() -> None:
    node = Node()
    append(node.create(partition(0)), data(2), data(3))
    append(node.create(partition(1)), data(2), data(2))
    node.create(partition(1)).append_as_leader(data(1), 9)
    node.create(partition(1)).delete_records(3)
    node.create(partition(2, "empty"))
    node.stop()

    def lines(name: str) -> list[str]:
        version, count, *entries = node.fs.read(f"/data/{name}").decode().splitlines()
        assert (int(version), int(count)) == (0, len(entries))
        return sorted(entries)

    assert lines(RECOVERY_POINTS) == ["empty 2 0", "orders 0 5", "orders 1 5"]
    assert lines(HIGH_WATERMARKS) == ["empty 2 0", "orders 0 5", "orders 1 4"]
    assert lines(LOG_STARTS) == ["orders 1 3"]


def test_the_high_watermark_outlives_a_stop() -> None:
    node = Node()
    append(node.log, data(2))
    node.log.append_as_leader(data(2), 9)
    assert node.restart(clean=True).high_watermark == 2
