from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dohle.core.errors import ErrorCode
from dohle.core.steps import finish
from dohle.storage.producers.snapshot import encode_snapshot, snapshot_name
from dohle.storage.producers.state import NO_VERIFICATION, ProducerState
from tests.storage.producers.producer_partition import (
    COORDINATOR,
    NOW_MS,
    PARTITION,
    PID,
    Partition,
    data,
    marker,
    plain,
)


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    return Partition(str(tmp_path))


# Expiry


def test_an_idle_producer_is_forgotten_and_may_start_anywhere(partition: Partition) -> None:
    partition.append(data(0, 0))
    expires_ms = NOW_MS + partition.config.producer_id_expiration_ms
    finish(partition.state.remove_expired_producers(expires_ms - 1))
    assert PID in partition.state.producers
    finish(partition.state.remove_expired_producers(expires_ms))
    assert partition.state.is_empty
    partition.append(data(1, 33))


def test_a_producer_with_an_open_transaction_does_not_expire(partition: Partition) -> None:
    partition.append(data(0, 0, transactional=True))
    much_later_ms = NOW_MS + 100 * partition.config.producer_id_expiration_ms
    finish(partition.state.remove_expired_producers(much_later_ms))
    assert partition.state.first_unstable_offset == 0
    partition.end(marker(1))
    finish(partition.state.remove_expired_producers(much_later_ms))
    assert PID not in partition.state.producers


def test_h17_a_producer_is_known_as_long_as_its_last_marker_is_young(partition: Partition) -> None:
    """KAFKA-9144: else a coordinator that was deposed could end its next transaction."""
    partition.append(data(0, 0, transactional=True))
    later_ms = NOW_MS + partition.config.producer_id_expiration_ms - 1
    partition.end(marker(1, coordinator_epoch=7, timestamp=later_ms))
    finish(partition.state.remove_expired_producers(later_ms + 1))
    partition.refuses(
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        marker(2, coordinator_epoch=6, timestamp=later_ms),
        origin=COORDINATOR,
    )
    expires_ms = later_ms + partition.config.producer_id_expiration_ms
    finish(partition.state.remove_expired_producers(expires_ms))
    assert PID not in partition.state.producers


def test_a_change_of_the_expiry_counts_at_once(partition: Partition) -> None:
    partition.append(data(0, 0))
    partition.config.producer_id_expiration_ms = 1000
    finish(partition.state.remove_expired_producers(NOW_MS + 1000))
    assert partition.state.is_empty


def test_a_verification_that_lingers_expires(partition: Partition) -> None:
    state = partition.state
    guard = state.start_transaction_verification(PID, 0, 0, False, NOW_MS)
    expires_ms = NOW_MS + partition.config.producer_id_expiration_ms
    finish(state.remove_expired_producers(expires_ms - 1))
    assert state.verification_guard(PID) == guard
    finish(state.remove_expired_producers(expires_ms))
    assert state.verification_guard(PID) == NO_VERIFICATION


# Snapshots, reloading and truncation


def test_a_snapshot_is_taken_once_for_each_end(partition: Partition) -> None:
    assert partition.state.take_snapshot(sync=True) is None
    partition.append(data(0, 0))
    assert partition.state.take_snapshot(sync=True) == f"{partition.directory}/{snapshot_name(1)}"
    assert partition.state.take_snapshot(sync=True) is None
    assert partition.snapshots() == [1]
    partition.append(plain(1))
    assert partition.state.take_snapshot(sync=False) is not None
    assert partition.snapshots() == [1, 2]
    assert partition.state.snapshots.offsets == (1, 2)


def test_a_state_is_reloaded_from_its_newest_snapshot(partition: Partition) -> None:
    partition.append(data(0, 0, 2))
    partition.snapshot_at(2)
    partition.append(data(2, 2))
    partition.append(data(3, 0, pid=18, transactional=True))
    partition.state.take_snapshot(sync=False)
    before = partition.state
    state = partition.open()
    state.truncate_and_reload(0, 4, NOW_MS)
    assert state.map_end_offset == 4
    assert state.first_unstable_offset == state.first_undecided_offset == 3
    assert dict(state.producers) == {
        pid: entry._replace(batches=entry.batches[-1:]) for pid, entry in before.producers.items()
    }
    assert state.take_snapshot(sync=False) is None


def test_a_transaction_open_at_the_snapshot_is_completed_behind_it(partition: Partition) -> None:
    partition.append(data(0, 0, pid=2, transactional=True))
    partition.append(data(1, 0, pid=1, transactional=True))
    partition.snapshot_at(2)
    state = partition.open()
    state.truncate_and_reload(0, 4, NOW_MS)
    assert state.replay(marker(2, pid=1, commit=False)) == (1, 1, 2, 0)
    assert state.replay(marker(3, pid=2, commit=False)) == (2, 0, 3, 4)
    assert state.map_end_offset == 4


