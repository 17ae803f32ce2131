"""Old formats in and out, checked by what kafka-python and aiokafka make of them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder as AiokafkaLegacyBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords
from kafka.record.memory_records import MemoryRecordsBuilder as KafkaPythonBuilder

from dohle.core.errors import ErrorCode, KafkaError
from dohle.records.batch import Batch, RecordBatch, batches, read_batch
from dohle.records.builder import BatchBuilder
from dohle.records.checking.validation import RecordErrors, ValidationRules
from dohle.records.compression.codecs import Codec, compress
from dohle.records.control import build_txn_marker
from dohle.records.record import Record, TimestampType
from tests.records.checking.in_one_go import down_convert, to_v2, validate_batch
from tests.records.message_sets import Message, build_message_set

NOW_MS = 1_700_000_000_000
LEGACY_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
OldRecord = tuple[int, int, bytes | None, bytes | None]

payloads = st.none() | st.binary(max_size=100)
message_lists = st.lists(
    st.builds(Message, st.integers(0, 2**62), payloads, payloads), min_size=1, max_size=20
)


def view(data: bytes | bytearray) -> RecordBatch:
    batch = read_batch(data)
    assert isinstance(batch, RecordBatch)
    assert batch.size == len(data)
    batch.ensure_valid()
    return batch


def aiokafka_reads(data: bytes) -> list[OldRecord]:
    return list(others_read(AiokafkaRecords(data)))


def kafka_python_reads(data: bytes) -> list[OldRecord]:
    return list(others_read(KafkaPythonRecords(data)))


def others_read(records: Any) -> Iterator[OldRecord]:
    while records.has_next():
        batch = records.next_batch()
        assert batch.validate_crc()
        for record in batch:
            timestamp = -1 if record.timestamp is None else record.timestamp
            yield record.offset, timestamp, record.key, record.value


# Up


@given(
    messages=message_lists,
    magic=st.sampled_from([0, 1]),
    source=st.sampled_from(LEGACY_CODECS),
    target=st.none() | st.sampled_from(Codec),
    base_offset=st.sampled_from([0, 5]),
)
def test_an_old_message_set_becomes_one_batch_with_offsets_from_zero(
    messages: list[Message], magic: int, source: Codec, target: Codec | None, base_offset: int
) -> None:
    old = build_message_set(magic, messages, codec=source, base_offset=base_offset)
    batch = view(to_v2(old, codec=target))
    expected = [
        Record(offset, message.timestamp if magic else -1, message.key, message.value)
        for offset, message in enumerate(messages)
    ]
    assert list(batch) == expected
    assert batch.base_offset == 0
    assert batch.record_count == len(messages)
    assert batch.compression is (source if target is None else target)
    assert batch.max_timestamp == max(record.timestamp for record in expected)
    assert batch.producer_id == -1
    rules = ValidationRules(codec=target, timestamp_after_max_ms=2**63)
    assert validate_batch(batch, rules, NOW_MS) is batch


def kafka_python_writes(magic: int, codec: Codec, records: list[OldRecord]) -> bytes:
    builder = KafkaPythonBuilder(magic, codec, 1 << 20)
    for _, timestamp, key, value in records:
        builder.append(timestamp, key, value, [])
    builder.close()
    return bytes(builder.buffer())


def aiokafka_writes(magic: int, codec: Codec, records: list[OldRecord]) -> bytes:
    builder = AiokafkaLegacyBuilder(magic, codec, 1 << 20)
    for offset, timestamp, key, value in records:
        assert builder.append(offset, timestamp, key, value)
    return bytes(builder.build())


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(
    ("write", "codec"),
    [
        (kafka_python_writes, Codec.NONE),
        (kafka_python_writes, Codec.GZIP),
        (kafka_python_writes, Codec.SNAPPY),
        (kafka_python_writes, Codec.LZ4),
        (aiokafka_writes, Codec.NONE),
        (aiokafka_writes, Codec.GZIP),
        (aiokafka_writes, Codec.SNAPPY),
    ],
)
def test_what_old_clients_send_is_converted(
    write: Callable[[int, Codec, list[OldRecord]], bytes], codec: Codec, magic: int
) -> None:
    sent: list[OldRecord] = [
        (offset, NOW_MS + offset, b"key %d" % offset, b"value" * offset) for offset in range(30)
    ]
    batch = view(to_v2(write(magic, codec, sent)))
    assert [(record.offset, record.key, record.value) for record in batch] == [
        (offset, key, value) for offset, _, key, value in sent
    ]
    assert [record.timestamp for record in batch] == [
        timestamp if magic else -1 for _, timestamp, _, _ in sent
    ]


def test_an_incomplete_last_message_is_left_out() -> None:
    old = build_message_set(1, [Message(NOW_MS, b"k", b"v")] * 2)
    assert view(to_v2(old[:-1])).record_count == 1


def entry(magic: int, attributes: int, value: bytes, timestamp: int = NOW_MS) -> bytes:
    body = bytes((magic, attributes))
    body += struct.pack(">q", timestamp) if magic else b""
    body += struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


def wrapped(inner: bytes) -> bytes:
    return entry(1, Codec.GZIP, compress(Codec.GZIP, inner))


PLAIN = entry(1, 0, b"v")
DAMAGED = PLAIN[:-1] + b"x"


@pytest.mark.parametrize(
    ("old", "code"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (PLAIN[:-1], ErrorCode.INVALID_RECORD),
        (PLAIN + entry(0, 0, b"v"), ErrorCode.INVALID_RECORD),
        (DAMAGED, ErrorCode.CORRUPT_MESSAGE),
        (wrapped(DAMAGED), ErrorCode.CORRUPT_MESSAGE),
        (wrapped(PLAIN) + PLAIN, ErrorCode.INVALID_RECORD),
        (wrapped(PLAIN) * 2, ErrorCode.INVALID_RECORD),
        (wrapped(b""), ErrorCode.INVALID_RECORD),
        (entry(1, Codec.ZSTD, compress(Codec.ZSTD, PLAIN)), ErrorCode.INVALID_RECORD),
        (entry(1, 0, b"v", timestamp=-2), ErrorCode.INVALID_RECORD),
    ],
)
def test_what_no_old_producer_may_send_is_refused(old: bytes, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        to_v2(old)
    assert refused.value.code is code


def test_a_message_of_another_format_or_compressed_inside_a_set_is_named() -> None:
    with pytest.raises(RecordErrors) as refused:
        to_v2(wrapped(PLAIN + entry(0, 0, b"v") + wrapped(PLAIN)))
    assert refused.value.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in refused.value.record_errors] == [1, 2]


@pytest.mark.parametrize("by_topic", [False, True])
def test_an_old_producer_does_not_set_the_time_of_the_append_either(by_topic: bool) -> None:
    """As in a batch: refused where the topic sets the time, else a time like any other."""
    old = build_message_set(
        1,
        [Message(NOW_MS, None, b"v")] * 3,
        codec=Codec.GZIP,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        log_append_time=NOW_MS,
    )
    rules = ValidationRules(log_append_time=by_topic)
    if not by_topic:
        batch = view(to_v2(old, rules=rules, now_ms=NOW_MS))
        assert [record.timestamp for record in batch.records()] == [NOW_MS] * 3
        return
    with pytest.raises(RecordErrors) as refused:
        to_v2(old, rules=rules, now_ms=NOW_MS)
    assert refused.value.code is ErrorCode.INVALID_TIMESTAMP
    assert len(refused.value.record_errors) == 3


WITHOUT_KEY = Message(NOW_MS, None, b"v")
TOO_LATE = Message(NOW_MS + 1_000, b"k", b"v")
COMPACTED = ValidationRules(compacted=True, timestamp_after_max_ms=10)


@pytest.mark.parametrize(
    ("messages", "code"),
    [
        ([WITHOUT_KEY, TOO_LATE], ErrorCode.INVALID_RECORD),
        ([TOO_LATE, WITHOUT_KEY], ErrorCode.INVALID_TIMESTAMP),
        ([Message(NOW_MS, b"k", b"v"), TOO_LATE, WITHOUT_KEY], ErrorCode.INVALID_TIMESTAMP),
    ],
)
def test_the_first_bad_message_of_a_set_decides_the_error(
    messages: list[Message], code: ErrorCode
) -> None:
    """Each message that is not compressed counts as a batch of its own."""
    with pytest.raises(RecordErrors) as refused:
        to_v2(build_message_set(1, messages), rules=COMPACTED, now_ms=NOW_MS)
    assert refused.value.code is code
    assert [index for index, _ in refused.value.record_errors] == [0]


def test_one_wrong_time_in_a_compressed_set_decides_the_error() -> None:
    old = build_message_set(1, [WITHOUT_KEY, TOO_LATE], codec=Codec.GZIP)
    with pytest.raises(RecordErrors) as refused:
        to_v2(old, rules=COMPACTED, now_ms=NOW_MS)
    assert refused.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in refused.value.record_errors] == [0, 1]


def test_checksums_of_all_messages_come_before_the_rules_for_any() -> None:
    good = build_message_set(1, [WITHOUT_KEY])
    damaged = bytearray(good)
    damaged[-1] ^= 1
    with pytest.raises(KafkaError) as refused:
        to_v2(good + damaged, rules=COMPACTED, now_ms=NOW_MS)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(KafkaError) as refused:
        to_v2(good + build_message_set(0, [WITHOUT_KEY]), rules=COMPACTED, now_ms=NOW_MS)
    assert "without key" in str(refused.value)


# Down


def log_batch(
    base_offset: int,
    offsets: list[int],
    codec: Codec = Codec.NONE,
    log_append_time: int | None = None,
) -> bytes:
    builder = BatchBuilder(
        base_offset=base_offset,
        codec=codec,
        log_append_time=log_append_time,
        producer_id=9,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    for offset in offsets:
        builder.append(
            NOW_MS + offset, b"key %d" % offset, b"v" * offset, (("h", b"x"),), offset=offset
        )
    return bytes(builder.build())


def old_records(offsets: list[int], magic: int) -> list[OldRecord]:
    return [
        (offset, NOW_MS + offset if magic else -1, b"key %d" % offset, b"v" * offset)
        for offset in offsets
    ]


CLIENTS = [
    *((aiokafka_reads, 1, codec) for codec in LEGACY_CODECS),
    # It refuses lz4 in format 0.
    *((aiokafka_reads, 0, codec) for codec in LEGACY_CODECS if codec is not Codec.LZ4),
    *((kafka_python_reads, magic, codec) for magic in (0, 1) for codec in LEGACY_CODECS),
]


@pytest.mark.parametrize(("read", "magic", "codec"), CLIENTS)
def test_old_clients_read_what_was_converted_with_its_offsets(
    read: Callable[[bytes], list[OldRecord]], magic: int, codec: Codec
) -> None:
    data = (
        log_batch(100, [100, 101, 104], codec)  # with a gap, as after compaction
        + build_txn_marker(True, 9, 0, 0, NOW_MS, base_offset=105)
        + log_batch(106, [107, 110], codec)
    )
    converted = down_convert(data, magic, first_offset=100)
    assert {batch.magic for batch in batches(converted)} == {magic}
    assert {batch.compression for batch in batches(converted)} == {codec}
    assert read(converted) == old_records([100, 101, 104, 107, 110], magic)


@pytest.mark.parametrize("codec", LEGACY_CODECS)
def test_plain_records_before_the_asked_offset_are_left_out(codec: Codec) -> None:
    data = log_batch(10, [10, 11, 12], codec)
    found = [r.offset for batch in batches(down_convert(data, 1, first_offset=12)) for r in batch]
    assert found == ([12] if codec is Codec.NONE else [10, 11, 12])


def test_the_time_of_the_append_stays_one() -> None:
    converted = down_convert(log_batch(0, [0, 1], log_append_time=NOW_MS + 99), 1, first_offset=0)
    found: list[Batch] = list(batches(converted))
    assert [batch.timestamp_type for batch in found] == [TimestampType.LOG_APPEND_TIME] * 2
    assert [record.timestamp for batch in found for record in batch] == [NOW_MS + 99] * 2


def test_what_is_old_already_is_kept_byte_for_byte() -> None:
    old = build_message_set(0, [Message(-1, b"k", b"v")] * 2, codec=Codec.GZIP, base_offset=3)
    assert down_convert(old, 0, first_offset=4) == down_convert(old, 1, first_offset=4) == old
    newer = build_message_set(1, [Message(NOW_MS, b"k", b"v")] * 2, base_offset=3)
    assert aiokafka_reads(down_convert(newer, 0, first_offset=3)) == [
        (3, -1, b"k", b"v"),
        (4, -1, b"k", b"v"),
    ]


def test_at_least_one_batch_is_converted_and_then_as_many_as_fit() -> None:
    data = b"".join(log_batch(offset, [offset]) for offset in range(10))
    whole = down_convert(data, 1, first_offset=0)
    sizes = [batch.size for batch in batches(whole)]
    assert down_convert(data, 1, first_offset=0, max_bytes=1) == whole[: sizes[0]]
    limit = sum(sizes[:4]) + 1
    assert down_convert(data, 1, first_offset=0, max_bytes=limit) == whole[: sum(sizes[:4])]
    assert down_convert(data, 1, first_offset=0, max_bytes=len(whole)) == whole


def test_only_markers_convert_to_nothing() -> None:
    marker = build_txn_marker(False, 9, 0, 0, NOW_MS, base_offset=7)
    assert down_convert(marker, 1, first_offset=7) == b""


def test_zstd_is_refused_when_it_comes_first_and_ends_the_answer_otherwise() -> None:
    plain, packed = log_batch(0, [0]), log_batch(1, [1], Codec.ZSTD)
    assert down_convert(plain + packed, 1, first_offset=0) == down_convert(plain, 1, first_offset=0)
    with pytest.raises(KafkaError) as refused:
        down_convert(packed + plain, 1, first_offset=0)
    assert refused.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@given(
    messages=message_lists,
    magic=st.sampled_from([0, 1]),
    codec=st.sampled_from(LEGACY_CODECS),
    base_offset=st.integers(1, 2**40),
)
def test_up_and_down_again_gives_the_same_messages(
    messages: list[Message], magic: int, codec: Codec, base_offset: int
) -> None:
    batch = to_v2(build_message_set(magic, messages, codec=codec))
    struct.pack_into(">q", batch, 0, base_offset)
    converted = down_convert(batch, magic, first_offset=base_offset)
    expected = build_message_set(magic, messages, codec=codec, base_offset=base_offset)
    assert [list(found) for found in batches(converted)] == [
        list(found) for found in batches(expected)
    ]
    if codec is Codec.NONE:
        assert converted == expected
