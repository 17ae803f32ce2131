"""Decompression into memory that is used again.

Getting new pages for each batch costs more than lz4 itself, and the bound of a batch's size is far
above what most hold. What does not fit is decompressed as anywhere else.
"""

from __future__ import annotations

from collections.abc import Callable

from dohle.records.compression import lz4, snappy, zstd
from dohle.records.compression.codecs import Codec, decompress, decompressed_bytes_max

_SCRATCH_BYTES = 2 * 1024 * 1024

#: Each decompresses into the buffer and returns the number of bytes; None if the buffer is too
#: small or anything else is wrong.
DECOMPRESS_INTO: dict[Codec, Callable[[memoryview, memoryview], int | None]] = {
    Codec.LZ4: lz4.decompress_into,
    Codec.SNAPPY: snappy.decompress_into,
    Codec.ZSTD: zstd.decompress_into,
}


class Scratch:
    """Memory for one thread that decompresses one batch after the other."""

    def __init__(self) -> None:
        self._view = memoryview(bytearray(_SCRATCH_BYTES))

    def decompress(self, codec: Codec, data: memoryview) -> bytes:
        """Return a batch's records; raises as ``codecs.decompress`` does."""
        if codec is Codec.NONE:
            return bytes(data)
        into = DECOMPRESS_INTO.get(codec)
        size = None if into is None else into(data, self._view)
        if size is not None:
            return bytes(self._view[:size])
        # What was accepted once must be readable for ever.
        return decompress(codec, data, decompressed_bytes_max(len(data)))
