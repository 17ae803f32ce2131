"""The metadata log of a quorum's member: fetched, cut off, replaced by a snapshot."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dohle.core.errors import KafkaError
from dohle.core.seams import ManualClock
from dohle.core.steps import finish
from dohle.raft.membership import Membership
from dohle.raft.values import FETCH_MAX_BYTES, OffsetAndEpoch
from dohle.records.batch import batches
from dohle.server.quorum.metadata_log import CorruptMetadataLog
from dohle.server.quorum.raft_log import RaftLog, whole_batches
from dohle.server.quorum.snapshots import SnapshotId, snapshot_path, write_snapshot
from dohle.testing.simulation.files import SimulatedFileSystem
from tests.server.quorum.raft_logs import (
    FOLDER,
    NOW_MS,
    content,
    data_batch,
    epoch_of,
    joined,
    offset_of,
    open_log,
    snapshot_bytes,
    voters,
    voters_batch,
)

CLOCK = ManualClock(NOW_MS)


def new_log(fs: SimulatedFileSystem | None = None) -> RaftLog:
    return open_log(fs or SimulatedFileSystem(CLOCK), CLOCK)[1]


def read(log: RaftLog, offset: int, max_bytes: int = FETCH_MAX_BYTES) -> bytes:
    piece = log.slice(offset, max_bytes)
    return b"" if piece is None else bytes(whole_batches(piece, max_bytes))


def test_what_was_fetched_is_appended_byte_for_byte_up_to_a_batch_of_a_later_epoch() -> None:
    """R54, R65."""
    log = new_log()
    sent = [data_batch(0, 1), data_batch(1, 2, 3), data_batch(4, 3)]
    finish(log.append_fetched(joined(sent), 2))
    assert content(log) == sent[:2]
    assert (log.end_offset, log.last_epoch) == (4, 2)


def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch() -> None:
    log = new_log()
    sent = [data_batch(0, 1), data_batch(1, 1)]
    finish(log.append_fetched(joined(sent)[:-1], 1))
    assert content(log) == sent[:1]


@pytest.mark.parametrize(
    "broken",
    [
        data_batch(2, 1),  # there is a gap before it
        data_batch(0, 1),  # it is there already
        data_batch(1, 0),  # its leader is older than that of the batch before
        data_batch(1, 1)[:-1] + b"?",  # its checksum is wrong
    ],
    ids=["gap", "repeated", "older epoch", "checksum"],
)
def test_batches_that_do_not_fit_are_dropped_with_all_behind_them(
    broken: bytearray, caplog: pytest.LogCaptureFixture
) -> None:
    """R54."""
    log = new_log()
    good = data_batch(0, 1)
    with caplog.at_level(logging.ERROR):
        finish(log.append_fetched(joined([good, broken, data_batch(2, 1)]), 1))
    assert content(log) == [good]
    assert "cannot be used" in caplog.text


def test_much_is_appended_in_steps_and_what_is_wrong_ends_it_only_there() -> None:
    log = new_log()
    sent = [data_batch(offset, 1, size=150_000) for offset in range(5)]
    steps = log.append_fetched(joined([*sent[:4], sent[0]]), 1)
    next(steps)
    assert content(log) == sent[:2]
    finish(steps)
    assert content(log) == sent[:4]


def test_voters_count_from_the_moment_they_are_in_the_log_until_they_are_cut_off() -> None:
    """R2, R85."""
    log = new_log()
    finish(log.append_fetched(joined([voters_batch(0, 1, 1, 2), data_batch(2, 1)]), 1))
    finish(log.append_fetched(voters_batch(3, 1, 1, 2, 3), 1))
    assert log.memberships.latest == voters(1, 2, 3)
    log.truncate_to(3)
    assert log.memberships.latest == voters(1, 2)
    log.truncate_to(0)
    assert log.memberships.latest == Membership()
    assert (log.end_offset, log.last_epoch) == (0, 0)


def test_a_leader_appends_control_records_and_knows_them_at_once() -> None:
    log = new_log()
    log.append_control(voters(1).control_records(), 4, NOW_MS)
    log.append_batch(data_batch(2, 4), 4)
    assert log.memberships.latest == voters(1)
    assert [epoch_of(batch) for batch in content(log)] == [4, 4]
    assert log.end_offset == 3


def test_what_is_committed_is_never_cut_off() -> None:
    """R67."""
    log = new_log()
    finish(log.append_fetched(joined([data_batch(0, 1), data_batch(1, 1)]), 1))
    log.log.update_high_watermark(1)
    log.truncate_to(1)
    with pytest.raises(KafkaError, match="committed up to 1"):
        log.truncate_to(0)


def test_a_start_finds_the_voters_and_epochs_that_were_there() -> None:
    fs = SimulatedFileSystem(CLOCK)
    manager, log = open_log(fs, CLOCK)
    finish(log.append_fetched(joined([voters_batch(0, 1, 1, 2), data_batch(2, 3)]), 3))
    manager.release()
    again = new_log(fs)
    assert again.memberships.latest == voters(1, 2)
    assert again.memberships.latest_offset == 1
    assert (again.end_offset, again.last_epoch) == (3, 3)
    assert again.end_of_epoch(2) == OffsetAndEpoch(2, 1)


def test_only_whole_batches_are_read_and_at_least_one() -> None:
    """R50."""
    log = new_log()
    sent = [data_batch(0, 1), data_batch(1, 1, 2, size=50), data_batch(3, 1)]
    finish(log.append_fetched(joined(sent), 1))
    assert read(log, 0) == joined(sent)
    assert read(log, 0, len(sent[0])) == sent[0]
    assert read(log, 0, len(sent[0]) + len(sent[1]) + 1) == joined(sent[:2])
    assert read(log, 2, 1) == sent[1]
    assert read(log, 4) == b""
    assert read(log, 5) == b""


# Snapshots

SNAPSHOT = SnapshotId(20, 5)


def download(log: RaftLog, data: bytes, chunk: int = 7) -> None:
    part = log.store.begin_download(SNAPSHOT)
    while part.size < len(data):
        part.append(data[part.size : part.size + chunk])
    part.finish()
    log.install(SNAPSHOT)


def test_a_downloaded_snapshot_takes_the_place_of_the_log() -> None:
    """R57, R75: the voters are those of the snapshot, and the last epoch is its own."""
    fs = SimulatedFileSystem(CLOCK)
    manager, log = open_log(fs, CLOCK)
    finish(log.append_fetched(joined([voters_batch(0, 1, 1, 2), data_batch(2, 1)]), 1))
    data = snapshot_bytes(fs, SNAPSHOT, voters(1, 2, 3))
    download(log, data)
    for found in (log, None):
        if found is None:
            manager.release()
            found = new_log(fs)
        assert (found.start_offset, found.end_offset, found.last_epoch) == (20, 20, 5)
        assert found.memberships.latest == voters(1, 2, 3)
        assert list(found.snapshots) == [SNAPSHOT]
        assert found.snapshot_size(SNAPSHOT) == len(data)
        assert found.store.read(SNAPSHOT, 3, 10) == data[3:13]
    assert log.snapshot_size(OffsetAndEpoch(20, 4)) is None
    finish(log.append_fetched(data_batch(20, 6), 6))
    assert (log.end_offset, log.last_epoch) == (21, 6)


def test_a_log_that_goes_on_behind_a_downloaded_snapshot_stays() -> None:
    fs = SimulatedFileSystem(CLOCK)
    log = new_log(fs)
    sent = [data_batch(0, 5, 20), data_batch(20, 5), data_batch(21, 6)]
    finish(log.append_fetched(joined(sent), 6))
    download(log, snapshot_bytes(fs, SNAPSHOT, Membership()))
    assert content(log) == sent
    assert log.log.high_watermark == 20


def test_an_abandoned_download_leaves_nothing() -> None:
    fs = SimulatedFileSystem(CLOCK)
    log = new_log(fs)
    part = log.store.begin_download(SNAPSHOT)
    part.append(b"abc")
    part.discard()
    assert not [path for path in fs.files() if path.endswith(".part")]
    assert list(log.snapshots) == []


def test_a_start_removes_what_was_being_written_or_removed_and_what_is_too_old() -> None:
    """R64."""
    fs = SimulatedFileSystem(CLOCK)
    manager, log = open_log(fs, CLOCK)
    download(log, snapshot_bytes(fs, SNAPSHOT, Membership()))
    manager.release()
    old = SnapshotId(10, 4)
    for name in (
        SNAPSHOT.file_name + ".part",
        SnapshotId(3, 1).file_name + ".deleted",
        old.file_name,
    ):
        fs.put(f"{FOLDER}/{name}", b"?")
    again = new_log(fs)
    assert list(again.snapshots) == [SNAPSHOT]
    left = sorted(path for path in fs.files() if ".checkpoint" in path and FOLDER in path)
    # What is too old has a minute, as after any removal.
    assert left == [snapshot_path(FOLDER, old) + ".deleted", snapshot_path(FOLDER, SNAPSHOT)]


def test_h25_a_log_without_its_beginning_is_refused() -> None:
    """R64, KAFKA-14238: the records before it are in no snapshot."""
    fs = SimulatedFileSystem(CLOCK)
    manager, log = open_log(fs, CLOCK)
    download(log, snapshot_bytes(fs, SNAPSHOT, Membership()))
    manager.release()
    fs.remove(snapshot_path(FOLDER, SNAPSHOT))
    with pytest.raises(CorruptMetadataLog, match="no snapshot of the records before it"):
        new_log(fs)


def test_a_log_that_is_behind_its_snapshot_begins_anew_behind_it() -> None:
    """R64: also if it has more records, but of older leaders."""
    fs = SimulatedFileSystem(CLOCK)
    manager, log = open_log(fs, CLOCK)
    finish(log.append_fetched(data_batch(0, 4, 30), 4))
    manager.release()
    write_snapshot(fs, snapshot_path(FOLDER, SNAPSHOT), (), voters(2), epoch=5, timestamp=NOW_MS)
    again = new_log(fs)
    assert (again.start_offset, again.end_offset, again.last_epoch) == (20, 20, 5)
    assert again.memberships.latest == voters(2)


def test_older_snapshots_and_what_they_cover_go_when_they_are_not_needed() -> None:
    """R99."""
    fs = SimulatedFileSystem(CLOCK)
    log = new_log(fs)
    for offset in range(0, 30, 10):
        finish(log.append_fetched(data_batch(offset, 5, 10), 5))
        log.log.roll()
        id = SnapshotId(offset + 10, 5)
        write_snapshot(fs, log.store.path(id), (), epoch=5, timestamp=NOW_MS + offset)
        log.store.note(id)
    log.log.update_high_watermark(30)
    assert log.store.last_contained_log_timestamp(log.snapshots[1]) == NOW_MS + 10
    log.forget_before(log.snapshots[1])
    assert [each.end_offset for each in log.snapshots] == [20, 30]
    assert log.start_offset == 20
    assert [offset_of(batch) for batch in content(log)] == [20]


# Any log

EPOCHS = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), max_size=12)


@settings(max_examples=60)
@given(steps=EPOCHS, cuts=st.lists(st.integers(0, 400), max_size=6), back=st.integers(0, 30))
def test_any_way_of_fetching_gives_the_leaders_log(
    steps: list[tuple[int, int]], cuts: list[int], back: int
) -> None:
    leader = new_log()
    epoch = 0
    first_of_epoch: dict[int, int] = {}
    for bump, count in steps:
        epoch += bump - 1
        if epoch:
            first_of_epoch.setdefault(epoch, leader.end_offset)
            leader.append_batch(data_batch(0, epoch, count), epoch)
    follower = new_log()
    for cut in [*cuts, FETCH_MAX_BYTES]:
        # Whatever a response may hold, it is at least one batch, and ends anywhere.
        finish(follower.append_fetched(read(leader, follower.end_offset)[:cut], epoch))
    assert content(follower) == content(leader)
    assert follower.last_epoch == leader.last_epoch == max(first_of_epoch, default=0)
    starts = sorted(first_of_epoch.items())
    for asked in range(1, epoch + 2):
        ends = [start for each, start in starts if each > asked] + [leader.end_offset]
        known = max((each for each, _ in starts if each <= asked), default=asked)
        beyond = not starts or asked > starts[-1][0]
        assert leader.end_of_epoch(asked) == (None if beyond else (ends[0], known))
    kept = [batch for batch in content(leader) if offset_of(batch) < back]
    end = kept and list(batches(kept[-1]))[-1].next_offset
    follower.truncate_to(end or 0)
    assert content(follower) == kept
    assert follower.last_epoch == (epoch_of(kept[-1]) if kept else 0)
