"""The lz4 frame format as Kafka uses it: version 1, independent blocks (KIP-57).

Frames are taken apart here, block by block, because that bounds what is decompressed and because
clients of message format 0 computed the header checksum over the wrong bytes. As in Kafka, linked
blocks are refused, and what follows the last frame is ignored. Checksums of content and of blocks
are ignored: the batch's own checksum covers the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import cramjam

from dohle.records.errors import CorruptBatch, DecompressedTooLarge

_MAGIC = b"\x04\x22\x4d\x18"
BLOCK_SIZE = 64 * 1024
_FLAGS = 0x60  # version 1, independent blocks, no checksums, no content size
_BLOCK_DESCRIPTOR = 0x40  # blocks of 64 KiB
END_MARK = b"\x00\x00\x00\x00"
_STORED = 0x8000_0000
_BLOCKS_AT_ONCE_MAX = 256
#: No byte of compressed input can expand to more than this many bytes of output.
_EXPANSION_MAX = 255
#: Java uses its fast compressor for this level and the high compressor for every other one.
_LEVEL_DEFAULT = 9

_UINT32 = struct.Struct("<I")


def xxh32_short(data: bytes) -> int:
    """xxHash32 with seed 0, for the fewer than 16 bytes of a frame descriptor."""
    mask = 0xFFFFFFFF
    accumulator = 0x165667B1 + len(data)
    words = len(data) // 4 * 4
    for (word,) in _UINT32.iter_unpack(data[:words]):
        accumulator = (accumulator + word * 0xC2B2AE3D) & mask
        accumulator = (accumulator << 17 | accumulator >> 15) * 0x27D4EB2F & mask
    for byte in data[words:]:
        accumulator = (accumulator + byte * 0x165667B1) & mask
        accumulator = (accumulator << 11 | accumulator >> 21) * 0x9E3779B1 & mask
    accumulator = (accumulator ^ accumulator >> 15) * 0x85EBCA77 & mask
    accumulator = (accumulator ^ accumulator >> 13) * 0xC2B2AE3D & mask
    return accumulator ^ accumulator >> 16


@lru_cache(maxsize=64)
def _header_checksum(descriptor: bytes) -> int:
    return xxh32_short(descriptor) >> 8 & 0xFF


_DESCRIPTOR = bytes((_FLAGS, _BLOCK_DESCRIPTOR))
_HEADER = _MAGIC + _DESCRIPTOR + bytes((_header_checksum(_DESCRIPTOR),))
_HEADER_FORMAT_0 = _MAGIC + _DESCRIPTOR + bytes((_header_checksum(_MAGIC + _DESCRIPTOR),))


def compress(
    data: memoryview, level: int | None = None, *, message_format_0: bool = False
) -> bytes:
    """Write one frame of 64 KiB blocks, like the Java client."""
    return b"".join((frame_header(message_format_0), *compressed_blocks(data, level), END_MARK))


def frame_header(message_format_0: bool) -> bytes:
    """Return what a frame begins with.

    Readers of message format 0 expect the old, wrong header checksum, which includes the magic
    number.
    """
    return _HEADER_FORMAT_0 if message_format_0 else _HEADER


def compressed_blocks(
    data: memoryview, level: int | None
) -> Iterator[bytes | memoryview | cramjam.Buffer]:
    """Write the blocks between a frame's header and its end mark."""
    for start in range(0, len(data), BLOCK_SIZE):
        block = data[start : start + BLOCK_SIZE]
        if level is None or level == _LEVEL_DEFAULT:
            packed = cramjam.lz4.compress_block(block, store_size=False)
        else:
            packed = cramjam.lz4.compress_block(
                block, mode="high_compression", compression=level, store_size=False
            )
        if len(packed) < len(block):
            yield _UINT32.pack(len(packed))
            yield packed
        else:
            yield _UINT32.pack(len(block) | _STORED)
            yield block


