"""The leader epochs of one partition: at which offset each leader's writes begin (KIP-101).

A follower whose log diverges from the leader's asks where an epoch ended, and truncates there.
The entries are in ``leader-epoch-checkpoint`` and keep these rules:

- epochs and start offsets both rise strictly; a new entry removes every one that breaks this;
- an entry is on the disk before :meth:`LeaderEpochs.assign` returns, thus before the first record
  of its epoch. Assigning the latest epoch again, as every append does, writes nothing;
- cutting the end is written at once. Kafka leaves it to the background, because loading cuts
  again; but records appended after the cut, still in the older epoch, could by then hide the
  stale entry from that second cut;
- cutting the start is written by the next :meth:`LeaderEpochs.flush` or new entry: the log start
  never goes back, so loading the old file and cutting again gives the same.

A change that fails to reach the disk raises and leaves the entries in memory as they were.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple

from dohle.storage.directory.checkpoints import (
    INT32_MAX,
    INT64_MAX,
    CorruptCheckpoint,
    format_entries,
    parse_entries,
    parse_fields,
    parse_int,
)
from dohle.storage.files import FileSystem, Replacement, join, write_atomically

LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
UNDEFINED_EPOCH: Final = -1
UNDEFINED_EPOCH_OFFSET: Final = -1

logger = logging.getLogger("dohle.storage")


class EpochEntry(NamedTuple):
    """An epoch and the offset of its first record."""

    epoch: int
    start_offset: int


class EpochEndOffset(NamedTuple):
    """An epoch and the offset behind its last record; both -1 where nothing is known."""

    epoch: int
    end_offset: int


UNDEFINED_END_OFFSET: Final = EpochEndOffset(UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET)


class LeaderEpochs:
    """The epochs of a partition in memory, and the file behind them."""

    __slots__ = (
        "_dirty",
        "_epochs",
        "_file_is_empty",
        "_fs",
        "_path",
        "_starts",
        "latest_epoch",
    )

    def __init__(self, fs: FileSystem, folder: str, entries: Iterable[EpochEntry] = ()) -> None:
        self._fs = fs
        self._path = join(folder, LEADER_EPOCH_CHECKPOINT)
        self._dirty = False
        self._file_is_empty = False
        epochs: list[int] = []
        starts: list[int] = []
        for epoch, start_offset in entries:
            if not epochs or (epoch > epochs[-1] and start_offset > starts[-1]):
                epochs.append(epoch)
                starts.append(start_offset)
            elif epoch != epochs[-1] or start_offset < starts[-1]:
                epochs, starts = _with_entry(epochs, starts, epoch, start_offset)
        self._keep(epochs, starts)

    def _keep(self, epochs: list[int], starts: list[int]) -> None:
        self._epochs, self._starts = epochs, starts
        #: The newest epoch that has an entry. Every append looks at it.
        self.latest_epoch = epochs[-1] if epochs else None

    @classmethod
    def load(cls, fs: FileSystem, folder: str) -> LeaderEpochs:
        """Read the file of a partition folder; where there is none, create it empty as Kafka does.

        A file that is not in the format raises CorruptCheckpoint. Entries that do not rise are
        accepted: they are assigned one after the other, and the later one wins.
        """
        path = join(folder, LEADER_EPOCH_CHECKPOINT)
        try:
            data = fs.read(path)
        except FileNotFoundError:
            fs.open(path, write=True, create=True).close()
            found = cls(fs, folder)
            found._file_is_empty = True
            return found
        return cls(fs, folder, parse_leader_epochs(path, data))

    @property
    def entries(self) -> list[EpochEntry]:
        """All entries, oldest first."""
        return list(map(EpochEntry, self._epochs, self._starts))

    def epoch_of(self, offset: int) -> int | None:
        """Return the epoch that an offset is of; None if that is older than all entries."""
        slot = bisect_right(self._starts, offset) - 1
        return self._epochs[slot] if slot >= 0 else None

    @property
    def dirty(self) -> bool:
        """Tell whether the file is behind what is in memory."""
        return self._dirty

    def __len__(self) -> int:
        return len(self._epochs)

    def assign(self, epoch: int, start_offset: int, *, sync: bool = True) -> bool:
        """Note that ``epoch`` begins at ``start_offset``; return whether that was new.

        Every append calls this for every batch, so the common case comes first. Without ``sync``
        the entry stays in memory until ``flush``: enough for a leader that has written nothing.
        """
        epochs = self._epochs
        if epochs and epoch == epochs[-1] and start_offset >= self._starts[-1]:
            return False
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"{self._path}: epoch {epoch} at offset {start_offset} is not valid")
        kept_epochs, kept_starts = _with_entry(epochs, self._starts, epoch, start_offset)
        removed = self.entries[len(kept_epochs) - 1 :]
        # A single entry at the same offset is that of a leader that wrote nothing.
        if len(removed) > 1 or (removed and removed[0].start_offset != start_offset):
            logger.warning(
                "%s: epoch %d at offset %d replaces %s", self._path, epoch, start_offset, removed
            )
        if sync:
            self._replace(kept_epochs, kept_starts)
        else:
            self._keep(kept_epochs, kept_starts)
            self._dirty = True
        return True

    def prepend(self, entries: Iterable[EpochEntry]) -> None:
        """Put back older entries that were lost, from a copy; those that are known here count."""
        older = [
            entry
            for entry in entries
            if not self._epochs
            or (entry.epoch < self._epochs[0] and entry.start_offset < self._starts[0])
        ]
        epochs = [*(entry.epoch for entry in older), *self._epochs]
        self._replace(epochs, [*(entry.start_offset for entry in older), *self._starts])

    def end_offset_for(self, requested_epoch: int, log_end_offset: int) -> EpochEndOffset:
        """Return where the newest epoch not above the requested one ends.

        The latest epoch ends at the log's end. An epoch older than all entries is answered with
        itself and the start of the oldest entry, so that a follower begins where the log does. One
        newer than all entries is undefined.
        """
        epochs = self._epochs
        if requested_epoch == UNDEFINED_EPOCH or not epochs or requested_epoch > epochs[-1]:
            return UNDEFINED_END_OFFSET
        if requested_epoch == epochs[-1]:
            return EpochEndOffset(requested_epoch, log_end_offset)
        higher = bisect_right(epochs, requested_epoch)
        floor = epochs[higher - 1] if higher else requested_epoch
        return EpochEndOffset(floor, self._starts[higher])

    def next_epoch(self, epoch: int) -> int | None:
        """Return the oldest larger epoch that has an entry."""
        index = bisect_right(self._epochs, epoch)
        return self._epochs[index] if index < len(self._epochs) else None

    def truncate_from_end(self, end_offset: int) -> bool:
        """Drop the epochs that begin at or above the log's new end; return whether there were any.

        A negative end drops nothing.
        """
        kept = bisect_left(self._starts, end_offset)
        if end_offset < 0 or kept == len(self._starts):
            return False
        self._replace(self._epochs[:kept], self._starts[:kept])
        return True

    def truncate_from_start(self, start_offset: int) -> bool:
        """Drop the epochs that end at or below the log's new start; return whether any changed.

        The epoch that holds the new start stays, and begins there now.
        """
        epochs, starts = _cut_start(self._epochs, self._starts, start_offset)
        if starts == self._starts:
            return False
        self._keep(epochs, starts)
        self._dirty = True
        return True

    def clear(self) -> None:
        """Forget all entries, in the file too: the log starts anew somewhere else."""
        self._replace([], [])

    def flush(self) -> None:
        """Write what is in memory only, if anything."""
        if self._dirty:
            self._replace(self._epochs, self._starts)

    def replacement(self) -> Replacement:
        """Return what ``flush`` would write, for a job that writes it in another thread."""
        data = encode_leader_epochs(self.entries)
        # An epoch that is in no file yet is found again by recovery, which then does not begin
        # behind it. So nothing can be lost, and no further file needs to be made.
        return Replacement(self._path, data, in_place=self._file_is_empty)

    def folder_renamed(self, folder: str) -> None:
        """Follow the partition folder to its new name."""
        self._path = join(folder, LEADER_EPOCH_CHECKPOINT)

    def _replace(self, epochs: list[int], starts: list[int]) -> None:
        data = encode_leader_epochs(zip(epochs, starts, strict=True))
        write_atomically(self._fs, self._path, data)
        self._file_is_empty = False
        self._keep(epochs, starts)
        self._dirty = False


def write_leader_epochs(fs: FileSystem, folder: str, entries: Iterable[EpochEntry]) -> None:
    """Write the file of a partition folder; only the folder's own sync is left to the caller."""
    path = join(folder, LEADER_EPOCH_CHECKPOINT)
    write_atomically(fs, path, encode_leader_epochs(entries), sync_name=False)


