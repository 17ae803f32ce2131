"""Snappy in the block framing of Java's snappy library ("Xerial"), the one Kafka's clients share.

A stream is a 16-byte header and blocks of at most 32 KiB of input, each after its compressed size.
Data without that header is one bare snappy block, as librdkafka writes it.
"""

from __future__ import annotations

import struct

import cramjam

from dohle.records.errors import CorruptBatch, DecompressedTooLarge

_MAGIC = b"\x82SNAPPY\x00"
_HEADER = _MAGIC + struct.pack(">ii", 1, 1)
_HEADER_SIZE = len(_HEADER)
_COMPATIBLE_VERSION_MIN = 1
_BLOCK_SIZE = 32 * 1024

_INT32 = struct.Struct(">i")


def compress(data: memoryview) -> bytes:
    """Write one framed stream."""
    chunks: list[bytes | cramjam.Buffer] = [_HEADER]
    for start in range(0, len(data), _BLOCK_SIZE):
        block = cramjam.snappy.compress_raw(data[start : start + _BLOCK_SIZE])
        chunks += (_INT32.pack(len(block)), block)
    return b"".join(chunks)


def decompress(data: memoryview, max_bytes: int) -> bytes:
    """Read framed streams or one bare block."""
    if not data:
        raise CorruptBatch("empty data, where at least one snappy block is expected")
    if data[:8] != _MAGIC:
        return bytes(_read_block(data, max_bytes, max_bytes))
    chunks = []
    left = max_bytes
    position = 0
    while position < len(data):
        # Java's writers repeat the header where streams were joined.
        if data[position : position + 8] == _MAGIC:
            _check_header(data[position : position + _HEADER_SIZE])
            position += _HEADER_SIZE
            continue
        if len(data) - position < 4:
            raise CorruptBatch("the snappy data ends within a block size")
        (size,) = _INT32.unpack_from(data, position)
        position += 4
        if not 0 <= size <= len(data) - position:
            raise CorruptBatch(f"a snappy block of {size} bytes in {len(data) - position} bytes")
        chunk = _read_block(data[position : position + size], left, max_bytes)
        position += size
        left -= len(chunk)
        chunks.append(chunk)
    return b"".join(chunks)


def _check_header(header: memoryview) -> None:
    if len(header) < _HEADER_SIZE:
        raise CorruptBatch("the snappy data ends within its header")
    (compatible_version,) = _INT32.unpack_from(header, 12)
    if compatible_version < _COMPATIBLE_VERSION_MIN:
        raise CorruptBatch(f"unknown snappy framing, compatible with version {compatible_version}")


def _read_block(block: memoryview, left: int, max_bytes: int) -> bytes:
    """Decompress one block, unless it claims to hold more than ``left``."""
    try:
        if cramjam.snappy.decompress_raw_len(block) > left:
            raise DecompressedTooLarge("snappy", max_bytes)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"a snappy block cannot be decompressed: {error}") from None