def pieces(data: memoryview, max_bytes: int, *, message_format_0: bool = False) -> Iterator[bytes]:
    """Read one or more frames. The header checksums of message format 0 are not verified."""
    size = 0
    for block, is_stored, block_size_max in _blocks(data, check=not message_format_0):
        piece = bytes(block) if is_stored else _decompress_block(block, block_size_max)
        size += len(piece)
        if size > max_bytes:
            raise DecompressedTooLarge("lz4", max_bytes)
        yield piece


def decompress_into(data: memoryview, output: memoryview) -> int | None:
    """Decompress one or more frames into a buffer; return the number of bytes.

    Returns None if something is wrong, which includes a buffer that is too small, or if there are
    too many blocks to be read in one go.
    """
    size = count = 0
    try:
        for block, is_stored, block_size_max in _blocks(data, check=True):
            count += 1
            if count > _BLOCKS_AT_ONCE_MAX:
                return None
            if is_stored:
                written = len(block)
                output[size : size + written] = block
            else:
                room = output[size : size + block_size_max]
                written = cramjam.lz4.decompress_block_into(block, room, output_len=len(room))
            size += written
    except (CorruptBatch, cramjam.DecompressionError, ValueError):
        return None
    return size


def _blocks(data: memoryview, *, check: bool) -> Iterator[tuple[memoryview, int, int]]:
    """Yield each block, whether it is stored uncompressed, and the most it may hold."""
    position = 0
    try:
        while position == 0 or data[position : position + 4] == _MAGIC:
            frame = _read_header(data, position, check=check)
            position = frame.blocks_start
            while size := (word := _read_uint32(data, position)) & ~_STORED:
                start = position + 4
                if size > frame.block_size_max:
                    raise CorruptBatch(
                        f"an lz4 block of {size} bytes exceeds {frame.block_size_max}"
                    )
                if size > len(data) - start:
                    raise CorruptBatch("the lz4 data ends within a block")
                yield data[start : start + size], word & _STORED, frame.block_size_max
                position = start + size + frame.block_trailer_size
            position += 4 + frame.trailer_size
    except (struct.error, IndexError):
        raise CorruptBatch("the lz4 data ends within a frame") from None


class _Frame(NamedTuple):
    """What a frame's header says about the blocks that follow it."""

    block_size_max: int
    block_trailer_size: int
    trailer_size: int
    blocks_start: int


def _read_uint32(data: memoryview, position: int) -> int:
    value: int = _UINT32.unpack_from(data, position)[0]
    return value


def _read_header(data: memoryview, position: int, *, check: bool) -> _Frame:
    if data[position : position + 4] != _MAGIC:
        raise CorruptBatch("the lz4 data does not start with a frame")
    flags, descriptor = data[position + 4], data[position + 5]
    if flags >> 6 != 1 or flags & 0x03:
        raise CorruptBatch(f"lz4 frame flags {flags:#x} are not those of version 1")
    if not flags & 0x20:
        raise CorruptBatch("lz4 blocks that depend on each other are not supported (KIP-57)")
    if descriptor & 0x8F or descriptor < 0x40:
        raise CorruptBatch(f"unknown lz4 block descriptor {descriptor:#x}")
    end = position + 6 + (8 if flags & 0x08 else 0)
    checksum = data[end]
    if check and checksum != _header_checksum(bytes(data[position + 4 : end])):
        raise CorruptBatch("the header checksum of an lz4 frame is wrong")
    return _Frame(
        block_size_max=1 << (2 * (descriptor >> 4) + 8),
        block_trailer_size=4 if flags & 0x10 else 0,
        trailer_size=4 if flags & 0x04 else 0,
        blocks_start=end + 1,
    )


def _decompress_block(block: memoryview, size_max: int) -> bytes:
    output = bytearray(min(size_max, len(block) * _EXPANSION_MAX))
    try:
        written = cramjam.lz4.decompress_block_into(block, output, output_len=len(output))
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"an lz4 block cannot be decompressed: {error}") from None
    return bytes(memoryview(output)[:written])
