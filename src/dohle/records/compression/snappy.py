"""Snappy in the block framing of Java's snappy library ("Xerial"), the one Kafka's clients share.

A stream is a 16-byte header and blocks of at most 32 KiB of input, each after its compressed size.
Data without that header is one bare snappy block, as librdkafka writes it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import partial
from mmap import mmap

import cramjam

from dohle.records.compression.whole import (
    WHOLE_BYTES_MIN,
    Pieces,
    whole_bytes_max,
    whole_pieces,
)
from dohle.records.errors import CorruptBatch, DecompressedTooLarge

_MAGIC = b"\x82SNAPPY\x00"
HEADER = _MAGIC + struct.pack(">ii", 1, 1)
_HEADER_SIZE = len(HEADER)
_COMPATIBLE_VERSION_MIN = 1
BLOCK_SIZE = 32 * 1024
_BLOCKS_AT_ONCE_MAX = 256
#: No byte of a block can stand for more: three of them copy up to 64.
_EXPANSION_MAX = 22

_INT32 = struct.Struct(">i")


def compress(data: memoryview) -> bytes:
    """Write one framed stream."""
    return b"".join((HEADER, *compressed_blocks(data)))


def compressed_blocks(data: memoryview) -> Iterator[bytes | cramjam.Buffer]:
    """Write the blocks that follow a stream's header."""
    for start in range(0, len(data), BLOCK_SIZE):
        block = cramjam.snappy.compress_raw(data[start : start + BLOCK_SIZE])
        yield _INT32.pack(len(block))
        yield block


def decompress(data: memoryview, max_bytes: int) -> bytes:
    """Read framed streams or one bare block."""
    return b"".join(_read_block(block, claimed) for block, claimed in _blocks(data, max_bytes))


def pieces(data: memoryview, max_bytes: int) -> Pieces:
    """Read block by block. A bare block may be large: it is read whole, elsewhere."""
    for block, claimed in _blocks(data, max_bytes):
        if claimed <= WHOLE_BYTES_MIN:
            yield _read_block(block, claimed)
        elif claimed > (limit := whole_bytes_max(len(block), max_bytes)):
            raise DecompressedTooLarge("snappy", limit)
        else:
            yield from whole_pieces(partial(_read_into, block), claimed)


def decompress_into(data: memoryview, output: memoryview) -> int | None:
    """Decompress into a buffer; return the number of bytes.

    Returns None if something is wrong, which includes a buffer that is too small, or if there are
    too many blocks to be read in one go.
    """
    size = count = 0
    try:
        for block, claimed in _blocks(data, len(output)):
            count += 1
            if count > _BLOCKS_AT_ONCE_MAX:
                return None
            size += cramjam.snappy.decompress_raw_into(block, output[size : size + claimed])
    except (CorruptBatch, DecompressedTooLarge, cramjam.DecompressionError):
        return None
    return size


def _blocks(data: memoryview, max_bytes: int) -> Iterator[tuple[memoryview, int]]:
    """Yield each block, and the number of bytes that it claims to hold: no more than are left."""
    if not data:
        raise CorruptBatch("empty data, where at least one snappy block is expected")
    if data[:8] != _MAGIC:
        yield data, _claimed_size(data, max_bytes, max_bytes)
        return
    left, end = max_bytes, len(data)
    position = _header_end(data, 0)
    while position < end:
        # Java's writers repeat the header where streams were joined.
        if data[position] == _MAGIC[0] and data[position : position + 8] == _MAGIC:
            position = _header_end(data, position)
            continue
        if end - position < 4:
            raise CorruptBatch("the snappy data ends within a block size")
        (size,) = _INT32.unpack_from(data, position)
        position += 4
        if not 0 <= size <= end - position:
            raise CorruptBatch(f"a snappy block of {size} bytes in {end - position} bytes")
        block = data[position : position + size]
        claimed = _claimed_size(block, left, max_bytes)
        position += size
        left -= claimed
        yield block, claimed


def _header_end(data: memoryview, position: int) -> int:
    end = position + _HEADER_SIZE
    if end > len(data):
        raise CorruptBatch("the snappy data ends within its header")
    (compatible_version,) = _INT32.unpack_from(data, end - _INT32.size)
    if compatible_version < _COMPATIBLE_VERSION_MIN:
        raise CorruptBatch(f"unknown snappy framing, compatible with version {compatible_version}")
    return end


def _claimed_size(block: memoryview, left: int, max_bytes: int) -> int:
    try:
        claimed = cramjam.snappy.decompress_raw_len(block)
    except cramjam.DecompressionError as error:
        raise _unreadable(error) from None
    if claimed > left:
        raise DecompressedTooLarge("snappy", max_bytes)
    if claimed > _EXPANSION_MAX * (len(block) + 1):
        raise CorruptBatch(f"a snappy block of {len(block)} bytes cannot hold {claimed}")
    return claimed


def _read_block(block: memoryview, claimed: int) -> bytes:
    output = bytearray(claimed)
    return bytes(memoryview(output)[: _read_into(block, output)])


def _read_into(block: memoryview, output: bytearray | mmap) -> int:
    try:
        return int(cramjam.snappy.decompress_raw_into(block, output))
    except cramjam.DecompressionError as error:
        raise _unreadable(error) from None


def _unreadable(error: Exception) -> CorruptBatch:
    return CorruptBatch(f"a snappy block cannot be decompressed: {error}")
