"""Codecs: round trips, framings, limits."""

from __future__ import annotations

import gzip
import random
import struct
import subprocess
import sys
import textwrap
import zlib

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.core.errors import ErrorCode, KafkaError
from dohle.records.compression.codecs import Codec, compress, decompress
from dohle.records.compression.lz4 import xxh32_short
from dohle.records.errors import CorruptBatch, DecompressedTooLarge

COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]
TEXT = b"".join(b"line %d of a text that repeats itself\n" % i for i in range(8000))


ALLOWED = (ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE)


def outcome(codec: Codec, data: bytes | bytearray, max_bytes: int) -> ErrorCode:
    """How decompressing ends: any exception but a KafkaError goes through and fails the test."""
    try:
        result = decompress(codec, data, max_bytes)
    except KafkaError as error:
        return error.code
    assert len(result) <= max_bytes
    return ErrorCode.NONE


@given(codec=st.sampled_from(Codec), data=st.binary(max_size=2000))
def test_data_round_trips(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), len(data)) == data
    assert decompress(codec, memoryview(compress(codec, bytearray(data)))) == data


@pytest.mark.parametrize("codec", COMPRESSING)
def test_text_shrinks_and_round_trips(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    assert len(packed) < len(TEXT) / 2
    assert decompress(codec, packed) == TEXT


@pytest.mark.parametrize("codec", COMPRESSING)
def test_several_members_or_frames_in_a_row_are_read(codec: Codec) -> None:
    packed = compress(codec, TEXT) + compress(codec, b"") + compress(codec, b"second")
    assert decompress(codec, packed) == TEXT + b"second"
    with pytest.raises(DecompressedTooLarge):
        decompress(codec, packed, len(TEXT) + 5)


@pytest.mark.parametrize("codec", Codec)
def test_the_limit_is_exact(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    assert decompress(codec, packed, len(TEXT)) == TEXT
    with pytest.raises(DecompressedTooLarge) as refused:
        decompress(codec, packed, len(TEXT) - 1)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert codec is not Codec.NONE or decompress(codec, b"", 0) == b""


@pytest.mark.parametrize("codec", COMPRESSING)
def test_cut_data_is_corrupt_or_too_large_at_every_byte(codec: Codec) -> None:
    packed = compress(codec, TEXT[:5000])
    whole_blocks = {16} if codec is Codec.SNAPPY else set()
    for end in range(len(packed)):
        if end in whole_blocks:
            continue  # a stream of no blocks
        with pytest.raises(CorruptBatch):
            decompress(codec, packed[:end])


@given(
    codec=st.sampled_from(COMPRESSING),
    changes=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=6),
    cut=st.integers(0, 50),
    big=st.booleans(),
)
def test_damaged_data_never_gives_another_error(
    codec: Codec, changes: list[tuple[int, int]], cut: int, big: bool
) -> None:
    packed = bytearray(compress(codec, TEXT if big else TEXT[:500]))
    for position, byte in changes:
        packed[position % min(len(packed), 64 if position % 2 else len(packed))] = byte
    assert outcome(codec, packed[: len(packed) - cut], 1 << 20) in ALLOWED


@given(codec=st.sampled_from(COMPRESSING), data=st.binary(max_size=100))
def test_random_data_never_gives_another_error(codec: Codec, data: bytes) -> None:
    for magic in (
        b"",
        b"\x1f\x8b\x08",
        b"\x82SNAPPY\x00",
        b"\x04\x22\x4d\x18",
        b"\x28\xb5\x2f\xfd",
    ):
        assert outcome(codec, magic + data, 1 << 16) in ALLOWED


def test_gzip_ignores_what_is_no_member_at_the_end() -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"data") + bytes(8)) == b"data"