def test_an_expired_producer_is_not_loaded(partition: Partition) -> None:
    partition.append(data(0, 0, timestamp=NOW_MS))
    partition.append(data(1, 0, pid=18, timestamp=NOW_MS + 1))
    partition.append(data(2, 0, pid=19, timestamp=NOW_MS, transactional=True))
    partition.snapshot_at(3)
    state = partition.open()
    state.truncate_and_reload(0, 3, NOW_MS + partition.config.producer_id_expiration_ms)
    assert sorted(state.producers) == [18, 19]


def test_without_a_snapshot_the_state_starts_at_the_log_start(partition: Partition) -> None:
    partition.state.truncate_and_reload(7, 20, NOW_MS)
    assert partition.state.map_end_offset == 7
    assert partition.state.is_empty


def test_snapshots_outside_the_log_are_removed(partition: Partition) -> None:
    partition.snapshot_at(2, 4, 6, 8, 10)
    state = partition.open()
    state.truncate_and_reload(4, 9, NOW_MS)
    assert partition.snapshots() == [6, 8]
    assert state.snapshots.latest_offset == 8
    assert state.map_end_offset == 8


def test_truncation_goes_back_to_a_snapshot(partition: Partition) -> None:
    partition.append(data(0, 0))
    partition.state.take_snapshot(sync=False)
    partition.append(data(1, 1))
    partition.append(data(2, 2, transactional=True))
    partition.append(data(3, 0, pid=18, transactional=True))
    partition.end(marker(4, pid=18))
    partition.state.truncate_and_reload(0, 3, NOW_MS)
    assert partition.state.map_end_offset == 1
    assert partition.state.first_unstable_offset is None
    assert list(partition.state.producers) == [PID]
    assert partition.entry().last_sequence == 0
    partition.state.replay(data(1, 1))
    partition.state.replay(data(2, 2, transactional=True))
    assert partition.state.first_unstable_offset == 2


def test_reloading_at_the_same_end_only_follows_the_log_start(partition: Partition) -> None:
    for number in range(7):
        partition.append(data(number, number))
        if number == 2:
            partition.state.take_snapshot(sync=False)
    partition.state.truncate_and_reload(3, 7, NOW_MS)
    assert len(partition.entry().batches) == 5
    assert partition.snapshots() == []


def test_truncating_everything_removes_state_and_snapshots(partition: Partition) -> None:
    partition.append(data(0, 0))
    partition.append(data(1, 1, transactional=True))
    partition.append(data(2, 0, pid=18, transactional=True))
    partition.end(marker(3, pid=18))
    partition.snapshot_at(4)
    partition.state.truncate_fully_and_start_at(30)
    assert partition.state.is_empty
    assert partition.state.first_unstable_offset is None
    assert partition.state.map_end_offset == 30
    assert partition.snapshots() == []
    assert partition.state.snapshots.latest_offset is None
    assert partition.state.take_snapshot(sync=False) is not None
    assert partition.snapshots() == [30]


def test_producers_outlive_their_batches(partition: Partition) -> None:
    partition.append(data(0, 0))
    partition.append(data(1, 0, pid=18, transactional=True))
    partition.end(marker(2, pid=18))
    partition.state.on_log_start_offset_incremented(3)
    assert sorted(partition.state.producers) == [PID, 18]
    assert partition.state.first_unstable_offset is None
    partition.append(data(3, 1))


def test_a_log_start_beyond_the_end_takes_the_end_along(partition: Partition) -> None:
    partition.append(data(0, 0))
    partition.state.on_log_start_offset_incremented(10)
    assert partition.state.map_end_offset == 10
    # A snapshot that says no more than the log start does is not worth a file.
    assert partition.state.take_snapshot(sync=False) is None


CORRUPTIONS: list[Callable[[bytes], bytes]] = [
    lambda good: good[:-1] + bytes([good[-1] ^ 1]),
    lambda good: good[:5],
    lambda good: b"",
    lambda good: bytes(len(good)),
]


@pytest.mark.parametrize("corrupt", CORRUPTIONS, ids=["flipped", "torn", "empty", "zeros"])
def test_a_corrupt_snapshot_is_removed_and_an_older_one_is_used(
    partition: Partition, caplog: pytest.LogCaptureFixture, corrupt: Callable[[bytes], bytes]
) -> None:
    partition.append(data(0, 0))
    partition.snapshot_at(1)
    partition.append(data(1, 1))
    partition.snapshot_at(2)
    path = Path(partition.directory, snapshot_name(2))
    path.write_bytes(corrupt(path.read_bytes()))
    state = partition.open()
    state.truncate_and_reload(0, 2, NOW_MS)
    assert state.map_end_offset == 1
    assert partition.entry().last_sequence == 0
    assert partition.snapshots() == [1]
    assert [(record.name, record.levelname) for record in caplog.records] == [
        ("dohle.storage", "WARNING")
    ]
    assert "orders-3: the producer snapshot at offset 2" in caplog.text


