from __future__ import annotations

import logging
import struct
from collections.abc import Iterator

import pytest

from dohle.storage import log_read
from dohle.storage.config import LogConfig
from dohle.storage.directory.checkpoints import read_offsets
from dohle.storage.leader_epochs import EpochEntry
from dohle.testing.simulation.disk_faults import Operation
from tests.storage.logs import (
    BATCH_SIZE,
    LEADER_EPOCH,
    NOW_MS,
    PARTITION,
    Node,
    append,
    append_marker,
    append_transactional,
    batch,
    data,
    log_records,
    name_of,
    offsets,
)

PID = 17
INDEXES = (".index", ".timeindex", ".txnindex")


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, logger="dohle.storage"):
        yield caplog


def says(lines: pytest.LogCaptureFixture, *parts: str) -> bool:
    """Tell whether one line of the storage logger has all of these in it."""
    return any(
        all(part in record.getMessage() for part in parts)
        for record in lines.records
        if record.name == "dohle.storage"
    )


def filled(*, batches: int = 7, per_segment: int = 3) -> Node:
    """A node with segments of three batches of one record each: 0-2, 3-5, 6."""
    node = Node(LogConfig(segment_bytes=per_segment * BATCH_SIZE, index_interval_bytes=50))
    append(node.log, *[data(1, timestamp=NOW_MS + n) for n in range(batches)])
    return node


def busy() -> Node:
    """A node whose log has everything that recovery rebuilds."""
    node = Node(LogConfig(segment_bytes=500, index_interval_bytes=50))
    log = node.log
    for sequence in range(0, 12, 2):
        append(log, data(2, timestamp=NOW_MS + sequence))
        append_transactional(log, PID, sequence, 2)
        append_marker(log, PID, commit=sequence % 4 == 0)
        log.append_as_leader(data(1, timestamp=NOW_MS - sequence), LEADER_EPOCH + sequence)
    log.update_high_watermark(log.log_end_offset)
    return node


def start_from_scratch(node: Node) -> None:
    """Let the next start take everything for unflushed."""
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        if node.fs.exists(f"{node.paths[0]}/{name}"):
            node.fs.remove(f"{node.paths[0]}/{name}")


# The log file


@pytest.mark.parametrize("cut", [1, 30, 61, 99])
def test_a_torn_tail_is_cut_off(lines: pytest.LogCaptureFixture, cut: int) -> None:
    node = filled()
    append(node.log, data(1))
    node.kill()
    tail = name_of(6, ".log")
    node.put(tail, node.files(".log")[tail][:-cut])
    node.start()
    assert offsets(log_records(node.log)) == [0, 1, 2, 3, 4, 5, 6]
    assert len(node.files(".log")[tail]) == BATCH_SIZE
    assert says(lines, tail, f"cutting off {BATCH_SIZE - cut} bytes at position {BATCH_SIZE}")
    assert append(node.log, data(2))[0].first_offset == 7


@pytest.mark.parametrize("junk", [bytes(40), b"\xff" * 40, b"no batch looks like this" * 2])
def test_nonsense_behind_the_last_batch_is_cut_off(
    lines: pytest.LogCaptureFixture, junk: bytes
) -> None:
    node = filled()
    node.kill()
    tail = name_of(6, ".log")
    node.put(tail, node.files(".log")[tail] + junk)
    node.start()
    assert node.log.log_end_offset == 7
    assert len(node.files(".log")[tail]) == BATCH_SIZE
    assert says(lines, tail, f"cutting off {len(junk)} bytes at position {BATCH_SIZE}")


@pytest.mark.parametrize("damage", ["zeros", "nonsense", "flipped bit", "offset back"])
def test_the_log_is_cut_at_a_nonsense_block_and_segments_behind_it_go(
    lines: pytest.LogCaptureFixture, damage: str
) -> None:
    node = filled(batches=12)
    node.kill()
    name = name_of(3, ".log")
    content = bytearray(node.files(".log")[name])
    if damage == "zeros":
        content[BATCH_SIZE + 10 : BATCH_SIZE + 80] = bytes(70)
    elif damage == "nonsense":
        content[BATCH_SIZE : BATCH_SIZE + 70] = b"\x7f" * 70
    elif damage == "flipped bit":
        content[BATCH_SIZE + 95] ^= 4
    else:
        content[BATCH_SIZE : BATCH_SIZE + 8] = (1).to_bytes(8, "big")
    node.put(name, bytes(content))
    node.start()
    log = node.log
    assert offsets(log_records(log)) == [0, 1, 2, 3]
    assert log.segments.base_offsets == (0, 3)
    assert node.files(".log").keys() == {name_of(0, ".log"), name}
    assert node.files(".index", ".timeindex").keys() == {
        name_of(base, suffix) for base in (0, 3) for suffix in (".index", ".timeindex")
    }
    assert says(lines, name, f"cutting off {2 * BATCH_SIZE} bytes at position {BATCH_SIZE}")
    assert says(lines, "orders-0", "segments behind the damage")
    assert append(log, data(1))[0].first_offset == 4
    assert offsets(log_records(node.restart(clean=False))) == [0, 1, 2, 3, 4]


