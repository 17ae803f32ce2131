"""A model of a node's metadata log: what is in memory, and what a crash leaves of it.

A batch is one entry with one offset. Each entry has a digest of everything up to it, so that two
logs with the same digest at an offset are equal below it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from dohle.core.seams import Rng
from dohle.raft.membership import ControlRecord, Membership, MembershipHistory
from dohle.raft.values import BOOTSTRAP_SNAPSHOT, OffsetAndEpoch


class Entry(NamedTuple):
    """A batch: what it is, and the digest of the log up to and with it."""

    epoch: int
    payload: int
    control: tuple[ControlRecord, ...]
    digest: int


def digest_behind(digest: int, entry: Entry) -> int:
    """Return the digest of a log that has an entry behind what has this digest."""
    return hash((digest, entry.epoch, entry.payload))


class Snapshot(NamedTuple):
    """Everything before an offset."""

    id: OffsetAndEpoch
    digest: int
    membership: Membership


#: Bytes of a snapshot's file: enough for several chunks.
SNAPSHOT_SIZE = 40


class ModelLog:
    """A LogView over a list."""

    def __init__(self, formatted: Membership | None = None) -> None:
        self.start_offset = 0
        self.entries: list[Entry] = []
        self.kept: list[Snapshot] = []
        self.memberships = MembershipHistory()
        if formatted is not None:
            self.memberships.note(-1, formatted.control_records())
            self.kept.append(Snapshot(BOOTSTRAP_SNAPSHOT, 0, formatted))
        self._durable = (0, list[Entry]())

    # As the machine sees it

    @property
    def end_offset(self) -> int:
        return self.start_offset + len(self.entries)

    @property
    def last_epoch(self) -> int:
        if self.entries:
            return self.entries[-1].epoch
        return self.kept[-1].id.epoch if self.kept else 0

    @property
    def snapshots(self) -> Sequence[OffsetAndEpoch]:
        return [each.id for each in self.kept]

    def snapshot_size(self, snapshot_id: OffsetAndEpoch) -> int | None:
        return SNAPSHOT_SIZE if snapshot_id in self.snapshots else None

    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch | None:
        epochs = [entry.epoch for entry in self.entries]
        if not epochs or epoch > epochs[-1]:
            return None
        index = bisect_right(epochs, epoch)
        floor = epochs[index - 1] if index else epoch
        return OffsetAndEpoch(self.start_offset + index, floor)

    # What the driver does

    def digest_at(self, offset: int) -> int | None:
        """Return the digest of everything below an offset; None if that is not known here."""
        if offset == 0:
            return 0
        if self.start_offset < offset <= self.end_offset:
            return self.entries[offset - 1 - self.start_offset].digest
        return next((each.digest for each in self.kept if each.id.offset == offset), None)

    def append(self, epoch: int, payload: int, control: tuple[ControlRecord, ...] = ()) -> Entry:
        digest = self.digest_at(self.end_offset) or 0
        entry = Entry(epoch, payload, control, 0)
        entry = entry._replace(digest=digest_behind(digest, entry))
        self.append_entry(entry)
        return entry

    def append_entry(self, entry: Entry) -> None:
        self.memberships.note(self.end_offset, entry.control)
        self.entries.append(entry)

    def truncate(self, offset: int) -> None:
        assert offset >= self.start_offset, "the log is not cut before its start"
        del self.entries[offset - self.start_offset :]
        self.memberships.truncate(offset)

    def read(self, offset: int, count: int) -> list[Entry]:
        index = offset - self.start_offset
        return self.entries[index : index + count] if index >= 0 else []

    def take_snapshot(self, offset: int) -> None:
        digest = self.digest_at(offset)
        assert digest is not None
        id = OffsetAndEpoch(offset, self.entries[offset - 1 - self.start_offset].epoch)
        if id not in self.snapshots:
            self.kept.append(Snapshot(id, digest, self.memberships.at(offset - 1)))

    def forget_before_newest(self) -> None:
        """Let the log begin at the newest snapshot."""
        newest = self.kept[-1]
        del self.entries[: newest.id.offset - self.start_offset]
        self.start_offset = newest.id.offset
        self.kept = [newest]
        self.memberships.forget_before(newest.id.offset - 1)
        start, durable = self._durable
        self._durable = (newest.id.offset, durable[newest.id.offset - start :])

    def install(self, snapshot: Snapshot) -> None:
        self.kept = [snapshot]
        self.start_offset = snapshot.id.offset
        self.entries = []
        self.memberships = MembershipHistory()
        self.memberships.note(snapshot.id.offset - 1, snapshot.membership.control_records())
        self.sync(self.entries, self.start_offset)

    # The disk

    def freeze(self) -> tuple[list[Entry], int]:
        """Return what a sync that begins now will have put on the disk."""
        return list(self.entries), self.start_offset

    def sync(self, entries: list[Entry], start_offset: int) -> None:
        """Note that this is on the disk, unless the log's start has moved since."""
        if start_offset <= self.start_offset:
            self._durable = (self.start_offset, entries[self.start_offset - start_offset :])

    def durable_digest_at(self, offset: int) -> int | None:
        """Return the digest below an offset, if the disk has everything below it."""
        start, entries = self._durable
        if start < offset <= start + len(entries):
            return entries[offset - 1 - start].digest
        return self.digest_at(offset) if offset <= start else None

    def crash(self, rng: Rng) -> None:
        """Lose some of what was not synced: each batch of it may be gone, or torn."""
        start, durable = self._durable
        assert start == self.start_offset
        common = 0
        for ours, theirs in zip(self.entries, durable, strict=False):
            if ours.digest != theirs.digest:
                break
            common += 1
        found: list[Entry | None]
        if common < len(durable) and rng.random() < 0.5:
            found = list(durable)  # A truncation that did not reach the disk.
        else:
            damaged = rng.random() if rng.random() < 0.8 else 0.0
            found = [
                entry if index < common or rng.random() >= damaged else None
                for index, entry in enumerate(self.entries)
            ]
        self._recover(start, whole(found))

    def _recover(self, start: int, left: list[Entry]) -> None:
        history = MembershipHistory()
        for snapshot in self.kept:
            if snapshot.id.offset > start:
                break
            history.note(snapshot.id.offset - 1, snapshot.membership.control_records())
        for offset, entry in enumerate(left, start):
            history.note(offset, entry.control)
        self.entries, self.memberships = left, history
        self._durable = (start, list(left))


def whole(found: list[Entry | None]) -> list[Entry]:
    """Return what a start makes of the files: all before the first damaged batch (rule R63)."""
    left: list[Entry] = []
    for entry in found:
        if entry is None:
            break
        left.append(entry)
    return left
