"""Checks the records of a compressed batch without keeping what they decompress to.

The memory for it is reused: getting new pages for each batch costs more than lz4 itself. Batches
that do not fit there, or cannot be decompressed, are decompressed and scanned piece by piece, which
also tells what is wrong with them.
"""

from __future__ import annotations

from dohle.core.errors import KafkaError
from dohle.core.steps import Steps
from dohle.records.checking.record_reader import RecordReader
from dohle.records.checking.record_scan import Summary, begin_scan, scanning
from dohle.records.compression import gzip
from dohle.records.compression.codecs import Codec, decompressing
from dohle.records.compression.scratch import DECOMPRESS_INTO

_SCRATCH_BYTES = 4 * 1024 * 1024
#: So much is decompressed at once, and more only of data that is not much smaller: it must
#: not take long, and a few bytes may decompress to very many.
_AT_ONCE_BYTES, _AT_ONCE_TIMES = 1024 * 1024, 8
#: One is in use at a time, unless there are threads.
_SCRATCHES_KEPT = 2

#: Gzip gives memory of its own, at most 128 KiB at a time: about so much is put together at once.
_GZIP_AT_ONCE_BYTES = 384 * 1024
#: Up to this size it is decompressed in one go, as it is not much more then.
_GZIP_SHORT_BYTES = 16 * 1024

_scratches: list[bytearray] = []


def begin_compressed_scan(
    codec: Codec,
    data: memoryview,
    count: int,
    base_timestamp: int,
    max_bytes: int | None,
    *,
    may_stop: bool = False,
) -> Summary | Steps[Summary]:
    """Check ``count`` records as ``begin_scan`` does; they may decompress to ``max_bytes``.

    Without that, to as much as is usual for their size (``decompressing``).
    """
    decompress_into = DECOMPRESS_INTO.get(codec)
    if decompress_into is None:
        return _begin_gzip_scan(data, count, base_timestamp, max_bytes, may_stop)
    scratch = _scratches.pop() if _scratches else bytearray(_SCRATCH_BYTES)
    view = memoryview(scratch)
    at_once = max(_AT_ONCE_BYTES, _AT_ONCE_TIMES * len(data))
    if max_bytes is not None and max_bytes < at_once:
        at_once = max_bytes
    size = decompress_into(data, view[:at_once])
    if size is not None:
        try:
            scan = begin_scan(view[:size], count, base_timestamp, may_stop=may_stop)
        except KafkaError:
            _put_back(scratch)
            raise
        if not isinstance(scan, Summary):
            return _scanning_scratch(scan, scratch)
        _put_back(scratch)
        return scan
    _put_back(scratch)
    reader = RecordReader(b"", 0, 0, decompressing(codec, data, max_bytes))
    return _scanning_pieces(reader, count, base_timestamp, may_stop)


def _begin_gzip_scan(
    data: memoryview, count: int, base_timestamp: int, max_bytes: int | None, may_stop: bool
) -> Summary | Steps[Summary]:
    if len(data) <= _GZIP_SHORT_BYTES:
        at_once = _GZIP_AT_ONCE_BYTES
        if max_bytes is not None and max_bytes < at_once:
            at_once = max_bytes
        found = gzip.decompress_short(data, at_once)
        if found is not None:
            return begin_scan(found, count, base_timestamp, may_stop=may_stop)
    pieces = decompressing(Codec.GZIP, data, max_bytes)
    parts: list[bytes] = []
    size = 0
    for piece in pieces:
        assert isinstance(piece, bytes)
        parts.append(piece)
        size += len(piece)
        if size > _GZIP_AT_ONCE_BYTES:
            reader = RecordReader(b"".join(parts), 0, size, pieces)
            return _scanning_pieces(reader, count, base_timestamp, may_stop)
    return begin_scan(b"".join(parts), count, base_timestamp, may_stop=may_stop)


def _scanning_pieces(
    reader: RecordReader, count: int, base_timestamp: int, may_stop: bool
) -> Steps[Summary]:
    try:
        return (yield from scanning(reader, count, base_timestamp, may_stop=may_stop))
    finally:
        reader.close()


def _scanning_scratch(scan: Steps[Summary], scratch: bytearray) -> Steps[Summary]:
    try:
        return (yield from scan)
    finally:
        _put_back(scratch)


def _put_back(scratch: bytearray) -> None:
    if len(_scratches) < _SCRATCHES_KEPT:
        _scratches.append(scratch)
