"""The file that keeps a partition's producer state across a restart: ``<offset>.snapshot``.

Its number is the first offset whose batches are not in it. Kafka's version 1: int16 version, uint32
CRC-32C over everything behind it, int32 count, then 46 bytes for each producer. Only the last batch
of a producer is kept; a last offset of -1 means that there is none, after a marker without data.

A snapshot is written in place. One that a crash has torn fails its checksum and is discarded; an
older one and the log itself give the same state.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from crc32c import crc32c

from dohle.storage.files import FileSystem, parent
from dohle.storage.producers.entry import BatchMetadata, ProducerEntry

SNAPSHOT_SUFFIX = ".snapshot"

_VERSION = 1
_HEAD = struct.Struct(">hIi")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_START = 6
_OFFSET_DIGITS = 20


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
    packed = [
        _ENTRY.pack(
            entry.producer_id,
            entry.producer_epoch,
            entry.last_sequence,
            entry.last_data_offset,
            entry.last_offset_delta,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.current_txn_first_offset,
        )
        for entry in entries
    ]
    body = _COUNT.pack(len(packed)) + b"".join(packed)
    return _HEAD.pack(_VERSION, crc32c(body), len(packed)) + body[_COUNT.size :]


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
    data = encode_snapshot(entries)
    file = fs.open(path, write=True, create=True)
    try:
        file.write_at(0, data)
        # A longer file of the same name may have been left by a crash.
        file.truncate(len(data))
        if sync:
            file.sync()
    finally:
        file.close()
    if sync:
        fs.sync_dir(parent(path))
