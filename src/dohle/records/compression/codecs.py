"""Compression of a batch's records, in the framings that Kafka's clients agree on.

Decompression is bounded: no codec allocates much more than the caller's limit, whatever the data
claims. Beyond the limit the error is MESSAGE_TOO_LARGE, on which a producer splits its batch; data
that a codec cannot read is :class:`CorruptBatch`. Each codec reads what Java clients and librdkafka
write, including several members or frames in a row, and writes what both can read.
"""

from __future__ import annotations

import zlib
from enum import IntEnum

from dohle.records.compression import lz4, snappy, zstd
from dohle.records.errors import CorruptBatch, DecompressedTooLarge

#: The limit of a batch's decompressed size if its reader sets none.
DECOMPRESSED_BYTES_MAX = 128 * 1024 * 1024

_GZIP_WINDOW_BITS = 31  # deflate within gzip's header and trailer
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_MEMBER_STEP = 1024


class Codec(IntEnum):
    """The codecs by their number in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_CODECS: tuple[Codec | None, ...] = (*Codec, None, None, None)


def codec_of(attributes: int) -> Codec:
    """Return the codec in the low three bits of a batch's or a message's attributes."""
    codec = _CODECS[attributes & 0x07]
    if codec is None:
        raise CorruptBatch(f"unknown compression codec {attributes & 0x07}")
    return codec


def compress(
    codec: Codec,
    data: bytes | bytearray | memoryview,
    level: int | None = None,
    *,
    message_format_0: bool = False,
) -> bytes:
    """Compress one batch's records.

    ``level`` has the meaning of ``compression.<codec>.level``; snappy has none.
    """
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            gzip_level = zlib.Z_DEFAULT_COMPRESSION if level is None else level
            compressor = zlib.compressobj(gzip_level, zlib.DEFLATED, _GZIP_WINDOW_BITS)
            return compressor.compress(data) + compressor.flush()
        case Codec.SNAPPY:
            return snappy.compress(memoryview(data))
        case Codec.LZ4:
            return lz4.compress(memoryview(data), level, message_format_0=message_format_0)
        case Codec.ZSTD:
            return zstd.compress(memoryview(data), level)


def decompress(
    codec: Codec,
    data: bytes | bytearray | memoryview,
    max_bytes: int = DECOMPRESSED_BYTES_MAX,
    *,
    message_format_0: bool = False,
) -> bytes:
    """Decompress one batch's records, to at most ``max_bytes``."""
    match codec:
        case Codec.NONE:
            if len(data) > max_bytes:
                raise DecompressedTooLarge("uncompressed", max_bytes)
            return bytes(data)
        case Codec.GZIP:
            return _gunzip(memoryview(data), max_bytes)
        case Codec.SNAPPY:
            return snappy.decompress(memoryview(data), max_bytes)
        case Codec.LZ4:
            return lz4.decompress(memoryview(data), max_bytes, message_format_0=message_format_0)
        case Codec.ZSTD:
            return zstd.decompress(memoryview(data), max_bytes)


def _gunzip(data: memoryview, max_bytes: int) -> bytes:
    """Read all members; like Java's reader, ignore anything else that follows them."""
    chunks: list[bytes] = []
    left, position, step = max_bytes, 0, len(data)
    while position == 0 or data[position : position + 2] == _GZIP_MAGIC:
        decompressor = zlib.decompressobj(_GZIP_WINDOW_BITS)
        while not decompressor.eof:
            piece = data[position : position + step]
            if not piece:
                raise CorruptBatch("the gzip data ends within a member")
            try:
                # A maximum of 0 would mean no limit.
                chunk = decompressor.decompress(piece, left + 1)
            except zlib.error as error:
                raise CorruptBatch(f"the gzip data cannot be decompressed: {error}") from None
            left -= len(chunk)
            if left < 0:
                raise DecompressedTooLarge("gzip", max_bytes)
            chunks.append(chunk)
            position += len(piece) - len(decompressor.unused_data)
            step *= 4
        # The decompressor copies what follows a member. Clients send only one member, so the first
        # is fed at once; a batch of many must not be copied whole for each of them.
        step = _GZIP_MEMBER_STEP
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)
