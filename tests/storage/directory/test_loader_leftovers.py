from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from dohle.records.batch import batches
from dohle.storage.config import LogConfig
from dohle.storage.producers.snapshot import read_snapshot
from tests.storage.logs import (
    BATCH_SIZE,
    LEADER_EPOCH,
    Node,
    append,
    batch,
    data,
    log_records,
    name_of,
    offsets,
)

PID = 17
SEGMENT_FILES = (".log", ".index", ".timeindex")


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


# Deletions and cleanings that were not finished


@pytest.mark.parametrize("clean", [True, False])
def test_files_whose_deletion_had_been_decided_are_removed(
    lines: pytest.LogCaptureFixture, clean: bool
) -> None:
    node = Node()
    append(node.log, data(1))
    names = [name_of(9, suffix) + ".deleted" for suffix in (*SEGMENT_FILES, ".txnindex")]
    names.append(name_of(9, ".snapshot") + ".deleted")
    if clean:
        node.stop()
    else:
        node.kill()
    for name in names:
        node.put(name, b"what was in it")
    node.start()
    assert not node.files(".deleted")
    for name in names:
        assert says(lines, "orders-0", "removing", name)
    assert offsets(log_records(node.log)) == [0]


def test_snapshots_of_the_metadata_log_are_left_to_it() -> None:
    node = Node()
    append(node.log, data(1))
    node.kill()
    name = "00000000000000000005-0000000001.checkpoint.deleted"
    node.put(name, b"snapshot")
    node.start()
    assert node.files(".deleted") == {name: b"snapshot"}


def compacted(*, batches_per_segment: int = 2) -> Node:
    """A node with a compacted topic and the segments 0-1, 2-3, 4-5, 6."""
    config = LogConfig(
        segment_bytes=batches_per_segment * BATCH_SIZE,
        index_interval_bytes=50,
        cleanup_policy=frozenset({"compact"}),
    )
    node = Node(config)
    append(node.log, *[data(1) for _ in range(7)])
    return node


def cleaned_content(node: Node) -> bytes:
    """What the cleaner makes of the segments at 0 and 2: offset 1 went."""
    first, second = node.files(".log")[name_of(0, ".log")], node.files(".log")[name_of(2, ".log")]
    return first[:BATCH_SIZE] + second


def test_a_cleaning_that_was_not_complete_is_dropped(lines: pytest.LogCaptureFixture) -> None:
    node = compacted()
    node.kill()
    before = node.files(*SEGMENT_FILES)
    for suffix in SEGMENT_FILES:
        node.put(name_of(0, suffix) + ".cleaned", b"half a segme")
    node.start()
    assert not node.files(".cleaned")
    assert says(lines, "orders-0", "removing", name_of(0, ".log.cleaned"), "not complete")
    assert offsets(log_records(node.log)) == list(range(7))
    assert node.files(".log") == {n: c for n, c in before.items() if n.endswith(".log")}


