"""Good frames and headers around any records."""

from __future__ import annotations

import struct

import crc32c

from dohle.records.compression.codecs import Codec, compress
from dohle.records.varint import encode_varint


def framed(body: bytes) -> bytes:
    return encode_varint(len(body)) + body


def batch_around(records: bytes, count: int, codec: Codec = Codec.NONE) -> bytearray:
    """A batch with a good header and checksum around any records."""
    packed = compress(codec, records)
    header = struct.pack(
        ">qiibIhiqqqhii", 0, 49 + len(packed), 0, 2, 0, codec, 0, 0, 0, -1, -1, -1, count
    )
    data = bytearray(header + packed)
    data[17:21] = crc32c.crc32c(memoryview(data)[21:]).to_bytes(4, "big")
    return data
