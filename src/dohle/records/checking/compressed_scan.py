"""Checks the records of a compressed batch without keeping what they decompress to.

The memory for it is reused: getting new pages for each batch costs more than lz4 itself. Batches
that do not fit there, or cannot be decompressed, are decompressed and scanned piece by piece, which
also tells what is wrong with them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import cast

from dohle.core.errors import KafkaError
from dohle.core.steps import Steps
from dohle.records.checking.record_reader import RecordReader
from dohle.records.checking.record_scan import Summary, begin_scan, scanning
from dohle.records.compression import lz4, zstd
from dohle.records.compression.codecs import Codec, decompressing

_SCRATCH_BYTES = 4 * 1024 * 1024
#: So much is decompressed at once, and more only of data that is not much smaller: it must
#: not take long, and a few bytes may decompress to very many.
_AT_ONCE_BYTES, _AT_ONCE_TIMES = 1024 * 1024, 8
#: One is in use at a time, unless there are threads.
_SCRATCHES_KEPT = 2

#: Each decompresses into the buffer and returns the number of bytes; None if the buffer is too
#: small or anything else is wrong.
_DECOMPRESS_INTO: dict[Codec, Callable[[memoryview, memoryview], int | None]] = {
    Codec.LZ4: lz4.decompress_into,
    Codec.ZSTD: zstd.decompress_into,
}

#: These give at most 128 KiB at a time, of which a few are taken at once.
_IN_SMALL_PIECES = (Codec.GZIP, Codec.SNAPPY)
_PIECES_AT_ONCE = 4

_scratches: list[bytearray] = []


def begin_compressed_scan(
    codec: Codec,
    data: memoryview,
    count: int,
    base_timestamp: int,
    max_bytes: int,
    *,
    may_stop: bool = False,
) -> Summary | Steps[Summary]:
    """Check ``count`` records as ``begin_scan`` does; they may decompress to ``max_bytes``."""
    decompress_into = _DECOMPRESS_INTO.get(codec)
    if decompress_into is not None:
        try:
            scratch = _scratches.pop()
        except IndexError:
            scratch = bytearray(_SCRATCH_BYTES)
        view = memoryview(scratch)
        at_once = max(_AT_ONCE_BYTES, _AT_ONCE_TIMES * len(data))
        size = decompress_into(data, view[: min(max_bytes, at_once)])
        if size is not None:
            try:
                scan = begin_scan(view[:size], count, base_timestamp, may_stop=may_stop)
            except KafkaError:
                _put_back(scratch)
                raise
            if isinstance(scan, Summary):
                _put_back(scratch)
                return scan
            return _scanning_scratch(scan, scratch)
        _put_back(scratch)
    pieces = decompressing(codec, data, max_bytes)
    first = b""
    if codec in _IN_SMALL_PIECES:
        found = list(islice(pieces, _PIECES_AT_ONCE))
        if all(isinstance(piece, bytes) for piece in found):
            first = b"".join(cast("list[bytes]", found))
            if len(found) < _PIECES_AT_ONCE:
                return begin_scan(first, count, base_timestamp, may_stop=may_stop)
        else:
            # It asks for something before the first piece: that is left to whoever takes the steps.
            pieces = decompressing(codec, data, max_bytes)
    reader = RecordReader(first, 0, len(first), pieces)
    return _scanning_pieces(reader, count, base_timestamp, may_stop)


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
