"""The indexes of a segment: offsets, timestamps and aborted transactions.

A broker that preallocates its indexes and crashes leaves zeros after the last entry; those are
noted and are not damage. Whether an index is right can only be checked against its log:
``IndexCheck.LOG``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import closing

from dohle.cli.dump.items import DumpedFile, DumpOptions, IndexCheck, Item, Note, Problem, Row
from dohle.cli.dump.zero_tail import end_of_data, zero_tail_note
from dohle.cli.errors import CliError
from dohle.records.errors import CorruptBatch
from dohle.storage.files import File, OsFileSystem, join, parent
from dohle.storage.segment.batch_scan import BatchHead, find_batch, scan_heads
from dohle.storage.segment.index import CorruptIndex, OffsetIndex, TimeIndex

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_ABORTED_ENTRY = struct.Struct(">hqqqq")
_ABORTED_VERSION = 0
_CHUNK_ENTRIES = 8192


def dump_offset_index(source: DumpedFile, options: DumpOptions) -> Iterator[Item]:
    """Dump the entries of an ``.index``: a batch's last offset, and where the batch begins."""
    fs, base_offset = OsFileSystem(), _base_offset(source)
    if options.index_check is IndexCheck.SANITY:
        yield _check_sanity(OffsetIndex(fs, source.path, base_offset, 0))
        return
    log = _open_log(source) if options.index_check is IndexCheck.LOG else None
    last = base_offset - 1
    try:
        for item in _entries(source, options, _OFFSET_ENTRY):
            if not isinstance(item, tuple):
                yield item
                continue
            at, (relative, position) = item
            offset = base_offset + relative
            if log is None:
                yield Row("offsetIndexEntry", {"offset": offset, "position": position})
            elif (wrong := _compare_position(log, offset, position)) is not None:
                yield Problem(wrong, at)
            if offset <= last or position < 0:
                yield Problem(f"offset {offset} at {position} cannot follow offset {last}", at)
            last = max(last, offset)
    finally:
        if log is not None:
            log.close()


def dump_time_index(source: DumpedFile, options: DumpOptions) -> Iterator[Item]:
    """Dump the entries of a ``.timeindex``: the largest timestamp so far, and the offset of it."""
    fs, base_offset = OsFileSystem(), _base_offset(source)
    if options.index_check is IndexCheck.SANITY:
        yield _check_sanity(TimeIndex(fs, source.path, base_offset, 0))
        return
    log = _open_log(source) if options.index_check is IndexCheck.LOG else None
    heads = None if log is None else _Heads(log)
    last_timestamp, last = -1, base_offset
    try:
        for item in _entries(source, options, _TIME_ENTRY):
            if not isinstance(item, tuple):
                yield item
                continue
            at, (timestamp, relative) = item
            offset = base_offset + relative
            if heads is None:
                yield Row("timeIndexEntry", {"timestamp": timestamp, "offset": offset})
            elif (wrong := heads.compare(timestamp, offset)) is not None:
                yield Problem(wrong, at)
            if timestamp <= last_timestamp or offset < last:
                yield Problem(
                    f"timestamp {timestamp} at offset {offset} cannot follow timestamp "
                    f"{last_timestamp} at offset {last}",
                    at,
                )
            last_timestamp, last = max(last_timestamp, timestamp), max(last, offset)
    finally:
        if log is not None:
            log.close()


def dump_transaction_index(source: DumpedFile, options: DumpOptions) -> Iterator[Item]:
    """Dump the entries of a ``.txnindex``: the aborted transactions."""
    last = -1
    for item in _entries(source, options, _ABORTED_ENTRY):
        if not isinstance(item, tuple):
            yield item
            continue
        at, (version, producer_id, first_offset, last_offset, last_stable_offset) = item
        if version != _ABORTED_VERSION:
            yield Problem(f"the entry has version {version}, only {_ABORTED_VERSION} is known", at)
            return
        if options.index_check is IndexCheck.NONE:
            fields = {
                "version": version,
                "producerId": producer_id,
                "firstOffset": first_offset,
                "lastOffset": last_offset,
                "lastStableOffset": last_stable_offset,
            }
            yield Row("abortedTransaction", dict(fields))
        if not last < last_offset >= first_offset:
            yield Problem(
                f"the transaction from {first_offset} to {last_offset} cannot follow one that "
                f"ends at {last}",
                at,
            )
        last = max(last, last_offset)


