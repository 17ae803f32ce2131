"""The file that keeps a partition's producer state across a restart: ``<offset>.snapshot``.

Its number is the first offset whose batches are not in it. Kafka's version 1: int16 version, uint32
CRC-32C over everything behind it, int32 count, then 46 bytes for each producer. Only the last batch
of a producer is kept; a last offset of -1 means that there is none, after a marker without data.

A snapshot is written in place, its head last. One that a crash has torn fails its checksum and is
discarded; an older one and the log itself give the same state.

A partition may have 100,000 producers. Their entries never change, so a snapshot of them can be
written in another thread: :class:`SnapshotWrite`. It writes a few hundred at a time, and with each
write others may have the GIL.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dohle.core.checksum import crc32c
from dohle.storage.files import File, FileSystem, cut_behind, parent
from dohle.storage.producers.entry import BatchMetadata, ProducerEntry

SNAPSHOT_SUFFIX = ".snapshot"

_VERSION = 1
_HEAD = struct.Struct(">hIi")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_START = 6
_OFFSET_DIGITS = 20
#: How many producers are encoded and written at a time: in less than a millisecond.
_WRITTEN_AT_A_TIME = 500


class CorruptSnapshot(Exception):
    """A producer snapshot that is damaged."""


def snapshot_name(offset: int) -> str:
    """Return the name of the snapshot at an offset."""
    return f"{offset:0{_OFFSET_DIGITS}d}{SNAPSHOT_SUFFIX}"


def snapshot_offset(name: str) -> int | None:
    """Return the offset of a snapshot by its file name; None if it is not named like one."""
    digits = name.removesuffix(SNAPSHOT_SUFFIX)
    if len(digits) == _OFFSET_DIGITS != len(name) and digits.isascii() and digits.isdigit():
        return int(digits)
    return None


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Return the content of a snapshot file."""
    packed = [_packed(entry) for entry in entries]
    body = _COUNT.pack(len(packed)) + b"".join(packed)
    return _HEAD.pack(_VERSION, crc32c(body), len(packed)) + body[_COUNT.size :]


def _packed(entry: ProducerEntry) -> bytes:
    return _ENTRY.pack(
        entry.producer_id,
        entry.producer_epoch,
        entry.last_sequence,
        entry.last_data_offset,
        entry.last_offset_delta,
        entry.last_timestamp,
        entry.coordinator_epoch,
        entry.current_txn_first_offset,
    )


_EMPTY = encode_snapshot(())


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    """Return the producers in a snapshot file; CorruptSnapshot if it is damaged."""
    if data == _EMPTY:
        return []
    if len(data) < _HEAD.size:
        raise CorruptSnapshot(f"{len(data)} bytes are too few for a snapshot")
    version, stored_crc, count = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise CorruptSnapshot(f"version {version} is not known")
    view = memoryview(data)
    if (crc := crc32c(view[_CRC_START:])) != stored_crc:
        raise CorruptSnapshot(f"the checksum is {crc:#010x}, but {stored_crc:#010x} is stored")
    if count * _ENTRY.size != len(data) - _HEAD.size:
        raise CorruptSnapshot(f"{count} producers do not make {len(data)} bytes")
    return [
        ProducerEntry(
            producer_id,
            epoch,
            coordinator_epoch,
            timestamp,
            txn_first_offset if txn_first_offset >= 0 else -1,
            (BatchMetadata(last_sequence, last_offset, offset_delta, timestamp),)
            if last_offset >= 0
            else (),
        )
        for (
            producer_id,
            epoch,
            last_sequence,
            last_offset,
            offset_delta,
            timestamp,
            coordinator_epoch,
            txn_first_offset,
        ) in _ENTRY.iter_unpack(view[_HEAD.size :])
    ]


def read_snapshot(fs: FileSystem, path: str) -> list[ProducerEntry]:
    """Return the producers in a file; CorruptSnapshot if it is damaged."""
    return decode_snapshot(fs.read(path))


def write_snapshot(
    fs: FileSystem, path: str, entries: Iterable[ProducerEntry], *, sync: bool
) -> None:
    """Write a file; with ``sync`` it survives a power cut once this returns."""
    SnapshotWrite(fs, path, tuple(entries)).run(sync=sync)
    if sync:
        fs.sync_dir(parent(path))


@dataclass(frozen=True, slots=True)
class SnapshotWrite:
    """A snapshot that is still to be written.

    ``run`` may block in any thread. Run twice, or twice at the same time, it writes the same bytes.
    """

    fs: FileSystem
    path: str
    entries: Sequence[ProducerEntry]
    #: If it is open by now: should it be removed before it is written, nobody sees the bytes.
    file: File | None = None

    def run(self, *, sync: bool = False) -> None:
        """Write the file, and make it unless it is open."""
        if self.file is not None:
            self._write(self.file)
            return
        file = self.fs.open(self.path, write=True, create=True)
        try:
            self._write(file)
            if sync:
                file.sync()
        finally:
            file.close()

    def _write(self, file: File) -> None:
        entries = self.entries
        first = self._piece(0)
        checksum = crc32c(first, crc32c(_COUNT.pack(len(entries))))
        position = _HEAD.size + len(first)
        for start in range(_WRITTEN_AT_A_TIME, len(entries), _WRITTEN_AT_A_TIME):
            piece = self._piece(start)
            checksum = crc32c(piece, checksum)
            file.write_at(position, piece)
            position += len(piece)
        file.write_at(0, _HEAD.pack(_VERSION, checksum, len(entries)) + first)
        # A longer file of the same name may have been left by a crash.
        cut_behind(file, position)

    def _piece(self, start: int) -> bytes:
        return b"".join(map(_packed, self.entries[start : start + _WRITTEN_AT_A_TIME]))


def begin_snapshot(fs: FileSystem, path: str, entries: Sequence[ProducerEntry]) -> SnapshotWrite:
    """Make the file, empty: what it is to hold is written later."""
    file = fs.open(path, write=True, create=True)
    file.truncate(0)
    return SnapshotWrite(fs, path, entries, file)
