"""Compression of a batch's records, in the framings that Kafka's clients agree on.

Decompression is bounded: no codec allocates much more than the caller's limit, whatever the data
claims. Beyond the limit the error is MESSAGE_TOO_LARGE, on which a producer splits its batch; data
that a codec cannot read is :class:`CorruptBatch`. Each codec reads what Java clients and librdkafka
write, including several members or frames in a row, and writes what both can read.
"""

from __future__ import annotations

from enum import IntEnum

from dohle.records.compression import gzip, lz4, snappy, zstd
from dohle.records.compression.whole import Pieces
from dohle.records.errors import CorruptBatch, DecompressedTooLarge

#: The limit of a batch's decompressed size if its reader sets none.
DECOMPRESSED_BYTES_MAX = 128 * 1024 * 1024
_DECOMPRESSED_TIMES_MAX = 128


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
            return gzip.compress(data, level)
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
            return b"".join(gzip.pieces(memoryview(data), max_bytes))
        case Codec.SNAPPY:
            return snappy.decompress(memoryview(data), max_bytes)
        case Codec.LZ4:
            pieces = lz4.pieces(memoryview(data), max_bytes, message_format_0=message_format_0)
            return b"".join(pieces)
        case Codec.ZSTD:
            return zstd.decompress(memoryview(data), max_bytes)


def decompressed_bytes_max(size: int) -> int:
    """Return how much the records of a batch may hold that take so many bytes compressed."""
    return max(DECOMPRESSED_BYTES_MAX, _DECOMPRESSED_TIMES_MAX * size)


def decompressing(
    codec: Codec,
    data: bytes | bytearray | memoryview,
    max_bytes: int | None = None,
    *,
    message_format_0: bool = False,
) -> Pieces:
    """Decompress one batch's records piece by piece, each in about a millisecond.

    Without ``max_bytes``, ``DECOMPRESSED_BYTES_MAX`` are allowed, and as many times its own size.
    What cannot be decompressed in pieces may hold less (``whole_bytes_max``). Kafka has no limit:
    whoever sends large batches has to be able to here, but not with a few bytes.
    """
    view = memoryview(data)
    if max_bytes is None:
        max_bytes = decompressed_bytes_max(len(view))
    match codec:
        case Codec.NONE:
            yield view
        case Codec.GZIP:
            yield from gzip.pieces(view, max_bytes)
        case Codec.SNAPPY:
            yield from snappy.pieces(view, max_bytes)
        case Codec.LZ4:
            yield from lz4.pieces(view, max_bytes, message_format_0=message_format_0)
        case Codec.ZSTD:
            yield from zstd.pieces(view, max_bytes)