def encode_leader_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    """Return the content of a leader epoch file."""
    return format_entries([f"{epoch} {start}" for epoch, start in entries])


def parse_leader_epochs(path: str, data: bytes) -> list[EpochEntry]:
    """Return the entries of a leader epoch file in the file's order."""
    entries = []
    for number, line in enumerate(parse_entries(path, data), 3):
        fields = parse_fields(path, number, line, 2)
        epoch = parse_int(path, number, fields[0], INT32_MAX)
        start_offset = parse_int(path, number, fields[1], INT64_MAX)
        if epoch < 0 or start_offset < 0:
            raise CorruptCheckpoint(path, number, f"epoch {epoch} at {start_offset} is not valid")
        entries.append(EpochEntry(epoch, start_offset))
    return entries


def _with_entry(
    epochs: list[int], starts: list[int], epoch: int, start_offset: int
) -> tuple[list[int], list[int]]:
    kept = min(bisect_left(epochs, epoch), bisect_left(starts, start_offset))
    return [*epochs[:kept], epoch], [*starts[:kept], start_offset]


def _cut_start(
    epochs: list[int], starts: list[int], start_offset: int
) -> tuple[list[int], list[int]]:
    dropped = bisect_right(starts, start_offset) - 1
    if dropped < 0:
        return epochs, starts
    return epochs[dropped:], [start_offset, *starts[dropped + 1 :]]