@pytest.mark.parametrize("replaced", ["both there", "one gone", "both gone"])
@pytest.mark.parametrize("indexes", [True, False], ids=["with indexes", "without indexes"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_swap_is_completed(
    lines: pytest.LogCaptureFixture, replaced: str, indexes: bool, clean: bool
) -> None:
    node = compacted()
    if clean:
        node.stop()
    else:
        node.kill()
    content = cleaned_content(node)
    later = node.files(".log")[name_of(4, ".log")]
    node.put(name_of(0, ".log.swap"), content)
    if indexes:
        node.put(name_of(0, ".index.swap"), b"")
        node.put(name_of(0, ".timeindex.swap"), b"")
    gone = {"both there": [], "one gone": [0], "both gone": [0, 2]}[replaced]
    for base in gone:
        for suffix in SEGMENT_FILES:
            node.remove(name_of(base, suffix))
    node.start()
    log = node.log
    assert log.segments.base_offsets == (0, 4, 6)
    assert offsets(log_records(log)) == [0, 2, 3, 4, 5, 6]
    assert not node.files(".swap")
    assert node.files(".log")[name_of(0, ".log")] == content
    assert node.files(".log")[name_of(4, ".log")] == later
    assert node.files(".index").keys() == {name_of(base, ".index") for base in (0, 4, 6)}
    assert says(lines, "orders-0", "completing the swap", name_of(0, ".log"))
    if replaced == "both there":
        assert says(lines, "orders-0", "removing", name_of(2, ".log"), "takes its place")
    assert offsets(log_records(node.restart(clean=False))) == [0, 2, 3, 4, 5, 6]


def test_a_swap_that_was_split_in_two_is_completed_with_both(
    lines: pytest.LogCaptureFixture,
) -> None:
    node = compacted()
    node.log.flush(4)
    node.manager.directories[0].checkpoints.write_recovery_points()
    node.kill()
    content = cleaned_content(node)
    node.put(name_of(0, ".log.swap"), content[:BATCH_SIZE])
    node.put(name_of(2, ".log.swap"), content[BATCH_SIZE:])
    node.start()
    assert node.log.segments.base_offsets == (0, 2, 4, 6)
    assert offsets(log_records(node.log)) == [0, 2, 3, 4, 5, 6]
    assert says(lines, "completing the swap", name_of(0, ".log"))
    assert says(lines, "completing the swap", name_of(2, ".log"))


def test_only_an_index_of_a_swap_left_gets_its_name() -> None:
    node = compacted()
    node.stop()
    content = cleaned_content(node)
    # The log file was renamed already, the replaced ones are gone, then the power went.
    for suffix in SEGMENT_FILES:
        node.remove(name_of(2, suffix))
    node.put(name_of(0, ".log"), content)
    for suffix in (".index", ".timeindex"):
        node.put(name_of(0, suffix) + ".swap", b"")
        node.remove(name_of(0, suffix))
    node.start()
    assert not node.files(".swap")
    assert offsets(log_records(node.log)) == [0, 2, 3, 4, 5, 6]


def test_a_swap_at_or_behind_a_cleaning_that_was_not_complete_is_dropped(
    lines: pytest.LogCaptureFixture,
) -> None:
    node = compacted()
    node.kill()
    before = node.files(".log")
    content = cleaned_content(node)
    node.put(name_of(0, ".log.cleaned"), content[:BATCH_SIZE])
    node.put(name_of(2, ".log.swap"), content[BATCH_SIZE:])
    node.start()
    assert node.files(".log") == before
    assert not node.files(".swap", ".cleaned")
    assert says(lines, "removing", name_of(2, ".log.swap"), "not complete")
    assert offsets(log_records(node.log)) == list(range(7))


def test_a_swap_before_a_cleaning_that_was_not_complete_is_completed(
    lines: pytest.LogCaptureFixture,
) -> None:
    node = compacted()
    node.kill()
    node.put(name_of(0, ".log.swap"), cleaned_content(node))
    node.put(name_of(4, ".log.cleaned"), b"half")
    node.start()
    assert not node.files(".swap", ".cleaned")
    assert node.log.segments.base_offsets == (0, 4, 6)
    assert offsets(log_records(node.log)) == [0, 2, 3, 4, 5, 6]
    assert says(lines, "completing the swap", name_of(0, ".log"))
    assert says(lines, "removing", name_of(4, ".log.cleaned"))


# Producer snapshots


def idempotent(sequence: int) -> bytearray:
    return batch(value=bytes(20), pid=PID, epoch=0, sequence=sequence)


def with_producer() -> Node:
    node = Node(LogConfig(segment_bytes=300))
    append(node.log, *[idempotent(sequence) for sequence in range(8)])
    assert node.log.segments.base_offsets == (0, 3, 6)
    return node


def knows_its_producer(node: Node) -> bool:
    log = node.log
    assert log.producer_state.producers[PID].last_sequence == 7
    duplicate = log.append_as_leader(idempotent(7), LEADER_EPOCH).is_duplicate
    return duplicate and append(log, idempotent(8))[0].first_offset == 8


def test_after_an_unclean_stop_missing_snapshots_are_made_up_for_by_the_log() -> None:
    node = with_producer()
    node.kill()
    for name in node.files(".snapshot"):
        node.remove(name)
    node.start()
    assert knows_its_producer(node)
    node.kill()
    # One for each of the last two segments' starts, and for the end before the last append.
    assert {name_of(6, ".snapshot"), name_of(8, ".snapshot")} <= node.files(".snapshot").keys()
    (entry,) = read_snapshot(node.fs, node.path(name_of(6, ".snapshot")))
    assert entry.last_sequence == 5


def test_a_missing_newest_snapshot_is_made_up_for_by_an_older_one_and_the_log() -> None:
    node = with_producer()
    node.stop()
    node.remove(name_of(8, ".snapshot"))
    node.start()
    assert knows_its_producer(node)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1],
        lambda content: content[:20] + bytes([content[20] ^ 1]) + content[21:],
        lambda content: b"",
        lambda content: b"\x00\x09" + content[2:],
    ],
    ids=["cut", "flipped bit", "empty", "unknown version"],
)
@pytest.mark.parametrize("clean", [True, False])
def test_a_corrupt_snapshot_is_replaced_by_an_older_one_and_the_log(
    lines: pytest.LogCaptureFixture, damage: object, clean: bool
) -> None:
    assert callable(damage)
    node = with_producer()
    if clean:
        node.stop()
    else:
        # With the recovery point there, the snapshot at 6 is what recovery begins with.
        node.log.flush(6)
        node.manager.directories[0].checkpoints.write_recovery_points()
        node.kill()
    newest = max(node.files(".snapshot"))
    node.put(newest, damage(node.files(".snapshot")[newest]))
    node.start()
    assert says(lines, "orders-0", "snapshot", str(int(newest[:20])), "cannot be used")
    assert knows_its_producer(node)