def test_segments_behind_a_gap_go(lines: pytest.LogCaptureFixture) -> None:
    node = filled(batches=12)
    node.kill()
    name = name_of(3, ".log")
    # The file system lost the end of one file but kept the next.
    node.put(name, node.files(".log")[name][:BATCH_SIZE])
    node.start()
    assert offsets(log_records(node.log)) == [0, 1, 2, 3]
    assert node.log.segments.base_offsets == (0, 3)
    assert says(lines, "orders-0", "removing segments from offset 6 on", "behind 4")


def test_segments_behind_a_missing_one_go(lines: pytest.LogCaptureFixture) -> None:
    node = filled(batches=12)
    node.kill()
    for suffix in (".log", ".index", ".timeindex"):
        node.remove(name_of(3, suffix))
    node.start()
    assert offsets(log_records(node.log)) == [0, 1, 2]
    assert says(lines, "orders-0", "removing segments from offset 6 on", "behind 3")


RECOVERY_POINTS = "/data/recovery-point-offset-checkpoint"
COMPACTED = LogConfig(segment_bytes=3 * BATCH_SIZE, cleanup_policy=frozenset({"compact"}))


def with_a_gap_between_segments(
    config: LogConfig | None = None, *, flushed_up_to: int = 0, by_kafka: bool = False
) -> Node:
    """A node with the offsets 0 to 3 and 6 to 11."""
    node = filled(batches=12) if config is None else Node(config)
    if config is not None:
        append(node.log, *[data(1) for _ in range(12)])
    node.log.flush(flushed_up_to)
    node.manager.directories[0].checkpoints.write_recovery_points()
    node.kill()
    name = name_of(3, ".log")
    node.put(name, node.files(".log")[name][:BATCH_SIZE])
    if by_kafka:
        wrote_kafka(node)
    return node


def wrote_kafka(node: Node) -> None:
    """Let the checkpoint be one that Kafka wrote."""
    node.disk.put(RECOVERY_POINTS, node.fs.read(RECOVERY_POINTS).removeprefix(b"+"))


def keeps_all_segments(node: Node) -> bool:
    node.start()
    return offsets(log_records(node.log)) == [0, 1, 2, 3, 6, 7, 8, 9, 10, 11]


def test_a_gap_behind_the_recovery_point_is_a_loss_in_a_compacted_log_too() -> None:
    node = with_a_gap_between_segments(COMPACTED, flushed_up_to=4)
    node.disk.put("/data/cleaner-offset-checkpoint", b"0\n1\norders 0 3\n")
    node.start()
    assert offsets(log_records(node.log)) == [0, 1, 2, 3]
    assert node.log.log_end_offset == 4


def test_segments_without_records_behind_a_gap_go() -> None:
    node = Node(COMPACTED)
    append(node.log, *[data(1) for _ in range(7)])
    node.kill()
    for base in (3, 6):
        node.put(name_of(base, ".log"), b"")
    node.start()
    assert node.log.log_end_offset == 3
    assert append(node.log, data(1))[0].first_offset == 3


def test_a_gap_that_begins_below_the_recovery_point_is_the_cleaners() -> None:
    # So it is after a truncation to offset 5, where the cleaner had left nothing behind 3.
    assert keeps_all_segments(with_a_gap_between_segments(COMPACTED, flushed_up_to=5))


def test_a_compacted_log_that_kafka_wrote_may_have_gaps_between_segments() -> None:
    node = with_a_gap_between_segments(COMPACTED, by_kafka=True)
    assert keeps_all_segments(node)
    # It may be killed again before it was flushed.
    node.manager.directories[0].checkpoints.write_recovery_points()
    node.kill()
    assert keeps_all_segments(node)


