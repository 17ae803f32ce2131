"""Zstandard, with a limit on what it may decompress to.

Streaming writers omit a frame's content size, and a size that is there may be wrong. So the headers
of all blocks are read first: a block never holds more than 128 KiB, which bounds the output buffer,
and the decompressor fails rather than write past that.

The library reads whole frames only, so a frame cannot be decompressed piece by piece: a large one
is decompressed whole, elsewhere, and then handed out in pieces.
"""

from __future__ import annotations

from mmap import mmap

import cramjam

from dohle.records.compression.whole import Pieces, whole_bytes_max, whole_pieces
from dohle.records.errors import CorruptBatch, DecompressedTooLarge

_MAGIC = 0xFD2FB528
_SKIPPABLE_MAGIC = 0x184D2A50  # to ...5F
_BLOCK_SIZE_MAX = 128 * 1024
_LEVEL_DEFAULT = 3
#: Far more blocks than a batch has need of. The headers of others are left to the decompressor:
#: without any content a million would fit.
_BLOCKS_WALKED_MAX = 4096

#: In a frame's header: its content size takes four or eight bytes.
_LONG_SIZE_FLAG = 0x80

_RUN, _COMPRESSED, _RESERVED = 1, 2, 3


def compress(data: memoryview, level: int | None = None) -> bytes:
    """Write one frame."""
    return bytes(cramjam.zstd.compress(data, _LEVEL_DEFAULT if level is None else level))


def new_compressor(level: int | None) -> cramjam.zstd.Compressor:
    """Return what writes a frame piece by piece."""
    return cramjam.zstd.Compressor(_LEVEL_DEFAULT if level is None else level)


def decompress(data: memoryview, max_bytes: int) -> bytes:
    """Read one or more frames."""
    size_max = _size_max(data, max_bytes)
    output = bytearray(min(size_max, max_bytes))
    try:
        written = cramjam.zstd.decompress_into(data, output)
    except cramjam.DecompressionError as error:
        if size_max > max_bytes:
            raise DecompressedTooLarge("zstd", max_bytes) from None
        raise CorruptBatch(f"a zstd frame cannot be decompressed: {error}") from None
    return bytes(memoryview(output)[:written])


def pieces(data: memoryview, max_bytes: int) -> Pieces:
    """Read one or more frames; above ``whole_bytes_max`` in all is refused."""
    limit = whole_bytes_max(len(data), max_bytes)
    size_max = _size_max(data, limit)

    def read_into(output: bytearray | mmap) -> int:
        try:
            return int(cramjam.zstd.decompress_into(data, output))
        except cramjam.DecompressionError as error:
            if size_max > limit:
                raise DecompressedTooLarge("zstd", limit) from None
            raise CorruptBatch(f"a zstd frame cannot be decompressed: {error}") from None

    yield from whole_pieces(read_into, min(size_max, limit))


def decompress_into(data: memoryview, output: memoryview) -> int | None:
    """Decompress one or more frames into a buffer; return the number of bytes.

    Returns None if something is wrong, which includes a buffer that is too small.
    """
    try:
        # A size in four bytes or more is large: if it is too large, nothing is decompressed first.
        if data[4] & _LONG_SIZE_FLAG:
            declared, _, _ = _read_frame_header(data, 4)
            if declared is not None and declared > len(output):
                return None
        return int(cramjam.zstd.decompress_into(data, output))
    except (IndexError, cramjam.DecompressionError):
        return None


def _size_max(data: memoryview, max_bytes: int) -> int:
    """Return an upper bound of what all frames hold, or more than ``max_bytes`` if it is far."""
    if not data:
        raise CorruptBatch("empty data, where at least one zstd frame is expected")
    total = 0
    position = blocks = 0
    try:
        while position < len(data):
            magic = int.from_bytes(data[position : position + 4], "little")
            if magic & ~0xF == _SKIPPABLE_MAGIC:
                position += 8 + int.from_bytes(data[position + 4 : position + 8], "little")
                blocks += 1
                continue
            if magic != _MAGIC:
                raise CorruptBatch(f"no zstd frame starts at byte {position}")
            declared, checksum_size, position = _read_frame_header(data, position + 4)
            if declared is not None and declared > max_bytes:
                raise DecompressedTooLarge("zstd", max_bytes)
            blocks_max, position, count = _walk_blocks(data, position)
            blocks += count + 1
            if blocks > _BLOCKS_WALKED_MAX:
                return max_bytes + 1
            total += blocks_max if declared is None else min(declared, blocks_max)
            position += checksum_size
    except IndexError:
        raise CorruptBatch("the zstd data ends within a frame") from None
    return total


def _read_frame_header(data: memoryview, position: int) -> tuple[int | None, int, int]:
    """Return the content size if given, the checksum's size, and where the blocks start."""
    flags = data[position]
    single_segment = flags & 0x20
    position += 1 if single_segment else 2
    position += (0, 1, 2, 4)[flags & 0x03]
    size_size = (1 if single_segment else 0, 2, 4, 8)[flags >> 6]
    declared = None
    if size_size:
        declared = int.from_bytes(data[position : position + size_size], "little")
        if size_size == 2:
            declared += 256
    return declared, 4 if flags & 0x04 else 0, position + size_size


def _walk_blocks(data: memoryview, position: int) -> tuple[int, int, int]:
    """Return an upper bound of what a frame's blocks hold, where they end, and their number."""
    total = count = 0
    while True:
        count += 1
        header = data[position] | data[position + 1] << 8 | data[position + 2] << 16
        position += 3
        kind, size = header >> 1 & 3, header >> 3
        if kind == _RESERVED:
            raise CorruptBatch("a zstd block has the reserved type")
        total += _BLOCK_SIZE_MAX if kind == _COMPRESSED else size
        position += 1 if kind == _RUN else size
        if header & 1 or count > _BLOCKS_WALKED_MAX:
            return total, position, count