def test_all_snapshots_corrupt_are_made_up_for_by_the_whole_log() -> None:
    node = with_producer()
    node.stop()
    for name in node.files(".snapshot"):
        node.put(name, b"nonsense")
    node.start()
    assert knows_its_producer(node)


def test_after_a_clean_stop_without_any_snapshot_there_are_no_producers() -> None:
    # That is a log from before there were snapshots: reading all of it would be for nothing.
    node = with_producer()
    node.stop()
    for name in node.files(".snapshot"):
        node.remove(name)
    node.start()
    assert dict(node.log.producer_state.producers) == {}
    assert node.files(".snapshot").keys() == {name_of(n, ".snapshot") for n in (3, 6, 8)}


def test_stray_snapshots_are_removed() -> None:
    node = with_producer()
    node.stop()
    before = node.files()
    newest = node.files(".snapshot")[name_of(8, ".snapshot")]
    for offset in (1, 4, 5, 7):
        node.put(name_of(offset, ".snapshot"), newest)
    node.put(name_of(99, ".snapshot"), newest)
    node.start()
    node.kill()
    assert node.files(".snapshot") == {n: c for n, c in before.items() if "snapshot" in n}


def test_a_snapshot_ahead_of_a_cut_log_is_not_believed() -> None:
    node = with_producer()
    node.stop()
    node.fs.remove("/data/.kafka_cleanshutdown")
    node.fs.remove("/data/recovery-point-offset-checkpoint")
    tail = name_of(6, ".log")
    whole = node.files(".log")[tail]
    node.put(tail, whole[: next(iter(batches(whole))).size])
    node.start()
    log = node.log
    assert log.log_end_offset == 7
    assert log.producer_state.producers[PID].last_sequence == 6
    assert append(log, idempotent(7))[0].first_offset == 7
    assert name_of(8, ".snapshot") not in node.files(".snapshot")


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    "name",
    ["notes.log", "1.log", "old.index", "x.timeindex", "9" * 20 + ".log", "notes.log.swap"],
)
def test_a_file_that_only_looks_like_a_segments_is_told_and_left_alone(
    lines: pytest.LogCaptureFixture, name: str, clean: bool
) -> None:
    node = Node()
    append(node.log, data(1), data(1))
    if clean:
        node.stop()
    else:
        node.kill()
    node.put(name, b"mine")
    node.start()
    assert offsets(log_records(node.log)) == [0, 1]
    assert says(lines, "orders-0", "ignoring", name)
    assert node.files(name)[name] == b"mine"