def test_once_a_log_that_kafka_wrote_is_on_the_disk_a_gap_is_a_loss() -> None:
    node = with_a_gap_between_segments(COMPACTED, by_kafka=True)
    node.start()
    append(node.log, data(1))
    node.log.flush()
    append(node.log, *[data(1) for _ in range(6)])
    node.manager.directories[0].checkpoints.write_recovery_points()
    node.kill()
    node.put(name_of(15, ".log"), b"")
    node.start()
    assert offsets(log_records(node.log)) == [0, 1, 2, 3, *range(6, 15)]
    assert node.log.log_end_offset == 15


def test_a_gap_is_no_loss_in_a_log_that_was_once_cleaned() -> None:
    node = with_a_gap_between_segments(by_kafka=True)
    node.disk.put("/data/cleaner-offset-checkpoint", b"0\n2\nother 0 5\norders 0 3\n")
    assert keeps_all_segments(node)
    node = with_a_gap_between_segments(by_kafka=True)
    node.disk.put("/data/cleaner-offset-checkpoint", b"0\n1\norders 1 3\n")
    assert not keeps_all_segments(node)


def test_a_gap_is_no_loss_in_a_cleaned_log_that_has_just_moved_here() -> None:
    node = with_a_gap_between_segments(COMPACTED)
    node.disk.put("/data/cleaner-offset-checkpoint", b"0\n1\norders 0 3\n")
    node.disk.put(RECOVERY_POINTS, b"+0\n0\n")
    assert keeps_all_segments(node)


def test_a_gap_is_no_loss_where_it_cannot_be_told_whether_the_log_was_cleaned() -> None:
    node = with_a_gap_between_segments(by_kafka=True)
    node.disk.put("/data/cleaner-offset-checkpoint", b"0\n7\norders 1 3\n")
    assert keeps_all_segments(node)


@pytest.mark.parametrize("content", [None, b"0\n9\nnonsense\n"], ids=["missing", "corrupt"])
def test_a_gap_is_no_loss_if_nobody_knows_how_far_the_log_was_flushed(
    content: bytes | None,
) -> None:
    node = with_a_gap_between_segments()
    if content is None:
        node.fs.remove(RECOVERY_POINTS)
    else:
        node.disk.put(RECOVERY_POINTS, content)
    assert keeps_all_segments(node)
    # From now on it is known.
    assert read_offsets(node.fs, RECOVERY_POINTS) == {PARTITION: 0}


def test_a_gap_is_no_loss_where_offsets_are_missing_within_segments_too() -> None:
    node = Node(LogConfig(segment_bytes=3 * BATCH_SIZE))
    for offset in (0, 1, 5, 6, 7, 8, 9, 10):
        node.log.append_as_follower(data(1, base_offset=offset, leader_epoch=1), 1)
    assert node.log.segments.base_offsets == (0, 6, 9)
    node.kill()
    name = name_of(6, ".log")
    node.put(name, node.files(".log")[name][:BATCH_SIZE])
    wrote_kafka(node)
    node.start()
    assert offsets(log_records(node.log)) == [0, 1, 5, 6, 9, 10]


def test_a_gap_between_segments_of_a_follower_is_a_loss() -> None:
    """Gaps of the leader's are within segments, which begin where the log ends (ADR 4)."""
    node = Node(COMPACTED)
    for offset in (0, 1, 5, 9, 10, 11, 12, 15, 16):
        node.log.append_as_follower(data(1, base_offset=offset, leader_epoch=1), 1)
    assert node.log.segments.base_offsets == (0, 6, 12)
    node.kill()
    node.start()
    assert offsets(log_records(node.log)) == [0, 1, 5, 9, 10, 11, 12, 15, 16]
    node.kill()
    name = name_of(6, ".log")
    node.put(name, node.files(".log")[name][:BATCH_SIZE])
    node.start()
    assert offsets(log_records(node.log)) == [0, 1, 5, 9]


@pytest.mark.parametrize("reason", ["cut", "gap", "start"])
def test_segments_are_removed_so_that_a_crash_leaves_no_hole(reason: str) -> None:
    node = filled(batches=14)
    node.kill()
    name = name_of(3, ".log")
    content = bytearray(node.files(".log")[name])
    if reason == "cut":
        content[BATCH_SIZE + 95] ^= 4
    elif reason == "gap":
        del content[BATCH_SIZE:]
    else:
        node.disk.put("/data/log-start-offset-checkpoint", b"0\n1\norders 0 100\n")
    node.put(name, bytes(content))
    node.disk.trace.clear()
    node.start()
    removed = [
        int(path.rpartition("/")[2][:20])
        for operation, path in node.disk.trace
        if operation is Operation.REMOVE and path.endswith(".log")
    ]
    assert len(removed) >= 3
    assert removed == sorted(removed, reverse=True)


