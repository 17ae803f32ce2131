"""A follower of the quorum is killed at every file operation that it makes.

After each death its log is opened three times over: as the process left it, with everything
unsynced lost, and with a random part of it lost or torn. Each time the log must be what it was
before or after the step that was interrupted, with all that was synced, and must agree with itself:
voters and epochs are those of its snapshot and its batches. A second opening changes nothing.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from dohle.core.seams import ManualClock
from dohle.core.steps import finish
from dohle.raft.membership import Membership
from dohle.records.batch import read_batch
from dohle.records.control import parse_control
from dohle.server.quorum.raft_log import RaftLog
from dohle.server.quorum.snapshots import SnapshotId
from dohle.testing.simulation.files import SimulatedCrash, SimulatedFileSystem
from tests.server.quorum.raft_logs import (
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

SNAPSHOT = SnapshotId(30, 7)


@dataclass
class State:
    """A log as somebody may find it."""

    snapshot: SnapshotId | None = None
    batches: list[bytes] = field(default_factory=list)


class Follower:
    """The steps, in order; ``before`` and ``after`` are the log around the current one."""

    def __init__(self, fs: SimulatedFileSystem, clock: ManualClock) -> None:
        self.fs = fs
        self.clock = clock
        self.before = State()
        self.after = State()
        #: How many batches are on the disk whatever happens.
        self.synced = 0
        self.log: RaftLog

    def run(self) -> None:
        data = snapshot_bytes(SimulatedFileSystem(self.clock), SNAPSHOT, voters(1, 2, 3))
        _, self.log = open_log(self.fs, self.clock)
        self.fetch(voters_batch(0, 1, 1, 2), data_batch(2, 1))
        self.flush()
        self.log.log.roll()
        self.fetch(data_batch(3, 2, 2), voters_batch(5, 2, 2, 3))
        self.flush()
        self.fetch(data_batch(7, 2))
        self.truncate(3)
        self.fetch(data_batch(5, 4), data_batch(6, 5))
        self.flush()
        self.download(data)
        self.fetch(voters_batch(30, 7, 1, 3), data_batch(32, 8))
        self.flush()

    def fetch(self, *sent: bytearray) -> None:
        # Each becomes visible by itself if the write is torn.
        self.after.batches += map(bytes, sent)
        finish(self.log.append_fetched(joined(sent), epoch_of(sent[-1])))
        self.before.batches += map(bytes, sent)

    def flush(self) -> None:
        self.log.log.flush()
        self.synced = len(self.before.batches)

    def truncate(self, keep: int) -> None:
        self.before.batches = self.before.batches[:keep]
        self.synced = min(self.synced, keep)
        self.log.truncate_to(offset_of(self.after.batches[keep]))
        self.after.batches = self.after.batches[:keep]

    def download(self, data: bytes) -> None:
        part = self.log.store.begin_download(SNAPSHOT)
        part.append(data[:50])
        part.append(data[50:])
        # From the rename on the snapshot may be what a start finds, and then it will always be.
        self.after = State(SNAPSHOT)
        part.finish()
        self.log.install(SNAPSHOT)
        self.before, self.synced = State(SNAPSHOT), 0


def whole_run() -> SimulatedFileSystem:
    clock = ManualClock(NOW_MS)
    fs = SimulatedFileSystem(clock)
    Follower(fs, clock).run()
    return fs


OPERATIONS = whole_run().operations


def check(follower: Follower, fs: SimulatedFileSystem, *, power_lost: bool) -> None:
    manager, log = open_log(fs, follower.clock)
    found = State(log.store.latest, content(log))
    fits = [
        state
        for state in (follower.before, follower.after)
        if state.snapshot == found.snapshot and found.batches == state.batches[: len(found.batches)]
    ]
    assert fits, found
    if found.snapshot == follower.before.snapshot:
        least = follower.synced if power_lost else len(follower.before.batches)
        assert len(found.batches) >= least
    check_agreement(log, found)
    manager.release()
    files = lasting_files(fs)
    manager, _ = open_log(fs, follower.clock)
    manager.release()
    assert lasting_files(fs) == files
    go_on(fs, follower.clock)


def lasting_files(fs: SimulatedFileSystem) -> dict[str, bytes]:
    return {path: data for path, data in fs.files().items() if not path.endswith(".deleted")}


def check_agreement(log: RaftLog, found: State) -> None:
    membership, end_offset, epoch = Membership(), 0, 0
    if found.snapshot is not None:
        membership, (end_offset, epoch) = voters(1, 2, 3), found.snapshot
        assert log.start_offset == found.snapshot.end_offset
    for data in found.batches:
        batch = read_batch(data)
        end_offset, epoch = batch.next_offset, batch.partition_leader_epoch
        if batch.is_control:
            records = [(type, value or b"") for type, value in map(parse_control, batch)]
            membership = membership.after(records)
    assert (log.end_offset, log.last_epoch) == (end_offset, epoch)
    assert log.memberships.latest == membership


def go_on(fs: SimulatedFileSystem, clock: ManualClock) -> None:
    manager, log = open_log(fs, clock)
    end_offset = log.end_offset
    finish(log.append_fetched(data_batch(end_offset, 9), 9))
    log.log.close()
    manager.release()
    manager, log = open_log(fs, clock)
    assert (log.end_offset, log.last_epoch) == (end_offset + 1, 9)
    manager.release()


@pytest.mark.parametrize("part", range(4))
def test_death_at_every_file_operation_leaves_the_log_before_or_after_it(part: int) -> None:
    """R57, R62, R63, R64."""
    for count in range(part, OPERATIONS, 4):
        clock = ManualClock(NOW_MS)
        fs = SimulatedFileSystem(clock)
        fs.cut_after_operations(count)
        follower = Follower(fs, clock)
        with pytest.raises(SimulatedCrash):
            follower.run()
        crashed, dark, torn = fs.copy(), fs.copy(), fs.copy()
        crashed.crash()
        check(follower, crashed, power_lost=False)
        dark.power_loss_everything_unsynced_lost()
        check(follower, dark, power_lost=True)
        torn.power_loss(random.Random(count))
        check(follower, torn, power_lost=True)
