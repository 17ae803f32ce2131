"""Zstandard, with a limit on what it may decompress to.

Streaming writers omit a frame's content size, and a size that is there may be wrong. So the headers
of all blocks are read first: a block never holds more than 128 KiB, which bounds the output buffer,
and the decompressor fails rather than write past that.
"""

from __future__ import annotations

import cramjam

from dohle.records.errors import CorruptBatch, DecompressedTooLarge

_MAGIC = 0xFD2FB528
_SKIPPABLE_MAGIC = 0x184D2A50  # to ...5F
_BLOCK_SIZE_MAX = 128 * 1024
_LEVEL_DEFAULT = 3

_RUN, _COMPRESSED, _RESERVED = 1, 2, 3


def compress(data: memoryview, level: int | None = None) -> bytes:
    """Write one frame."""
    return bytes(cramjam.zstd.compress(data, _LEVEL_DEFAULT if level is None else level))


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


def decompress_into(data: memoryview, output: memoryview) -> int | None:
    """Decompress one or more frames into a buffer; return the number of bytes.

    Returns None if something is wrong, which includes a buffer that is too small.
    """
    try:
        return int(cramjam.zstd.decompress_into(data, output))
    except cramjam.DecompressionError:
        return None


def _size_max(data: memoryview, max_bytes: int) -> int:
    """Return an upper bound of what all frames hold."""
    if not data:
        raise CorruptBatch("empty data, where at least one zstd frame is expected")
    total = 0
    position = 0
    try:
        while position < len(data):
            magic = int.from_bytes(data[position : position + 4], "little")
            if magic & ~0xF == _SKIPPABLE_MAGIC:
                position += 8 + int.from_bytes(data[position + 4 : position + 8], "little")
                continue
            if magic != _MAGIC:
                raise CorruptBatch(f"no zstd frame starts at byte {position}")
            declared, checksum_size, position = _read_frame_header(data, position + 4)
            if declared is not None and declared > max_bytes:
                raise DecompressedTooLarge("zstd", max_bytes)
            blocks_max, position = _walk_blocks(data, position)
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


def _walk_blocks(data: memoryview, position: int) -> tuple[int, int]:
    """Return an upper bound of what a frame's blocks hold, and where they end."""
    total = 0
    while True:
        header = data[position] | data[position + 1] << 8 | data[position + 2] << 16
        position += 3
        kind, size = header >> 1 & 3, header >> 3
        if kind == _RESERVED:
            raise CorruptBatch("a zstd block has the reserved type")
        total += _BLOCK_SIZE_MAX if kind == _COMPRESSED else size
        position += 1 if kind == _RUN else size
        if header & 1:
            return total, position