def test_if_all_snapshots_are_corrupt_the_whole_log_is_replayed(partition: Partition) -> None:
    partition.append(data(0, 0))
    partition.snapshot_at(1, 2, 3)
    for offset in (1, 2, 3):
        Path(partition.directory, snapshot_name(offset)).write_bytes(b"nonsense")
    state = partition.open()
    state.truncate_and_reload(0, 3, NOW_MS)
    assert state.map_end_offset == 0
    assert state.is_empty
    assert partition.snapshots() == []


def test_a_snapshot_that_vanished_is_passed_over(partition: Partition) -> None:
    partition.snapshot_at(1, 2)
    state = partition.open()
    partition.fs.remove(f"{partition.directory}/{snapshot_name(2)}")
    state.truncate_and_reload(0, 2, NOW_MS)
    assert state.map_end_offset == 1
    assert state.snapshots.offsets == (1,)


def test_snapshots_known_to_the_caller_are_not_listed(partition: Partition) -> None:
    partition.snapshot_at(1, 2)
    state = ProducerState(
        partition.fs, partition.directory, PARTITION, partition.config, snapshot_offsets=[2, 1]
    )
    assert state.snapshots.offsets == (1, 2)


def test_other_files_and_folders_are_no_snapshots(partition: Partition) -> None:
    Path(partition.directory, "00000000000000000003.log").write_bytes(b"")
    Path(partition.directory, "00000000000000000003.snapshot.deleted").write_bytes(b"")
    Path(partition.directory, "00000000000000000004.snapshot").mkdir()
    Path(partition.directory, "00000000000000000005.snapshot").write_bytes(encode_snapshot([]))
    assert partition.open().snapshots.offsets == (5,)


def test_a_folder_that_is_not_there_has_no_snapshots(partition: Partition) -> None:
    partition.directory += "/missing"
    assert partition.open().snapshots.offsets == ()


@pytest.mark.parametrize(
    ("taken", "segments", "kept"),
    [
        ([2, 5, 10], [0, 5, 10], [5, 10]),
        ([2, 5, 10, 12], [0, 5, 10], [5, 10, 12]),
        ([2, 5, 7, 12, 15], [0, 5, 10], [5, 15]),
        ([2, 5, 7], [0, 10], []),
        ([2, 5], [], [5]),
        ([], [0], []),
    ],
    ids=["older than all", "newest stays", "only the newest", "none fits", "no segment", "none"],
)
def test_stray_snapshots_are_removed_but_for_the_newest_behind_the_last_segment(
    partition: Partition, taken: list[int], segments: list[int], kept: list[int]
) -> None:
    partition.snapshot_at(*taken)
    partition.state.snapshots.remove_strays(segments)
    assert partition.snapshots() == kept
    assert partition.state.snapshots.offsets == tuple(kept)


def test_a_snapshot_is_found_by_its_offset(partition: Partition) -> None:
    partition.snapshot_at(2)
    assert partition.state.snapshots.find(2) == f"{partition.directory}/{snapshot_name(2)}"
    assert partition.state.snapshots.find(3) is None


def test_a_snapshot_marked_for_deletion_is_renamed_and_forgotten(partition: Partition) -> None:
    partition.snapshot_at(2, 4)
    path = partition.state.snapshots.mark_for_deletion(2)
    assert path == f"{partition.directory}/{snapshot_name(2)}.deleted"
    assert partition.fs.exists(path)
    assert partition.snapshots() == [4]
    assert partition.state.snapshots.mark_for_deletion(2) is None
    partition.fs.remove(f"{partition.directory}/{snapshot_name(4)}")
    assert partition.state.snapshots.mark_for_deletion(4) is None
    assert partition.state.snapshots.offsets == ()


def test_the_state_follows_a_rename_of_its_folder(partition: Partition, tmp_path: Path) -> None:
    partition.snapshot_at(2)
    partition.fs.make_dirs(str(tmp_path / "new"))
    partition.fs.rename(
        partition.state.snapshots.find(2) or "", f"{tmp_path}/new/{snapshot_name(2)}"
    )
    partition.state.snapshots.directory = partition.directory = f"{tmp_path}/new"
    partition.snapshot_at(4)
    assert partition.snapshots() == [2, 4]
