"""Gzip, piece by piece."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from dohle.records.errors import CorruptBatch, DecompressedTooLarge

#: Deflate within gzip's header and trailer.
WINDOW_BITS = 31

_MAGIC = b"\x1f\x8b"
#: The most that is decompressed at a time.
_PIECE_BYTES = 128 * 1024
#: The most that is fed at a time: what the decompressor does not take of it, it copies.
_STEP_MAX = 16 * 1024
_MEMBER_STEP = 1024


def compress(data: bytes | bytearray | memoryview, level: int | None = None) -> bytes:
    """Write one member."""
    compressor = new_compressor(level)
    return compressor.compress(data) + compressor.flush()


def new_compressor(level: int | None) -> zlib._Compress:
    """Return what writes a member piece by piece."""
    gzip_level = zlib.Z_DEFAULT_COMPRESSION if level is None else level
    return zlib.compressobj(gzip_level, zlib.DEFLATED, WINDOW_BITS)


def decompress_short(data: memoryview, max_bytes: int) -> bytes | None:
    """Read one member; None if there is more, if it is larger, or if anything is wrong."""
    decompressor = zlib.decompressobj(WINDOW_BITS)
    try:
        found = decompressor.decompress(data, max_bytes)
    except zlib.error:
        return None
    return found if decompressor.eof and not decompressor.unused_data else None


def pieces(data: memoryview, max_bytes: int) -> Iterator[bytes]:
    """Read all members; like Java's reader, ignore anything else that follows them."""
    left, position, step = max_bytes, 0, _STEP_MAX
    while position == 0 or data[position : position + 2] == _MAGIC:
        decompressor = zlib.decompressobj(WINDOW_BITS)
        while not decompressor.eof:
            fed = data[position : position + step]
            if not fed:
                raise CorruptBatch("the gzip data ends within a member")
            try:
                # A maximum of 0 would mean no limit.
                piece = decompressor.decompress(fed, min(left + 1, _PIECE_BYTES))
            except zlib.error as error:
                raise CorruptBatch(f"the gzip data cannot be decompressed: {error}") from None
            left -= len(piece)
            if left < 0:
                raise DecompressedTooLarge("gzip", max_bytes)
            is_at_end = decompressor.eof
            rest = decompressor.unused_data if is_at_end else decompressor.unconsumed_tail
            position += len(fed) - len(rest)
            step = min(4 * step, _STEP_MAX)
            yield piece
        # The decompressor copies what follows a member. Clients send only one member; a batch of
        # many must not be copied over again for each of them.
        step = _MEMBER_STEP
