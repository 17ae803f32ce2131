"""What is built can be read back: every codec, every shape of record."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dohle.core.errors import ErrorCode, KafkaError
from dohle.records.batch import Batch, RecordBatch, read_batch
from dohle.records.builder import BatchBuilder, build_empty_batch
from dohle.records.compression.codecs import Codec
from dohle.records.errors import InvalidRecord
from dohle.records.record import Record, TimestampType

NOW_MS = 1_700_000_000_000

payloads = st.none() | st.binary(max_size=300)
header_lists = st.lists(st.tuples(st.text(max_size=20), payloads), max_size=4).map(tuple)
timestamps = st.integers(-1, 2**63 - 1) | st.integers(NOW_MS - 1000, NOW_MS + 1000)
record_lists = st.lists(
    st.tuples(timestamps, payloads, payloads, header_lists, st.integers(0, 200)), min_size=1
)


def read(batch: bytearray | bytes) -> RecordBatch:
    view = read_batch(batch)
    assert isinstance(view, RecordBatch)
    view.ensure_valid()
    assert view.size == len(batch)
    return view


def batch_with(codec: Codec, values: list[bytes]) -> bytearray:
    builder = BatchBuilder(codec=codec)
    for value in values:
        builder.append(NOW_MS, None, value)
    return builder.build()


@given(records=record_lists, codec=st.sampled_from(Codec), base_offset=st.integers(0, 2**60))
def test_what_is_built_is_read_back(
    records: list[
        tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]
    ],
    codec: Codec,
    base_offset: int,
) -> None:
    builder = BatchBuilder(base_offset=base_offset, codec=codec)
    expected = []
    offset = base_offset
    for timestamp, key, value, headers, gap in records:
        offset += gap
        assert builder.append(timestamp, key, value, headers, offset=offset) == offset
        expected.append(Record(offset, timestamp, key, value, headers))
        offset += 1
    batch = read(builder.build())
    assert list(batch) == expected
    assert batch.record_count == len(records)
    assert batch.base_offset == base_offset
    assert batch.last_offset == builder.last_offset == expected[-1].offset
    assert batch.next_offset == batch.last_offset + 1
    assert batch.base_timestamp == expected[0].timestamp
    assert batch.max_timestamp == max(record.timestamp for record in expected)
    assert batch.compression is codec
    assert batch.timestamp_type is TimestampType.CREATE_TIME


long_payloads = payloads | st.integers(900, 1100).map(bytes)


@given(
    groups=st.lists(st.tuples(timestamps, st.lists(st.tuples(long_payloads, long_payloads)))),
    base_offset=st.integers(0, 2**60),
)
def test_records_added_at_once_are_those_added_one_by_one(
    groups: list[tuple[int, list[tuple[bytes | None, bytes | None]]]], base_offset: int
) -> None:
    at_once, one_by_one = (
        BatchBuilder(base_offset=base_offset),
        BatchBuilder(base_offset=base_offset),
    )
    for timestamp, records in groups:
        at_once.append_all(timestamp, records)
        for key, value in records:
            one_by_one.append(timestamp, key, value)
    assert at_once.size == one_by_one.size
    assert at_once.last_offset == one_by_one.last_offset
    assert at_once.max_timestamp == one_by_one.max_timestamp
    if one_by_one.record_count:
        assert at_once.build() == one_by_one.build()


def test_many_short_records_are_added_at_once() -> None:
    at_once, one_by_one = BatchBuilder(), BatchBuilder()
    at_once.append_all(NOW_MS, [(b"key", b"value")] * 3000)
    for _ in range(3000):
        one_by_one.append(NOW_MS, b"key", b"value")
    assert at_once.build() == one_by_one.build()


def test_records_at_once_are_refused_as_one_is() -> None:
    with pytest.raises(InvalidRecord, match="not a timestamp"):
        BatchBuilder().append_all(-2, [(b"", b"")])
    full = BatchBuilder()
    full.append(NOW_MS, None, b"", offset=2**31 - 2)
    with pytest.raises(InvalidRecord, match="do not fit"):
        full.append_all(NOW_MS, [(None, b"")] * 2)
    full.append_all(NOW_MS, [(None, b"")])
    assert full.last_offset == 2**31 - 1


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("compressible", [True, False])
def test_a_megabyte_is_read_back(codec: Codec, compressible: bool) -> None:
    rng = random.Random(7)
    value = bytes(1 << 20) if compressible else rng.randbytes(1 << 20)
    built = batch_with(codec, [value, b"small", value[:70_000]])
    assert [record.value for record in read(built)] == [value, b"small", value[:70_000]]
    if compressible and codec is not Codec.NONE:
        assert len(built) < 200_000


@pytest.mark.parametrize(
    ("codec", "levels"),
    [(Codec.GZIP, (1, 9)), (Codec.LZ4, (1, 9, 17)), (Codec.ZSTD, (-5, 1, 22))],
)
def test_every_compression_level_gives_readable_batches(
    codec: Codec, levels: tuple[int, ...]
) -> None:
    value = b"".join(b"line %d of many\n" % i for i in range(10_000))
    for level in levels:
        builder = BatchBuilder(codec=codec, level=level)
        builder.append(NOW_MS, None, value)
        assert next(iter(read(builder.build()))).value == value


def test_a_batch_without_compression_has_the_bytes_that_kafka_writes() -> None:
    builder = BatchBuilder(base_offset=5, partition_leader_epoch=3)
    builder.append(NOW_MS, b"k", b"value", (("h", b"x"), ("n", None)))
    builder.append(NOW_MS - 100, None, None)
    first = b"\x00\x00\x00\x02k\x0avalue\x04\x02h\x02x\x02n\x01"
    second = b"\x00\xc7\x01\x02\x01\x01\x00"
    records = bytes((2 * len(first),)) + first + bytes((2 * len(second),)) + second
    header = struct.pack(
        ">qiibIhiqqqhii", 5, 49 + len(records), 3, 2, 0, 0, 1, NOW_MS, NOW_MS, -1, -1, -1, 2
    )
    built = builder.build()
    assert built[:17] == header[:17]
    assert built[21:] == header[21:] + records
    read(built)


def test_producer_fields_and_flags_are_in_the_header() -> None:
    builder = BatchBuilder(codec=Codec.LZ4, is_transactional=True)
    builder.append(NOW_MS, b"k", b"v")
    builder.append(NOW_MS, b"k", b"v")
    builder.producer_id, builder.producer_epoch, builder.base_sequence = 4711, 3, 2**31 - 1
    batch = read(builder.build())
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (4711, 3, 2**31 - 1)
    assert batch.last_sequence == 0
    assert batch.is_transactional
    assert not batch.is_control
    assert batch.partition_leader_epoch == -1
    builder.base_sequence = 10
    assert read(builder.build()).last_sequence == 11


def test_log_append_time_is_the_time_of_every_record() -> None:
    builder = BatchBuilder(log_append_time=NOW_MS + 5)
    builder.append(NOW_MS, b"k", b"v")
    builder.append(NOW_MS + 50, b"k", b"v")
    batch = read(builder.build())
    assert builder.timestamp_type is batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert batch.max_timestamp == NOW_MS + 5
    assert [record.timestamp for record in batch] == [NOW_MS + 5, NOW_MS + 5]


def test_a_delete_horizon_takes_the_place_of_the_base_timestamp() -> None:
    builder = BatchBuilder(delete_horizon_ms=NOW_MS + 86_400_000)
    builder.append(NOW_MS, b"k", None)
    batch = read(builder.build())
    assert batch.delete_horizon_ms == batch.base_timestamp == NOW_MS + 86_400_000
    assert batch.max_timestamp == NOW_MS
    assert [record.timestamp for record in batch] == [NOW_MS]


@given(last_offset=st.integers(100, 200), sequence=st.integers(0, 2**31 - 1))
def test_an_empty_batch_keeps_offsets_and_sequence(last_offset: int, sequence: int) -> None:
    built = build_empty_batch(
        base_offset=100,
        last_offset=last_offset,
        max_timestamp=NOW_MS,
        partition_leader_epoch=7,
        producer_id=1,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=True,
    )
    batch = read(built)
    assert len(built) == 61
    assert list(batch) == []
    assert (batch.base_offset, batch.last_offset, batch.record_count) == (100, last_offset, 0)
    assert batch.last_sequence == (sequence + last_offset - 100) % 2**31
    assert (batch.base_timestamp, batch.max_timestamp) == (-1, NOW_MS)
    assert batch.is_transactional
    assert batch.delete_horizon_ms is None


@given(key=payloads, value=payloads, headers=header_lists, timestamp=st.integers(-1, 2**63 - 1))
def test_the_size_is_known_before_it_is_built(
    key: bytes | None,
    value: bytes | None,
    headers: tuple[tuple[str, bytes | None], ...],
    timestamp: int,
) -> None:
    builder = BatchBuilder()
    builder.append(-1, None, None, offset=0)
    builder.append(timestamp, key, value, headers, offset=2**31 - 1)
    assert builder.size == len(builder.build())


@given(name=st.text(alphabet=st.characters(codec="utf-8"), max_size=50))
def test_header_names_keep_any_unicode(name: str) -> None:
    builder = BatchBuilder()
    builder.append(0, None, None, ((name, None), (name, b"")))
    assert next(iter(read(builder.build()))).headers == ((name, None), (name, b""))


def test_a_lone_surrogate_in_a_header_name_becomes_a_question_mark() -> None:
    builder = BatchBuilder()
    builder.append(0, None, None, (("a\ud800b", b"x"),))
    assert next(iter(read(builder.build()))).headers == (("a?b", b"x"),)


@pytest.mark.parametrize("timestamp", [-2, 2**63, -(2**63)])
def test_a_timestamp_out_of_range_is_refused(timestamp: int) -> None:
    with pytest.raises(InvalidRecord):
        BatchBuilder().append(timestamp, None, None)


@pytest.mark.parametrize("offset", [9, 10, 10 + 2**31])
def test_an_offset_that_does_not_rise_or_is_too_far_is_refused(offset: int) -> None:
    builder = BatchBuilder(base_offset=10)
    builder.append(0, None, None)
    with pytest.raises(InvalidRecord):
        builder.append(0, None, None, offset=offset)


def test_an_incomplete_producer_is_refused() -> None:
    for builder in (
        BatchBuilder(is_transactional=True),
        BatchBuilder(producer_id=1),
        BatchBuilder(producer_id=1, producer_epoch=0),
    ):
        builder.append(0, None, None)
        with pytest.raises(ValueError):
            builder.build()


def test_a_batch_without_records_is_not_built_by_the_builder() -> None:
    for builder in (BatchBuilder(), BatchBuilder(delete_horizon_ms=NOW_MS)):
        with pytest.raises(ValueError, match="build_empty_batch"):
            builder.build()


def test_a_refused_record_leaves_no_trace() -> None:
    builder = BatchBuilder()
    with pytest.raises(InvalidRecord):
        builder.append(-5, b"k", b"v")
    builder.append(NOW_MS, b"k", b"v")
    assert list(read(builder.build())) == [Record(0, NOW_MS, b"k", b"v")]


def test_a_batch_may_stand_for_offsets_after_its_last_record() -> None:
    builder = BatchBuilder(base_offset=10, producer_id=1, producer_epoch=0, base_sequence=5)
    builder.append(NOW_MS, b"k", b"v", offset=12)
    builder.override_last_offset(19)
    batch = read(builder.build())
    assert [record.offset for record in batch] == [12]
    assert (batch.last_offset, batch.last_sequence, batch.record_count) == (19, 14, 1)
    for last_offset in (18, 10 + 2**31):
        with pytest.raises(InvalidRecord):
            builder.override_last_offset(last_offset)


def test_a_field_that_does_not_fit_is_a_kafka_error() -> None:
    builder = BatchBuilder(producer_id=1, producer_epoch=2**15, base_sequence=0)
    builder.append(0, None, None)
    with pytest.raises(KafkaError) as refused:
        builder.build()
    assert refused.value.code is ErrorCode.INVALID_RECORD


@settings(max_examples=25)
@given(codec=st.sampled_from(Codec), sizes=st.lists(st.integers(0, 200_000), max_size=4))
def test_block_boundaries_do_not_show(codec: Codec, sizes: list[int]) -> None:
    rng = random.Random(len(sizes))
    values = [rng.randbytes(97) * (size // 97 + 1) for size in sizes] or [b""]
    batch: Batch = read(batch_with(codec, values))
    assert [record.value for record in batch] == values
