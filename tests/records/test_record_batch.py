"""The view over a batch: header, framing, checksum, changes in place."""

from __future__ import annotations

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.core.errors import ErrorCode
from dohle.records.batch import (
    BATCH_HEADER,
    HEADER_SIZE,
    Batch,
    CorruptBatch,
    IncompleteBatch,
    RecordBatch,
    batches,
    read_batch,
    sequence_after,
    set_base_offset_and_epoch,
    stamp_log_append_time,
)
from dohle.records.builder import BatchBuilder
from dohle.records.compression.codecs import Codec
from dohle.records.record import TimestampType
from tests.records.message_sets import Message, build_message_set

NOW_MS = 1_700_000_000_000


def batch_of(count: int, base_offset: int = 0, codec: Codec = Codec.NONE) -> bytearray:
    builder = BatchBuilder(base_offset=base_offset, codec=codec)
    for index in range(count):
        builder.append(NOW_MS + index, b"key %d" % index, b"value" * index)
    return builder.build()


def resealed(batch: bytearray) -> bytearray:
    batch[17:21] = crc32c.crc32c(memoryview(batch)[21:]).to_bytes(4, "big")
    return batch


def v2(batch: Batch) -> RecordBatch:
    assert isinstance(batch, RecordBatch)
    return batch


def test_the_header_is_61_bytes() -> None:
    assert HEADER_SIZE == BATCH_HEADER.size == 61


def test_every_header_field_is_seen() -> None:
    header = BATCH_HEADER.pack(
        1000, 49, 5, 2, 0xDEADBEEF, 0x7B, 9, NOW_MS, NOW_MS + 1, 77, 6, 40, 0
    )
    batch = v2(read_batch(header))
    assert batch.base_offset == 1000
    assert batch.size == 61
    assert batch.partition_leader_epoch == 5
    assert batch.magic == 2
    assert batch.crc == 0xDEADBEEF
    assert batch.attributes == 0x7B
    assert batch.compression is Codec.LZ4
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert batch.is_transactional
    assert batch.is_control
    assert batch.last_offset_delta == 9
    assert batch.last_offset == 1009
    assert batch.next_offset == 1010
    assert batch.base_timestamp == batch.delete_horizon_ms == NOW_MS
    assert batch.max_timestamp == NOW_MS + 1
    assert (batch.producer_id, batch.producer_epoch) == (77, 6)
    assert (batch.base_sequence, batch.last_sequence) == (40, 49)
    assert batch.record_count == 0
    assert "offsets=1000..1009" in repr(batch)


def test_a_batch_views_its_own_bytes_and_copies_nothing() -> None:
    data = batch_of(3) + batch_of(2, base_offset=3)
    first, second = batches(data)
    assert first.buffer.obj is data
    assert bytes(first.buffer) + bytes(second.buffer) == bytes(data)
    assert [batch.base_offset for batch in (first, second)] == [0, 3]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_kind_of_buffer_is_read(kind: type[bytes] | type[bytearray]) -> None:
    batch = read_batch(kind(bytes(7) + batch_of(3)), 7)
    batch.ensure_valid()
    assert [record.offset for record in batch] == [0, 1, 2]


def test_a_cut_batch_is_incomplete_at_every_byte() -> None:
    batch = batch_of(3)
    for end in range(len(batch)):
        with pytest.raises(IncompleteBatch) as refused:
            read_batch(batch[:end])
        assert refused.value.position == 0
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


def test_iteration_stops_at_an_incomplete_tail() -> None:
    first, second = batch_of(3), batch_of(2, base_offset=3)
    for end in range(len(second)):
        assert [batch.base_offset for batch in batches(first + second[:end])] == [0]
    assert [batch.base_offset for batch in batches(first + second, len(first))] == [3]
    assert list(batches(b"")) == []


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 13, 48])
def test_a_length_below_the_minimum_is_corrupt(length: int) -> None:
    data = bytearray(5) + batch_of(3)
    data[13:17] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptBatch) as refused:
        read_batch(data, 5)
    assert not isinstance(refused.value, IncompleteBatch)
    assert refused.value.position == 5