def _base_offset(source: DumpedFile) -> int:
    if source.base_offset is None:
        raise CliError(
            f"{source.path}: the name of an index starts with its base offset; restore its "
            "original name"
        )
    return source.base_offset


def _entries(
    source: DumpedFile, options: DumpOptions, entry: struct.Struct
) -> Iterator[tuple[int, tuple[int, ...]] | Note | Problem]:
    """Yield the entries with their positions, up to the zeros at the end if there are any."""
    checking = options.index_check is not IndexCheck.NONE
    limit = None if checking else options.limit
    with closing(OsFileSystem().open(source.path)) as file:
        size = file.size()
        whole = size - size % entry.size
        # A single entry of zeros may be timestamp 0 at the base offset.
        data_end = size if size == entry.size else end_of_data(file)
        shown = 0
        for start in range(0, whole, entry.size * _CHUNK_ENTRIES):
            chunk = file.read_at(start, min(entry.size * _CHUNK_ENTRIES, whole - start))
            for number, fields in enumerate(entry.iter_unpack(chunk)):
                position = start + number * entry.size
                if position >= data_end:
                    yield zero_tail_note(position, size)
                    return
                if shown == limit:
                    yield Note(f"stopped after {shown} entries, there are more", position)
                    return
                shown += 1
                yield position, fields
        if whole != size:
            yield Problem(
                f"torn entry: {size - whole} bytes are left, an entry has {entry.size}", whole
            )


def _check_sanity(index: OffsetIndex | TimeIndex) -> Item:
    try:
        index.load()
    except CorruptIndex as error:
        reason = str(error).removeprefix(index.path).lstrip(": ")
        return Problem(f"sanity check failed, a broker would rebuild the index: {reason}")
    return Note(f"passed the sanity check with {len(index)} entries")


def _open_log(source: DumpedFile) -> File:
    name = source.name.partition(".")[0] + ".log"
    path = join(parent(source.path), name)
    try:
        return OsFileSystem().open(path)
    except FileNotFoundError:
        raise CliError(f"{source.path}: {name} must lie beside it to verify the index") from None


def _compare_position(log: File, offset: int, position: int) -> str | None:
    """Return what is wrong with an entry of the offset index."""
    if not 0 <= position < log.size():
        return f"offset {offset} is said to be at {position}, outside of the log"
    try:
        find_batch(log, position, log.size(), offset, first_ends_at=offset)
    except CorruptBatch as error:
        return f"offset {offset} is said to be at {position}: {error.args[0]}"
    return None


class _Heads:
    """The heads of a log's batches, read once alongside the entries of its time index."""

    def __init__(self, log: File) -> None:
        self._heads = scan_heads(log, 0, log.size())
        self._head: BatchHead | None = None

    def compare(self, timestamp: int, offset: int) -> str | None:
        """Return what is wrong with an entry of the time index."""
        said = f"timestamp {timestamp} is said to be at offset {offset}"
        try:
            while self._head is None or self._head.last_offset < offset:
                self._head = next(self._heads)
        except StopIteration:
            return f"{said}, past the end of the log"
        except CorruptBatch as error:
            return f"{said}, which cannot be read: {error.args[0]}"
        if self._head.last_offset != offset:
            return f"{said}, where no batch ends"
        if self._head.max_timestamp != timestamp:
            return f"{said}, where the batch has {self._head.max_timestamp}"
        return None
