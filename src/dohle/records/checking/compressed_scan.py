"""Checks the records of a compressed batch without keeping what they decompress to.

The memory for it is reused: getting new pages for each batch costs more than lz4 itself. Batches
that do not fit there, or cannot be decompressed, take the slow path, which says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable

from dohle.records.checking.record_scan import Summary, scan_records
from dohle.records.compression import lz4, zstd
from dohle.records.compression.codecs import Codec, decompress

_SCRATCH_BYTES = 4 * 1024 * 1024
#: One is in use at a time, unless there are threads.
_SCRATCHES_KEPT = 2

#: Each decompresses into the buffer and returns the number of bytes; None if the buffer is too
#: small or anything else is wrong.
_DECOMPRESS_INTO: dict[Codec, Callable[[memoryview, memoryview], int | None]] = {
    Codec.LZ4: lz4.decompress_into,
    Codec.ZSTD: zstd.decompress_into,
}

_scratches: list[bytearray] = []


def scan_compressed(
    codec: Codec, data: memoryview, count: int, base_timestamp: int, max_bytes: int
) -> Summary:
    """Check ``count`` records as ``scan_records`` does; they may decompress to ``max_bytes``."""
    decompress_into = _DECOMPRESS_INTO.get(codec)
    if decompress_into is None:
        return scan_records(decompress(codec, data, max_bytes), count, base_timestamp)
    try:
        scratch = _scratches.pop()
    except IndexError:
        scratch = bytearray(_SCRATCH_BYTES)
    try:
        view = memoryview(scratch)
        size = decompress_into(data, view[:max_bytes])
        if size is not None:
            return scan_records(view[:size], count, base_timestamp)
    finally:
        if len(_scratches) < _SCRATCHES_KEPT:
            _scratches.append(scratch)
    return scan_records(decompress(codec, data, max_bytes), count, base_timestamp)