def test_zeros_are_corrupt_and_no_batch() -> None:
    good = batch_of(3)
    found = batches(good + bytes(100))
    assert next(found).size == len(good)
    with pytest.raises(CorruptBatch) as refused:
        next(found)
    assert refused.value.position == len(good)


@pytest.mark.parametrize("magic", [3, 127, 128, 255])
def test_an_unknown_format_is_corrupt(magic: int) -> None:
    data = batch_of(3)
    data[16] = magic
    with pytest.raises(CorruptBatch, match="format"):
        read_batch(data)


@pytest.mark.parametrize("length", [14, 30, 48])
def test_a_short_batch_of_format_2_is_corrupt_whether_or_not_more_bytes_follow(length: int) -> None:
    data = batch_of(3)
    data[8:12] = length.to_bytes(4, "big")
    for end in (length + 12, len(data)):
        with pytest.raises(CorruptBatch, match="smaller than its header"):
            read_batch(data[:end])


@given(position=st.integers(17, 150), bit=st.integers(0, 7))
def test_any_flipped_bit_that_the_checksum_covers_is_found(position: int, bit: int) -> None:
    data = batch_of(10)
    read_batch(data).ensure_valid()
    data[position] ^= 1 << bit
    with pytest.raises(CorruptBatch, match="checksum"):
        read_batch(data).ensure_valid()


@given(base_offset=st.integers(0, 2**62), epoch=st.integers(-1, 2**31 - 1))
def test_a_leader_writes_offset_and_epoch_without_a_new_checksum(
    base_offset: int, epoch: int
) -> None:
    data = bytearray(3) + batch_of(4)
    crc = v2(read_batch(data, 3)).crc
    set_base_offset_and_epoch(memoryview(data), 3, base_offset, epoch)
    batch = v2(read_batch(data, 3))
    batch.ensure_valid()
    assert batch.crc == crc
    assert (batch.base_offset, batch.partition_leader_epoch) == (base_offset, epoch)
    assert [record.offset for record in batch] == list(range(base_offset, base_offset + 4))


@pytest.mark.parametrize("codec", Codec)
def test_the_append_time_is_stamped_with_a_new_checksum(codec: Codec) -> None:
    data = bytearray(3) + batch_of(4, codec=codec) + b"next"
    stamp_log_append_time(data, 3, NOW_MS + 999)
    batch = v2(read_batch(data, 3))
    batch.ensure_valid()
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert batch.compression is codec
    assert batch.max_timestamp == NOW_MS + 999
    assert {record.timestamp for record in batch} == {NOW_MS + 999}
    assert data[-4:] == b"next"


@pytest.mark.parametrize(
    ("sequence", "delta", "after"),
    [(0, 0, 0), (5, 3, 8), (2**31 - 1, 1, 0), (2**31 - 1, 0, 2**31 - 1), (2**31 - 3, 5, 2)],
)
def test_sequence_numbers_wrap_to_zero(sequence: int, delta: int, after: int) -> None:
    assert sequence_after(sequence, delta) == after


def test_records_are_decoded_lazily() -> None:
    data = batch_of(3)
    data[-1] = 0x7F  # the header count of the last record
    records = iter(read_batch(data))
    assert next(records).offset == 0
    assert next(records).offset == 1


def test_an_unknown_codec_is_corrupt_when_it_is_asked_for() -> None:
    for codec in (5, 6, 7):
        data = batch_of(3)
        data[22] |= codec
        batch = read_batch(resealed(data))
        batch.ensure_valid()
        with pytest.raises(CorruptBatch, match="codec"):
            _ = batch.compression
        with pytest.raises(CorruptBatch, match="codec"):
            list(batch)


def test_formats_may_be_mixed_in_one_buffer() -> None:
    messages = [Message(NOW_MS, b"k", b"v")] * 2
    data = (
        build_message_set(0, messages)
        + build_message_set(1, messages, base_offset=2, codec=Codec.GZIP)
        + batch_of(2, base_offset=4)
    )
    found = list(batches(data))
    assert [batch.magic for batch in found] == [0, 0, 1, 2]
    assert [batch.last_offset for batch in found] == [0, 1, 3, 5]
    assert [record.offset for batch in found for record in batch] == [0, 1, 2, 3, 4, 5]