def test_only_segments_from_the_recovery_point_on_are_looked_at() -> None:
    node = filled(batches=8)
    node.log.flush(6)
    node.manager.directories[0].checkpoints.write_recovery_points()
    assert node.log.recovery_point == 6
    node.kill()
    node.disk.flip_bit(node.path(name_of(3, ".log")), 95, 2)
    damaged = node.files(".log")[name_of(3, ".log")]
    # Were it so much as opened, the directory would go offline.
    for base in (0, 3):
        node.disk.fail((Operation.OPEN, Operation.READ), node.path(name_of(base, ".log")), 5)
    node.start()
    assert node.manager.offline_directories == {}
    assert node.log.log_end_offset == 8
    node.disk.heal()
    assert node.files(".log")[name_of(3, ".log")] == damaged
    assert node.log.segments.base_offsets == (0, 3, 6)


def test_a_clean_stop_spares_the_scan() -> None:
    node = filled(batches=8)
    node.stop()
    node.disk.flip_bit(node.path(name_of(6, ".log")), 95, 2)
    before = node.files()
    node.start()
    assert node.log.log_end_offset == 8
    node.kill()
    assert node.files() == before


def test_a_log_start_beyond_the_end_starts_the_log_anew(lines: pytest.LogCaptureFixture) -> None:
    node = filled()
    node.kill()
    file = node.fs.open("/data/log-start-offset-checkpoint", write=True, create=True)
    file.truncate(0)
    file.write_at(0, b"0\n1\norders 0 100\n")
    file.close()
    node.start()
    log = node.log
    assert (log.log_start_offset, log.log_end_offset) == (100, 100)
    assert log.segments.base_offsets == (100,)
    assert log.leader_epochs.entries == []
    assert node.files(".log") == {name_of(100, ".log"): b""}
    assert says(lines, "orders-0", "removing all segments", "ends at 7", "start 100")
    assert append(log, data(1))[0].first_offset == 100
    assert offsets(log_records(node.restart(clean=False))) == [100]


# Indexes


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_missing_index_is_rebuilt(
    lines: pytest.LogCaptureFixture, suffix: str, clean: bool
) -> None:
    node = filled()
    node.stop()
    before = node.files()
    if not clean:
        start_from_scratch(node)
    for base in (0, 6):
        node.remove(name_of(base, suffix))
    node.start()
    assert says(lines, "orders-0", "segment 0", f"no {suffix} file")
    assert says(lines, "orders-0", "segment 6", f"no {suffix} file")
    assert offsets(log_records(node.log)) == list(range(7))
    node.stop()
    assert node.files() == before


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content + b"\x00",
        lambda content: content[:-1],
        lambda content: content + bytes(1200),
        lambda content: content + b"\xff" * 24,
    ],
    ids=["a byte too many", "a byte too few", "zeros behind", "negative numbers behind"],
)
def test_a_corrupt_index_is_rebuilt_when_it_is_needed(
    lines: pytest.LogCaptureFixture, suffix: str, damage: object
) -> None:
    assert callable(damage)
    node = filled(batches=12, per_segment=5)
    node.stop()
    before = node.files()
    name = name_of(0, suffix)
    node.put(name, damage(before[name]))
    node.start()
    found = log_read.find_by_timestamp(node.log, NOW_MS + 4)
    assert found is not None
    assert found.offset == 4
    assert offsets(log_records(node.log)) == list(range(12))
    assert says(lines, name_of(0, ".log"), "rebuilding the indexes", name)
    node.stop()
    assert node.files() == before


WRONG_POSITIONS = {
    "within a batch": struct.pack(">iiii", 2, 150, 4, 350),
    "at another batch": struct.pack(">iiii", 2, 100, 4, 200),
    "behind the end": struct.pack(">iiii", 2, 100_000, 4, 200_000),
    "negative": struct.pack(">iiii", 2, -200, 4, -100),
}


