"""Compression of records that come in pieces, with the same result however they are cut."""

from __future__ import annotations

import zlib

import cramjam

from dohle.records.compression import gzip, lz4, snappy, zstd
from dohle.records.compression.codecs import Codec, compress

#: Everything is compressed in blocks of this size, which is a multiple of each codec's own.
_BLOCK_BYTES = 64 * 1024
#: zstd tells its size when it is flushed, which costs a little compression: every so many blocks.
_ZSTD_BLOCKS_PER_FLUSH = 16
#: About what the compressor of more than one block needs, for a codec that keeps a window.
COMPRESSOR_BYTES = 4 * 1024 * 1024


class Compressor:
    """What is written, compressed. One block alone is compressed like any other batch."""

    def __init__(
        self, codec: Codec, level: int | None = None, *, message_format_0: bool = False
    ) -> None:
        self._codec = codec
        self._level = level
        self._message_format_0 = message_format_0
        self._pending = bytearray()
        self._blocks = 0
        self._parts: list[bytes] = []
        self._gzip: zlib._Compress | None = None
        self._zstd: cramjam.zstd.Compressor | None = None
        #: How many bytes it has come to so far; with zstd, a little less than that.
        self.size = 0

    def write(self, data: bytes) -> None:
        """Add some bytes."""
        pending = self._pending
        pending += data
        start = 0
        # The last block is kept: only the end tells whether it is the only one.
        while len(pending) - start > _BLOCK_BYTES:
            self._compress(bytes(pending[start : start + _BLOCK_BYTES]))
            start += _BLOCK_BYTES
        del pending[:start]

    def finish(self) -> list[bytes]:
        """Return everything, compressed."""
        last = bytes(self._pending)
        if not self._blocks:
            return [
                compress(self._codec, last, self._level, message_format_0=self._message_format_0)
            ]
        self._compress(last)
        if self._gzip is not None:
            self._add(self._gzip.flush())
        elif self._zstd is not None:
            self._add(bytes(self._zstd.finish()))
        elif self._codec is Codec.LZ4:
            self._add(lz4.END_MARK)
        return self._parts

    def _add(self, part: bytes) -> None:
        self._parts.append(part)
        self.size += len(part)

    def _compress(self, block: bytes) -> None:
        if not self._blocks:
            if self._codec is Codec.SNAPPY:
                self._add(snappy.HEADER)
            elif self._codec is Codec.LZ4:
                self._add(lz4.frame_header(self._message_format_0))
            elif self._codec is Codec.GZIP:
                self._gzip = gzip.new_compressor(self._level)
            elif self._codec is Codec.ZSTD:
                self._zstd = zstd.new_compressor(self._level)
        self._blocks += 1
        if self._gzip is not None:
            self._add(self._gzip.compress(block))
        elif self._zstd is not None:
            self._zstd.compress(block)
            if self._blocks % _ZSTD_BLOCKS_PER_FLUSH == 0:
                self._add(bytes(self._zstd.flush()))
        elif self._codec is Codec.SNAPPY:
            self._add(b"".join(snappy.compressed_blocks(memoryview(block))))
        elif self._codec is Codec.LZ4:
            self._add(b"".join(lz4.compressed_blocks(memoryview(block), self._level)))
        else:
            self._add(block)
