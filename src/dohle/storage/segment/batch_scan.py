"""Walking the batches of a segment file: whole batches for recovery, heads only for lookups.

Both read the file in chunks, know where the file ends, and refuse a length that reaches beyond that
end, so a damaged file needs no more memory than a good one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol, TypeVar

from dohle.core.checksum import crc32c
from dohle.records.batch import (
    ATTRIBUTES_AT,
    BATCH_HEADER,
    CONTROL_FLAG,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    Batch,
    CorruptBatch,
    IncompleteBatch,
    RecordBatch,
    read_batch,
)
from dohle.storage.files import File, ReadableFile

#: Small enough to stay in the processor's cache between the read and the checksum.
SCAN_CHUNK = 512 * 1024

# Two index intervals: a lookup starts at most one interval before its batch.
_HEAD_CHUNK = 8 * 1024

_OVERHEAD = struct.Struct(">qi")
# Base offset, length, magic, last offset delta: all that a lookup needs.
_REACH = struct.Struct(">qi4xb6xi")
_LEGACY_HEAD = struct.Struct(">qiIbbq")
_MAGIC_AT = 16
_SMALLEST_LENGTH = 14  # crc, magic, attributes, key and value lengths of a version 0 message


#: Position, size, base offset, last offset, largest timestamp, leader epoch, and the batch itself
#: if it has a producer id or is a control batch (good until the next step).
CheckedBatch = tuple[int, int, int, int, int, int, RecordBatch | None]


class BatchHead(NamedTuple):
    """The head of a batch, without its records."""

    position: int
    base_offset: int
    last_offset: int
    size: int
    magic: int
    max_timestamp: int
    partition_leader_epoch: int


class ProducerHead(NamedTuple):
    """What the head of a batch tells of its producer; a batch of an old format has none."""

    base_offset: int
    last_offset: int
    size: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_control: bool


class _HasSize(Protocol):
    @property
    def size(self) -> int: ...


_Head = TypeVar("_Head", bound=_HasSize)


def scan_batches(file: ReadableFile, start: int, end: int) -> Iterator[tuple[int, Batch]]:
    """Yield every batch of ``file[start:end]`` with its position.

    A batch's bytes are a view into a buffer that is reused: it is valid until the next step.
    Damaged bytes raise CorruptBatch, a batch that reaches beyond ``end`` IncompleteBatch; both have
    the file position.
    """
    view = memoryview(bytearray(min(SCAN_CHUNK, max(end - start, 0))))
    position, at, filled = start, 0, 0
    while position + at < end:
        need = LOG_OVERHEAD
        if filled - at >= LOG_OVERHEAD:
            need = batch_size_at(view, at, position + at, end)
        if filled - at < need:
            view, filled = _refill(file, view, at, filled, position, end, need)
            position, at = position + at, 0
            continue
        try:
            batch = read_batch(view[:filled], at)
        except CorruptBatch as error:
            error.position = position + at
            raise
        yield position + at, batch
        at += need


def scan_checked(file: ReadableFile, start: int, end: int) -> Iterator[CheckedBatch]:
    """Yield what recovery needs of every batch of ``file[start:end]``, its checksum verified.

    The same walk as ``scan_batches``, unrolled: recovery of a large log spends its time here, and
    only a batch that a producer's state depends on is worth an object.
    """
    view = memoryview(bytearray(min(SCAN_CHUNK, max(end - start, 0))))
    unpack, checksum = BATCH_HEADER.unpack_from, crc32c
    position, at, filled = start, 0, 0
    while position + at < end:
        while filled - at >= HEADER_SIZE:
            fields = unpack(view, at)
            base_offset, length, epoch, magic, crc, attributes, delta, _, max_timestamp = fields[:9]
            size = length + LOG_OVERHEAD
            if magic != 2 or size < HEADER_SIZE or filled - at < size:
                break
            if checksum(view[at + ATTRIBUTES_AT : at + size]) != crc:
                raise CorruptBatch(f"wrong checksum at position {position + at}", position + at)
            # Producer id, or the control flag.
            special = fields[9] >= 0 or attributes & CONTROL_FLAG
            batch = RecordBatch(view, at) if special else None
            yield position + at, size, base_offset, base_offset + delta, max_timestamp, epoch, batch
            at += size
        if position + at >= end:
            return
        need = LOG_OVERHEAD
        if filled - at >= LOG_OVERHEAD:
            need = batch_size_at(view, at, position + at, end)
        if filled - at < need:
            view, filled = _refill(file, view, at, filled, position, end, need)
            position, at = position + at, 0
            continue
        yield _check_odd_batch(view[:filled], at, position + at)
        at += need


def _check_odd_batch(view: memoryview, at: int, position: int) -> CheckedBatch:
    """Check a batch of an old format; anything else that comes here is damaged."""
    try:
        batch = read_batch(view, at)
        batch.ensure_valid()
    except CorruptBatch as error:
        error.position = position
        raise
    last = batch.last_offset
    return position, batch.size, last, last, batch.max_timestamp, -1, None


def batch_size_at(view: memoryview, at: int, position: int, end: int) -> int:
    """Return the size of the batch at ``view[at]``, which is at ``position`` of a file.

    CorruptBatch if it cannot be one, IncompleteBatch if it reaches beyond the file's ``end``.
    """
    _, length = _OVERHEAD.unpack_from(view, at)
    if length < _SMALLEST_LENGTH:
        raise CorruptBatch(f"batch length {length} at position {position} is too small", position)
    size: int = length + LOG_OVERHEAD
    _ensure_within(size, position, end)
    return size


def _ensure_within(size: int, position: int, end: int) -> None:
    if size > end - position:
        raise IncompleteBatch(
            f"batch of {size} bytes at position {position} reaches beyond the end at {end}",
            position,
        )


def _refill(
    file: ReadableFile, view: memoryview, at: int, filled: int, position: int, end: int, need: int
) -> tuple[memoryview, int]:
    """Move what is left to the front and read on; use a larger buffer if a batch needs it."""
    left = filled - at
    size = max(need, min(SCAN_CHUNK, end - position - at))
    target = view if size <= len(view) else memoryview(bytearray(size))
    target[:left] = view[at:filled]
    want = min(len(target), end - position - at)
    got = file.read_into(position + filled, target[left:want]) if want > left else 0
    if left + got < need:
        where = position + at
        raise IncompleteBatch(f"the file ends within the batch at position {where}", where)
    return target, left + got


def find_batch(
    file: ReadableFile, start: int, end: int, offset: int, first_ends_at: int | None = None
) -> BatchHead | None:
    """Return the first batch of ``file[start:end]`` that ends at or behind ``offset``.

    ``first_ends_at`` is the last offset of the batch at ``start`` according to an index. If that is
    wrong, or there is no batch, CorruptBatch is raised.
    """
    if first_ends_at is not None and not 0 <= start < end:
        raise CorruptBatch(f"no batch can be at position {start}", start)
    position = start
    chunk, chunk_at = b"", start
    unpack = _REACH.unpack_from
    while position < end:
        at = position - chunk_at
        if at + HEADER_SIZE > len(chunk):
            chunk, chunk_at = file.read_at(position, min(_HEAD_CHUNK, end - position)), position
            at = 0
        if first_ends_at is None and len(chunk) - at >= HEADER_SIZE:
            base_offset, length, magic, delta = unpack(chunk, at)
            size = length + LOG_OVERHEAD
            if (
                magic == 2
                and base_offset + delta < offset
                and HEADER_SIZE <= size <= end - position
            ):
                position += size
                continue
        head = _read_head(chunk, at, position)
        _ensure_within(head.size, position, end)
        if first_ends_at is not None and first_ends_at != head.last_offset:
            raise CorruptBatch(
                f"batch at {position} ends at {head.last_offset}, not {first_ends_at}", position
            )
        first_ends_at = None
        if head.last_offset >= offset:
            return head
        position += head.size
    return None


def read_small(
    file: File, start: int, end: int, offset: int, max_bytes: int, first_ends_at: int | None
) -> bytes | None:
    """Return what ``find_batch`` finds and what follows it, by one small read; None if it cannot.

    That is at least one batch, and at most ``max_bytes`` if there are several.
    """
    left = end - start
    if left > _HEAD_CHUNK and max_bytes > _HEAD_CHUNK:
        return None
    chunk = file.read_at(start, min(_HEAD_CHUNK, left))
    at, available = 0, len(chunk)
    while at + HEADER_SIZE <= available:
        base_offset, length, magic, delta = _REACH.unpack_from(chunk, at)
        size, last_offset = length + LOG_OVERHEAD, base_offset + delta
        if magic != MAGIC or not HEADER_SIZE <= size <= left - at:
            return None
        if first_ends_at is not None and first_ends_at != last_offset:
            return None
        first_ends_at = None
        if last_offset >= offset:
            wanted = min(max(size, max_bytes), left - at)
            return chunk[at : at + wanted] if at + wanted <= available else None
        at += size
    return None


def scan_heads(file: ReadableFile, start: int, end: int) -> Iterator[BatchHead]:
    """Yield the heads of the batches of ``file[start:end]``, reading little of what is between.

    Raises as ``scan_batches`` does, but sees only heads: checksums are not verified.
    """
    return _scan_heads(file, start, end, _read_head)


def scan_producer_heads(file: ReadableFile, start: int, end: int) -> Iterator[ProducerHead]:
    """Yield what the heads of the batches tell of producers, as ``scan_heads`` does."""
    return _scan_heads(file, start, end, _read_producer_head)


def _scan_heads(
    file: ReadableFile, start: int, end: int, read: Callable[[bytes, int, int], _Head]
) -> Iterator[_Head]:
    position = start
    chunk, chunk_at = b"", start
    while position < end:
        at = position - chunk_at
        if at + HEADER_SIZE > len(chunk):
            chunk, chunk_at = file.read_at(position, min(_HEAD_CHUNK, end - position)), position
            at = 0
        head = read(chunk, at, position)
        _ensure_within(head.size, position, end)
        yield head
        position += head.size


def _read_head(chunk: bytes, at: int, position: int) -> BatchHead:
    try:
        magic = chunk[at + _MAGIC_AT]
        if magic == 2:
            fields = BATCH_HEADER.unpack_from(chunk, at)
            base_offset, length, epoch = fields[0], fields[1], fields[2]
            last_offset, max_timestamp = base_offset + fields[6], fields[8]
        elif magic < 2:
            # A wrapper's offset is that of its last record; finding the first needs decompression.
            base_offset, length, _, _, _, timestamp = _LEGACY_HEAD.unpack_from(chunk, at)
            last_offset, epoch = base_offset, -1
            max_timestamp = timestamp if magic == 1 else -1
        else:
            raise CorruptBatch(f"unknown magic {magic} at position {position}", position)
    except (IndexError, struct.error):
        raise IncompleteBatch(
            f"the file ends in the head at position {position}", position
        ) from None
    if length < _SMALLEST_LENGTH:
        raise CorruptBatch(f"batch length {length} at position {position} is too small", position)
    return BatchHead(
        position, base_offset, last_offset, length + LOG_OVERHEAD, magic, max_timestamp, epoch
    )


def _read_producer_head(chunk: bytes, at: int, position: int) -> ProducerHead:
    if len(chunk) - at < HEADER_SIZE or chunk[at + _MAGIC_AT] != MAGIC:
        # Cut, damaged, or of a format without producers.
        _, base_offset, last_offset, size, _, max_timestamp, _ = _read_head(chunk, at, position)
        return ProducerHead(base_offset, last_offset, size, max_timestamp, -1, -1, -1, False)
    fields = BATCH_HEADER.unpack_from(chunk, at)
    offset, length, _, _, _, attributes, delta, _, max_timestamp, pid, epoch, sequence, _ = fields
    is_control = attributes & CONTROL_FLAG != 0
    size = length + LOG_OVERHEAD
    if size < HEADER_SIZE:
        raise CorruptBatch(f"batch length {length} at position {position} is too small", position)
    return ProducerHead(
        offset, offset + delta, size, max_timestamp, pid, epoch, sequence, is_control
    )
