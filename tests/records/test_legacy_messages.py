"""Messages of formats 0 and 1, plain and compressed."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.core.errors import KafkaError
from dohle.records.batch import Batch, CorruptBatch, IncompleteBatch, batches, read_batch
from dohle.records.compression.codecs import Codec, compress
from dohle.records.errors import DecompressedTooLarge, InvalidRecord
from dohle.records.legacy import LegacyBatch
from dohle.records.record import Record, TimestampType
from tests.records.message_sets import Message, build_message_set

NOW_MS = 1_700_000_000_000
LEGACY_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
COMPRESSING = LEGACY_CODECS[1:]

payloads = st.none() | st.binary(max_size=300)
message_lists = st.lists(
    st.builds(Message, st.integers(0, 2**62), payloads, payloads), min_size=1, max_size=20
)


def entry(
    offset: int, magic: int, attributes: int, value: bytes | None, timestamp: int = NOW_MS
) -> bytes:
    body = bytes((magic, attributes))
    if magic == 1:
        body += struct.pack(">q", timestamp)
    body += struct.pack(">i", -1)
    body += struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def legacy(batch: Batch) -> LegacyBatch:
    assert isinstance(batch, LegacyBatch)
    return batch


@given(
    magic=st.sampled_from([0, 1]),
    codec=st.sampled_from(LEGACY_CODECS),
    messages=message_lists,
    base_offset=st.integers(0, 2**60),
)
def test_what_is_built_is_read_back(
    magic: int, codec: Codec, messages: list[Message], base_offset: int
) -> None:
    data = build_message_set(magic, messages, base_offset=base_offset, codec=codec)
    found = list(batches(data))
    for batch in found:
        batch.ensure_valid()
    expected = [
        Record(base_offset + index, message.timestamp if magic else -1, message.key, message.value)
        for index, message in enumerate(messages)
    ]
    assert [record for batch in found for record in batch] == expected
    assert found[0].base_offset == base_offset
    assert found[-1].next_offset == base_offset + len(messages)
    assert len(found) == (len(messages) if codec is Codec.NONE else 1)
    assert sum(batch.size for batch in found) == len(data)


def test_a_message_has_what_all_batches_have() -> None:
    (batch,) = batches(build_message_set(1, [Message(NOW_MS, b"k", b"v")], base_offset=5))
    assert (batch.base_offset, batch.last_offset, batch.next_offset) == (5, 5, 6)
    assert (batch.magic, batch.record_count, batch.size) == (1, 1, 36)
    assert batch.compression is Codec.NONE
    assert batch.timestamp_type is TimestampType.CREATE_TIME
    assert batch.max_timestamp == NOW_MS
    assert (batch.producer_id, batch.producer_epoch) == (-1, -1)
    assert (batch.base_sequence, batch.last_sequence) == (-1, -1)
    assert batch.partition_leader_epoch == -1
    assert not batch.is_transactional
    assert not batch.is_control
    assert "last_offset=5" in repr(batch)


def test_format_0_has_no_timestamps() -> None:
    (batch,) = batches(build_message_set(0, [Message(NOW_MS, b"k", b"v")]))
    assert batch.timestamp_type is TimestampType.NO_TIMESTAMP_TYPE
    assert batch.max_timestamp == -1
    assert next(iter(batch)).timestamp == -1


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_wrapper_has_the_last_offset_and_an_unknown_count(magic: int, codec: Codec) -> None:
    messages = [Message(NOW_MS + index, None, b"v" * 50) for index in (0, 9, 5)]
    (batch,) = batches(build_message_set(magic, messages, base_offset=100, codec=codec))
    assert batch.compression is codec
    assert batch.record_count is None
    assert (batch.base_offset, batch.last_offset) == (100, 102)
    assert batch.max_timestamp == (NOW_MS + 9 if magic else -1)


def test_inner_offsets_are_absolute_in_format_0_and_relative_in_format_1() -> None:
    for magic, inner_offsets in ((0, [100, 104]), (1, [0, 4])):
        inner = b"".join(entry(offset, magic, 0, b"v") for offset in inner_offsets)
        wrapper = entry(104, magic, Codec.GZIP, compress(Codec.GZIP, inner))
        batch = read_batch(wrapper)
        assert [record.offset for record in batch] == [100, 104]
        assert batch.base_offset == 100


def test_an_outer_offset_of_zero_leaves_relative_offsets_as_they_are() -> None:
    inner = b"".join(entry(offset, 1, 0, b"v") for offset in range(3))
    wrapper = entry(0, 1, Codec.GZIP, compress(Codec.GZIP, inner))
    assert [record.offset for record in read_batch(wrapper)] == [0, 1, 2]


def test_the_append_time_of_a_wrapper_is_the_time_of_every_message() -> None:
    inner = b"".join(entry(offset, 1, 0, b"v", NOW_MS + offset) for offset in range(3))
    packed = compress(Codec.SNAPPY, inner)
    stamped = read_batch(entry(9, 1, Codec.SNAPPY | 0x08, packed, NOW_MS + 77))
    assert stamped.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in stamped] == [NOW_MS + 77] * 3
    created = read_batch(entry(9, 1, Codec.SNAPPY, packed, NOW_MS + 77))
    assert [record.timestamp for record in created] == [NOW_MS, NOW_MS + 1, NOW_MS + 2]
    built = build_message_set(
        1,
        [Message(NOW_MS, None, b"v")] * 2,
        codec=Codec.LZ4,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        log_append_time=NOW_MS + 5,
    )
    assert [record.timestamp for record in read_batch(built)] == [NOW_MS + 5] * 2


def test_lz4_in_format_0_has_the_header_checksum_of_old_clients() -> None:
    messages = [Message(-1, None, b"v" * 100)]
    old = legacy(read_batch(build_message_set(0, messages, codec=Codec.LZ4)))
    new = legacy(read_batch(build_message_set(1, messages, codec=Codec.LZ4)))
    assert bytes(old.buffer[26:33]).hex() == "04224d1860401a"
    assert bytes(new.buffer[34:41]).hex() == "04224d18604082"
    assert [record.value for record in old] == [record.value for record in new] == [b"v" * 100]


@pytest.mark.parametrize("magic", [0, 1])
def test_format_0_accepts_any_lz4_header_checksum_and_format_1_does_not(magic: int) -> None:
    packed = bytearray(compress(Codec.LZ4, entry(0, magic, 0, b"v")))
    packed[6] ^= 0xFF
    batch = read_batch(entry(0, magic, Codec.LZ4, bytes(packed)))
    if magic == 0:
        assert [record.value for record in batch] == [b"v"]
    else:
        with pytest.raises(CorruptBatch, match="checksum"):
            list(batch)


def test_the_checksum_covers_magic_to_value() -> None:
    data = bytearray(build_message_set(1, [Message(NOW_MS, b"key", b"value")]))
    for position in range(12, len(data)):
        if position == 16:
            continue  # another magic is another format
        data[position] ^= 0x10
        with pytest.raises(CorruptBatch, match="checksum"):
            read_batch(data).ensure_valid()
        data[position] ^= 0x10
    read_batch(data).ensure_valid()


@pytest.mark.parametrize("codec", LEGACY_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_a_cut_message_is_incomplete_at_every_byte(magic: int, codec: Codec) -> None:
    data = build_message_set(magic, [Message(NOW_MS, b"k", b"v")], codec=codec)
    for end in range(len(data)):
        with pytest.raises(IncompleteBatch):
            read_batch(data[:end])


def test_a_message_shorter_than_its_format_needs_is_corrupt() -> None:
    short = struct.pack(">qiIBB", 0, 14, 0, 1, 0) + bytes(50)
    with pytest.raises(CorruptBatch, match="smaller than its header"):
        read_batch(short)


@pytest.mark.parametrize(
    "wrapper",
    [
        entry(3, 1, Codec.GZIP, None),
        entry(3, 1, Codec.GZIP, b"no gzip"),
        entry(3, 1, Codec.GZIP, compress(Codec.GZIP, b"")),
        entry(3, 1, Codec.GZIP, compress(Codec.GZIP, bytes(100))),
        entry(3, 1, Codec.ZSTD, compress(Codec.ZSTD, entry(0, 1, 0, b"v"))),
        entry(3, 1, 5, b"unknown codec"),
        entry(3, 1, Codec.GZIP, compress(Codec.GZIP, entry(4, 1, 0, b"v"))),
        entry(3, 1, Codec.GZIP, compress(Codec.GZIP, entry(0, 1, Codec.GZIP, b"v"))),
        entry(3, 1, Codec.GZIP, compress(Codec.GZIP, entry(0, 2, 0, b"v" * 90))),
    ],
    ids=[
        "no value",
        "not compressed",
        "empty",
        "zeros",
        "zstd",
        "unknown codec",
        "inner offset beyond the outer",
        "compressed twice",
        "inner format 2",
    ],
)
def test_a_wrapper_that_cannot_be_right_is_refused(wrapper: bytes) -> None:
    batch = read_batch(wrapper)
    batch.ensure_valid()
    with pytest.raises(KafkaError):
        list(batch)
    with pytest.raises(KafkaError):
        _ = batch.base_offset


def test_an_incomplete_last_inner_message_is_left_out() -> None:
    inner = entry(0, 1, 0, b"first") + entry(1, 1, 0, b"second")[:-3]
    batch = read_batch(entry(3, 1, Codec.GZIP, compress(Codec.GZIP, inner)))
    assert [record.value for record in batch] == [b"first"]


@pytest.mark.parametrize("change", [-(2**31) + 1, 1, 2**30])
def test_a_value_length_that_does_not_fit_is_refused(change: int) -> None:
    data = bytearray(entry(0, 0, 0, b"value"))
    struct.pack_into(">i", data, 22, 5 + change)
    with pytest.raises(InvalidRecord):
        list(read_batch(data))


def test_a_wrapper_that_grows_too_large_is_refused() -> None:
    data = build_message_set(1, [Message(0, None, bytes(100_000))], codec=Codec.GZIP)
    batch = legacy(read_batch(data))
    with pytest.raises(DecompressedTooLarge):
        list(batch.records(max_bytes=10_000))


def test_only_what_the_formats_know_is_built() -> None:
    with pytest.raises(ValueError):
        build_message_set(2, [])
    with pytest.raises(ValueError):
        build_message_set(1, [], codec=Codec.ZSTD)
    assert build_message_set(1, [], codec=Codec.GZIP) == b""