@pytest.mark.parametrize("wrong", WRONG_POSITIONS)
@pytest.mark.parametrize("base", [0, 5], ids=["closed segment", "active segment"])
def test_an_index_that_points_to_the_wrong_place_is_rebuilt(
    lines: pytest.LogCaptureFixture, wrong: str, base: int
) -> None:
    node = filled(batches=10, per_segment=5)
    node.stop()
    before = node.files()
    node.put(name_of(base, ".index"), WRONG_POSITIONS[wrong])
    node.start()
    assert node.log.log_end_offset == 10
    assert offsets(log_records(node.log)) == list(range(10))
    for offset in range(10):
        piece = log_read.read(node.log, offset, 1000).slice
        assert piece is not None
        assert piece.base_offset == offset
    assert says(lines, name_of(base, ".log")) or says(lines, f"segment {base}")
    node.stop()
    assert node.files() == before


@pytest.mark.parametrize("wrong", WRONG_POSITIONS)
def test_a_lookup_by_timestamp_is_not_led_astray_by_a_wrong_index(wrong: str) -> None:
    node = filled(batches=10, per_segment=5)
    node.stop()
    node.put(name_of(0, ".index"), WRONG_POSITIONS[wrong])
    node.start()
    for number in range(10):
        found = log_read.find_by_timestamp(node.log, NOW_MS + number)
        assert found is not None
        assert found.offset == number


@pytest.mark.parametrize("suffix", INDEXES)
def test_an_index_without_a_log_file_is_removed(
    lines: pytest.LogCaptureFixture, suffix: str
) -> None:
    node = filled()
    node.stop()
    before = node.files()
    node.put(name_of(99, suffix), bytes(8))
    node.start()
    assert says(lines, "orders-0", "removing", name_of(99, suffix), "no log file")
    node.stop()
    assert node.files() == before


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1],
        lambda content: content + b"\x00" * 34,
        lambda content: b"\x00\x07" + content[2:],
        lambda content: content[34:] + content[:34],
    ],
    ids=["cut", "zeros behind", "unknown version", "out of order"],
)
@pytest.mark.parametrize("clean", [True, False])
def test_a_corrupt_transaction_index_is_rebuilt(
    lines: pytest.LogCaptureFixture, damage: object, clean: bool
) -> None:
    assert callable(damage)
    node = Node()
    for sequence in range(3):
        append_transactional(node.log, PID, sequence)
        append_marker(node.log, PID, commit=False)
    node.stop()
    before = node.files()
    if not clean:
        start_from_scratch(node)
    name = name_of(0, ".txnindex")
    node.put(name, damage(before[name]))
    node.start()
    assert says(lines, "orders-0", "checking segment 0", name)
    node.stop()
    assert node.files() == before


def test_recovery_makes_the_indexes_that_a_clean_stop_would_have_left() -> None:
    node = busy()
    node.stop()
    before = node.files(*INDEXES)
    assert {name.partition(".")[2] for name, found in before.items() if found} == {
        "index",
        "timeindex",
        "txnindex",
    }
    start_from_scratch(node)
    for name in before:
        node.put(name, b"\x01" * 60)
    node.start()
    node.kill()
    assert node.files(*INDEXES) == before


def test_a_second_recovery_changes_nothing() -> None:
    node = busy()
    node.kill()
    tail = max(node.files(".log"))
    node.put(tail, node.files(".log")[tail][:-7])
    node.remove(name_of(0, ".index"))
    node.start()
    node.kill()
    before = node.files()
    for _ in range(2):
        node.start()
        node.kill()
        assert node.files() == before


# Epochs


def test_a_corrupt_epoch_file_is_made_anew_from_the_batches(
    lines: pytest.LogCaptureFixture,
) -> None:
    node = Node()
    for epoch in (0, 2, 5):
        node.log.append_as_leader(data(2), epoch)
    node.kill()
    before = node.files("leader-epoch-checkpoint")
    node.put("leader-epoch-checkpoint", b"0\n7\n0 0\n")
    node.start()
    assert node.log.leader_epochs.entries == [
        EpochEntry(0, 0),
        EpochEntry(2, 2),
        EpochEntry(5, 4),
    ]
    assert says(lines, "orders-0", "leader epochs cannot be read", "leader-epoch-checkpoint")
    assert node.files("leader-epoch-checkpoint") == before


def test_epochs_that_begin_behind_the_log_end_are_dropped() -> None:
    node = Node()
    node.log.append_as_leader(data(2), 1)
    node.log.append_as_leader(data(2), 3)
    node.kill()
    name = name_of(0, ".log")
    node.put(name, node.files(".log")[name][:BATCH_SIZE])
    node.start()
    assert node.log.leader_epochs.entries == [EpochEntry(1, 0)]
    node.log.append_as_leader(batch(), 2)
    assert node.log.leader_epochs.entries == [EpochEntry(1, 0), EpochEntry(2, 2)]