@given(st.lists(st.integers(0, 20_000), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_gzip_members_of_any_size_are_read(sizes: list[int], rng: random.Random) -> None:
    members = [rng.randbytes(size) for size in sizes]
    packed = b"".join(gzip.compress(member, mtime=0) for member in members)
    data = b"".join(members)
    assert decompress(Codec.GZIP, packed, len(data)) == data
    with pytest.raises(CorruptBatch, match="ends within"):
        decompress(Codec.GZIP, packed[:-1])
    if data:
        with pytest.raises(DecompressedTooLarge):
            decompress(Codec.GZIP, packed, len(data) - 1)


def test_many_gzip_members_are_not_copied_over_again_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copied = 0
    make = zlib.decompressobj

    class Counting:
        """A decompressor that counts what it hands back unused, which is a copy."""

        def __init__(self, window_bits: int) -> None:
            self.inner = make(window_bits)

        def decompress(self, data: memoryview, max_length: int) -> bytes:
            nonlocal copied
            found = self.inner.decompress(data, max_length)
            copied += len(self.inner.unused_data)
            return found

        def __getattr__(self, name: str) -> object:
            return getattr(self.inner, name)

    monkeypatch.setattr(zlib, "decompressobj", Counting)
    packed = gzip.compress(b"", mtime=0) * 5_000
    assert decompress(Codec.GZIP, packed) == b""
    assert copied <= len(packed) + 5_000 * 1_024


def test_snappy_is_framed_in_blocks_of_32_kib() -> None:
    data = random.Random(1).randbytes(70_000)
    packed = compress(Codec.SNAPPY, data)
    assert packed[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    position, sizes = 16, []
    while position < len(packed):
        (size,) = struct.unpack_from(">i", packed, position)
        block = bytes(cramjam.snappy.decompress_raw(packed[position + 4 : position + 4 + size]))
        sizes.append(len(block))
        position += 4 + size
    assert sizes == [32768, 32768, 70_000 - 65536]


def test_snappy_without_framing_is_read() -> None:
    packed = bytes(cramjam.snappy.compress_raw(TEXT))
    assert decompress(Codec.SNAPPY, packed) == TEXT
    with pytest.raises(DecompressedTooLarge):
        decompress(Codec.SNAPPY, packed, len(TEXT) - 1)


def test_snappy_framing_from_the_future_is_refused() -> None:
    packed = bytearray(compress(Codec.SNAPPY, b"data"))
    packed[8:16] = struct.pack(">ii", 2, 1)
    assert decompress(Codec.SNAPPY, packed) == b"data"
    packed[8:16] = struct.pack(">ii", 1, 0)
    with pytest.raises(CorruptBatch, match="compatible"):
        decompress(Codec.SNAPPY, packed)


def test_lz4_is_framed_as_kip_57_asks() -> None:
    packed = compress(Codec.LZ4, TEXT)
    assert packed[:7].hex() == "04224d18604082"
    assert packed[-4:] == bytes(4)
    assert bytes(cramjam.lz4.decompress(packed)) == TEXT


@pytest.mark.parametrize(
    ("data", "digest"),
    [
        (b"", 0x02CC5D05),
        (b"abc", 0x32D153FF),
        (b"123456", 0xB7014066),
        (b"123456789ABCDEF", 0x576E3CF9),
    ],
)
def test_frame_headers_are_hashed_by_xxhash32(data: bytes, digest: int) -> None:
    assert xxh32_short(data) == digest


def test_lz4_stores_what_does_not_compress() -> None:
    data = random.Random(1).randbytes(70_000)
    packed = compress(Codec.LZ4, data)
    assert struct.unpack_from("<I", packed, 7) == (0x8000_0000 | 65536,)
    assert decompress(Codec.LZ4, packed) == data


def test_lz4_with_content_checksum_is_read_and_linked_blocks_are_refused() -> None:
    for linked in (False, True):
        compressor = cramjam.lz4.Compressor(content_checksum=True, block_linked=linked)
        compressor.compress(TEXT)
        packed = bytes(compressor.finish())
        if linked:
            with pytest.raises(CorruptBatch, match="depend on each other"):
                decompress(Codec.LZ4, packed)
        else:
            assert decompress(Codec.LZ4, packed) == TEXT


def lz4_frame(flags: int, descriptor: int, extra: bytes = b"") -> bytes:
    """A frame of one stored block, with an unchecked header."""
    trailer = bytes(4) if flags & 0x10 else b""
    end = bytes(4) + (bytes(4) if flags & 0x04 else b"")
    header = b"\x04\x22\x4d\x18" + bytes((flags, descriptor)) + extra + b"?"
    return header + struct.pack("<I", 0x8000_0005) + b"hello" + trailer + end


@pytest.mark.parametrize("descriptor", [0x40, 0x50, 0x60, 0x70])
@pytest.mark.parametrize("flags", [0x60, 0x64, 0x68, 0x70, 0x7C])
def test_every_lz4_header_that_kafka_reads_is_read(flags: int, descriptor: int) -> None:
    frame = lz4_frame(flags, descriptor, struct.pack("<Q", 5) if flags & 0x08 else b"")
    assert decompress(Codec.LZ4, frame, message_format_0=True) == b"hello"
    assert decompress(Codec.LZ4, frame + frame, message_format_0=True) == b"hello" * 2
    with pytest.raises(CorruptBatch, match="checksum"):
        decompress(Codec.LZ4, frame)


@pytest.mark.parametrize(
    ("flags", "descriptor"), [(0x20, 0x40), (0xA0, 0x40), (0x61, 0x40), (0x60, 0x30), (0x60, 0xC0)]
)
def test_an_lz4_header_that_kafka_refuses_is_refused(flags: int, descriptor: int) -> None:
    with pytest.raises(CorruptBatch):
        decompress(Codec.LZ4, lz4_frame(flags, descriptor), message_format_0=True)


def test_zstd_frames_without_content_size_and_skippable_frames_are_read() -> None:
    compressor = cramjam.zstd.Compressor(3)
    for start in range(0, len(TEXT), 1000):
        compressor.compress(TEXT[start : start + 1000])
    streamed = bytes(compressor.finish())
    assert streamed[4] >> 6 == 0
    skippable = struct.pack("<II", 0x184D2A53, 6) + b"ignore"
    packed = skippable + streamed + skippable + compress(Codec.ZSTD, b"end")
    assert decompress(Codec.ZSTD, packed, len(TEXT) + 3) == TEXT + b"end"


def test_zstd_blocks_of_the_reserved_type_are_refused() -> None:
    frame = b"\x28\xb5\x2f\xfd\x00\x58" + (1 | 3 << 1 | 5 << 3).to_bytes(3, "little") + b"12345"
    with pytest.raises(CorruptBatch, match="reserved"):
        decompress(Codec.ZSTD, frame)


BOMBS = """
    import resource, struct, zlib
    import cramjam
    from dohle.core.errors import ErrorCode, KafkaError
    from dohle.records.compression.codecs import Codec, compress, decompress

    ZEROS = bytes(1 << 20)
    COUNT = 256

    def gzip_bomb():
        compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
        return b"".join(compressor.compress(ZEROS) for _ in range(COUNT)) + compressor.flush()

    def lz4_bomb():
        frame = compress(Codec.LZ4, ZEROS)
        return frame[:7] + frame[7:-4] * COUNT + frame[-4:]

    def zstd_bomb(header):
        block = (1 << 1 | (128 * 1024) << 3).to_bytes(3, "little") + b"x"
        last = (1 | 1 << 1 | 1 << 3).to_bytes(3, "little") + b"x"
        return bytes.fromhex("28b52ffd") + header + block * (8 * COUNT) + last

    bombs = [
        (Codec.GZIP, gzip_bomb()),
        (Codec.GZIP, compress(Codec.GZIP, ZEROS) * COUNT),
        (Codec.SNAPPY, compress(Codec.SNAPPY, ZEROS) * COUNT),
        (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(ZEROS * 32))),
        (Codec.SNAPPY, bytes.fromhex("ffffffff0f") + bytes(100)),
        (Codec.LZ4, lz4_bomb()),
        (Codec.LZ4, compress(Codec.LZ4, ZEROS) * COUNT),
        (Codec.ZSTD, zstd_bomb(bytes.fromhex("0058"))),
        (Codec.ZSTD, zstd_bomb(bytes.fromhex("c058") + struct.pack("<Q", 1 << 40))),
        (Codec.ZSTD, zstd_bomb(bytes.fromhex("c058") + struct.pack("<Q", 1000))),
        (Codec.ZSTD, compress(Codec.ZSTD, ZEROS) * COUNT),
    ]
    limit = 1 << 20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for codec, bomb in bombs:
        try:
            decompress(codec, bomb, limit - 1)
        except KafkaError as error:
            print(codec.name, len(bomb), error.code.name)
        else:
            raise SystemExit(f"a {codec.name} bomb went through")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print("grown", grown)
    raise SystemExit(grown > 16 * 1024)
"""


def test_decompression_bombs_are_refused_in_little_memory() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(BOMBS)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    codes = [line.split()[2] for line in done.stdout.splitlines()[:-1]]
    assert len(codes) == 11
    assert codes.count("MESSAGE_TOO_LARGE") >= 10
    assert set(codes) <= {"MESSAGE_TOO_LARGE", "CORRUPT_MESSAGE"}


def test_a_gzip_member_with_a_wrong_checksum_is_corrupt() -> None:
    packed = bytearray(compress(Codec.GZIP, TEXT))
    assert zlib.crc32(TEXT) == int.from_bytes(packed[-8:-4], "little")
    packed[-8] ^= 1
    with pytest.raises(CorruptBatch, match="gzip"):
        decompress(Codec.GZIP, packed)
