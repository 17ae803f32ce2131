"""What a leader refuses, puts right and lets through."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.core.errors import ErrorCode, KafkaError
from dohle.records.batch import HEADER_SIZE, LOG_APPEND_TIME_FLAG, RecordBatch
from dohle.records.builder import BatchBuilder
from dohle.records.checking.validation import (
    RecordErrors,
    ValidationRules,
    produced_batch,
)
from dohle.records.compression.codecs import Codec, compress
from dohle.records.control import build_txn_marker
from dohle.records.record import Header, Record, TimestampType, decode_records
from tests.records.checking.in_one_go import validate_batch
from tests.records.message_sets import Message, build_message_set

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
RULES = ValidationRules()


def batch_of(*records: tuple[int, bytes | None, bytes | None], codec: Codec = Codec.NONE) -> bytes:
    builder = BatchBuilder(codec=codec)
    for timestamp, key, value in records:
        builder.append(timestamp, key, value)
    return bytes(builder.build())


def writable(data: bytes) -> RecordBatch:
    return RecordBatch(memoryview(bytearray(data)))


def reseal(data: bytearray) -> bytes:
    """Give a batch that was changed by hand the right checksum."""
    data[17:21] = crc32c.crc32c(memoryview(data)[21:]).to_bytes(4, "big")
    return bytes(data)


def with_offset_deltas(deltas: list[int], codec: Codec) -> bytes:
    """A batch of keyed records whose offset deltas are wrong: each takes one byte."""
    body = b"".join(bytes((20, 0, 0, delta * 2, 2)) + b"k\x06val\x00" for delta in deltas)
    sound = bytearray(batch_of(*[(NOW_MS, b"k", b"val")] * len(deltas)))
    data = bytearray(sound[:HEADER_SIZE] + compress(codec, body))
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">h", data, 21, codec)
    return reseal(data)


PLAIN = [(NOW_MS, b"a", b"1"), (NOW_MS + 5, b"b", None), (NOW_MS + 2, None, b"3")]


@pytest.mark.parametrize("codec", Codec)
def test_a_sound_batch_is_taken_as_it_is(codec: Codec) -> None:
    data = batch_of(*PLAIN, codec=codec)
    batch = writable(data)
    assert validate_batch(batch, RULES, NOW_MS) is batch
    assert batch.buffer == data


@pytest.mark.parametrize("codec", Codec)
def test_keyless_records_are_refused_in_a_compacted_topic_each_by_its_index(codec: Codec) -> None:
    batch = writable(
        batch_of((NOW_MS, None, b"x"), (NOW_MS, b"k", b"x"), (NOW_MS, None, b"x"), codec=codec)
    )
    with pytest.raises(RecordErrors) as refused:
        validate_batch(batch, ValidationRules(compacted=True), NOW_MS)
    assert refused.value.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in refused.value.record_errors] == [0, 2]
    text = "Compacted topic cannot accept message without key in topic partition records-3."
    assert {text for _, text in refused.value.record_errors} == {text}


@pytest.mark.parametrize("codec", Codec)
def test_timestamps_too_far_ahead_are_refused(codec: Codec) -> None:
    late = NOW_MS + HOUR_MS
    batch = writable(batch_of((late, b"k", b"x"), (late + 1, b"k", b"x"), codec=codec))
    with pytest.raises(RecordErrors) as refused:
        validate_batch(batch, RULES, NOW_MS)
    assert refused.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in refused.value.record_errors] == [1]
    assert str(late + 1) in refused.value.record_errors[0][1]


def test_timestamps_too_far_back_are_refused_unless_there_is_none() -> None:
    rules = ValidationRules(timestamp_before_max_ms=1000)
    batch = writable(batch_of((-1, b"k", b"x"), (NOW_MS - 1000, b"k", b"x")))
    assert validate_batch(batch, rules, NOW_MS) is batch
    batch = writable(batch_of((-1, b"k", b"x"), (NOW_MS - 1001, b"k", b"x")))
    with pytest.raises(RecordErrors) as refused:
        validate_batch(batch, rules, NOW_MS)
    assert [index for index, _ in refused.value.record_errors] == [1]


def test_one_wrong_timestamp_decides_the_code_and_a_missing_key_comes_before_it() -> None:
    batch = writable(batch_of((0, None, b"x"), (0, b"k", b"x"), (NOW_MS, None, b"x")))
    rules = ValidationRules(compacted=True, timestamp_before_max_ms=1000)
    with pytest.raises(RecordErrors) as refused:
        validate_batch(batch, rules, NOW_MS)
    assert refused.value.code is ErrorCode.INVALID_TIMESTAMP
    texts = dict(refused.value.record_errors)
    assert list(texts) == [0, 1, 2]
    assert "key" in texts[0]
    assert "timestamp" in texts[1]
    assert "key" in texts[2]


def test_a_thousand_errors_are_listed_and_a_later_one_still_decides_the_code() -> None:
    rules = ValidationRules(compacted=True)
    keyless = [(NOW_MS, None, b"x")] * 1_200
    with pytest.raises(RecordErrors) as refused:
        validate_batch(writable(batch_of(*keyless)), rules, NOW_MS)
    assert refused.value.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in refused.value.record_errors] == list(range(1_000))
    assert "1000 or more" in refused.value.args[0]
    too_late = (NOW_MS + 2 * HOUR_MS, b"k", b"x")
    with pytest.raises(RecordErrors) as refused:
        validate_batch(writable(batch_of(*keyless, too_late)), rules, NOW_MS)
    assert refused.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in refused.value.record_errors] == list(range(1_000))
    assert all("key" in text for _, text in refused.value.record_errors)


def test_timestamps_do_not_matter_where_the_broker_sets_them() -> None:
    batch = writable(batch_of((NOW_MS + 2 * HOUR_MS, b"k", b"x")))
    rules = ValidationRules(log_append_time=True, timestamp_before_max_ms=0)
    assert validate_batch(batch, rules, NOW_MS) is batch


def stamped(timestamp: int, codec: Codec = Codec.NONE) -> RecordBatch:
    """A batch of two records whose header claims that the broker has set their timestamps."""
    builder = BatchBuilder(codec=codec, log_append_time=timestamp)
    builder.append(NOW_MS - 5, b"k", b"v")
    builder.append(NOW_MS - 3, b"k", b"v")
    return RecordBatch(memoryview(builder.build()))


@pytest.mark.parametrize(
    ("log_append_time", "timestamp"),
    [(True, NOW_MS), (True, -1), (False, -1), (False, NOW_MS + 2 * HOUR_MS)],
)
def test_a_producer_does_not_set_the_time_of_the_append(
    log_append_time: bool, timestamp: int
) -> None:
    rules = ValidationRules(log_append_time=log_append_time)
    with pytest.raises(RecordErrors) as refused:
        validate_batch(stamped(timestamp), rules, NOW_MS)
    assert refused.value.code is ErrorCode.INVALID_TIMESTAMP
    assert len(refused.value.record_errors) == 2


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_claim_of_append_time_is_taken_for_create_time(codec: Codec) -> None:
    valid = validate_batch(stamped(NOW_MS, codec), RULES, NOW_MS)
    valid.ensure_valid()
    assert valid.timestamp_type is TimestampType.CREATE_TIME
    assert valid.max_timestamp == NOW_MS
    assert [record.timestamp for record in valid] == [NOW_MS - 5, NOW_MS - 3]
    rules = ValidationRules(codec=Codec.GZIP)
    rebuilt = validate_batch(stamped(NOW_MS, codec), rules, NOW_MS)
    assert rebuilt.timestamp_type is TimestampType.CREATE_TIME
    assert [record.timestamp for record in rebuilt] == [NOW_MS, NOW_MS]


@pytest.mark.parametrize("as_view", [bytearray, bytes])
def test_a_wrong_largest_timestamp_is_put_right(as_view: Callable[[bytes], bytearray]) -> None:
    data = bytearray(batch_of(*PLAIN))
    struct.pack_into(">q", data, 35, NOW_MS - 77)
    batch = RecordBatch(memoryview(as_view(reseal(data))))
    valid = validate_batch(batch, RULES, NOW_MS)
    assert valid.max_timestamp == NOW_MS + 5
    valid.ensure_valid()
    assert valid.buffer == batch_of(*PLAIN)


@pytest.mark.parametrize("codec", Codec)
def test_wrong_offsets_inside_are_counted_anew(codec: Codec) -> None:
    for deltas in ([0, 0, 0], [3, 4, 5], [2, 1, 0]):
        valid = validate_batch(writable(with_offset_deltas(deltas, codec)), RULES, NOW_MS)
        valid.ensure_valid()
        assert [record.offset for record in valid] == [0, 1, 2]
        assert valid.compression is codec


def large(count: int) -> bytes:
    """A batch whose records are looked at where they are, without a copy."""
    return batch_of(*[(NOW_MS, None if i == 7 else b"k", b"v" * 1000) for i in range(count)])


@pytest.mark.parametrize("readonly", [False, True])
def test_large_records_are_taken_as_they_are(readonly: bool) -> None:
    data = large(100)
    batch = RecordBatch(memoryview(data)) if readonly else writable(data)
    assert validate_batch(batch, RULES, NOW_MS) is batch
    assert batch.buffer == data


def test_large_records_are_refused_and_rewritten_like_small_ones() -> None:
    data = large(100)
    with pytest.raises(RecordErrors) as refused:
        validate_batch(writable(data), ValidationRules(compacted=True), NOW_MS)
    assert [index for index, _ in refused.value.record_errors] == [7]
    valid = validate_batch(writable(data), ValidationRules(codec=Codec.LZ4), NOW_MS)
    valid.ensure_valid()
    assert valid.compression is Codec.LZ4
    assert list(valid) == list(writable(data))


def test_a_buffer_can_be_resized_once_its_batch_is_validated() -> None:
    buffer = bytearray(large(100))
    with memoryview(buffer) as view:
        batch = RecordBatch(view)
        validate_batch(batch, RULES, NOW_MS)
        batch.buffer.release()
    buffer.clear()


@pytest.mark.parametrize("count", [1, 2, 4, 10])
def test_a_number_of_records_other_than_the_header_says_is_refused(count: int) -> None:
    data = bytearray(batch_of(*PLAIN))
    struct.pack_into(">i", data, 23, count - 1)
    struct.pack_into(">i", data, 57, count)
    with pytest.raises(KafkaError) as refused:
        validate_batch(writable(reseal(data)), RULES, NOW_MS)
    assert refused.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.NONE])
def test_another_codec_of_the_topic_is_applied_and_the_rest_is_kept(codec: Codec) -> None:
    builder = BatchBuilder(
        codec=Codec.SNAPPY,
        producer_id=7,
        producer_epoch=3,
        base_sequence=40,
        is_transactional=True,
        partition_leader_epoch=-1,
    )
    headers: tuple[Header, ...] = (("ü", b"x"), ("none", None))
    builder.append(NOW_MS, b"k", b"v" * 500, headers)
    builder.append(NOW_MS - 9, None, None)
    batch = RecordBatch(memoryview(builder.build()))
    valid = validate_batch(batch, ValidationRules(codec=codec, level=5), NOW_MS)
    valid.ensure_valid()
    assert valid.compression is codec
    assert list(valid) == list(batch)
    assert (valid.producer_id, valid.producer_epoch, valid.base_sequence) == (7, 3, 40)
    assert valid.is_transactional
    assert valid.max_timestamp == NOW_MS
    assert valid.record_count == 2
    assert not valid.buffer.readonly


def test_a_batch_that_grows_beyond_the_limit_is_refused() -> None:
    batch = writable(batch_of((NOW_MS, b"k", b"v" * 5000), codec=Codec.GZIP))
    rules = ValidationRules(codec=Codec.NONE, max_message_bytes=4000)
    with pytest.raises(KafkaError) as refused:
        validate_batch(batch, rules, NOW_MS)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_what_decompresses_to_too_much_is_refused() -> None:
    batch = writable(batch_of((NOW_MS, b"k", b"v" * 100_000), codec=Codec.GZIP))
    with pytest.raises(KafkaError) as refused:
        validate_batch(batch, ValidationRules(decompressed_bytes_max=50_000), NOW_MS)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_damage_on_the_way_is_told_apart_from_a_wrong_batch(codec: Codec) -> None:
    data = bytearray(batch_of(*PLAIN, codec=codec))
    del data[HEADER_SIZE + 3]
    struct.pack_into(">i", data, 8, len(data) - 12)
    with pytest.raises(KafkaError) as damaged:
        validate_batch(writable(bytes(data)), RULES, NOW_MS)
    assert damaged.value.code is ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(KafkaError) as wrong:
        validate_batch(writable(reseal(data)), RULES, NOW_MS)
    assert wrong.value.code is ErrorCode.INVALID_RECORD


def test_a_damaged_batch_is_not_given_a_new_checksum() -> None:
    data = bytearray(batch_of((NOW_MS, b"k", b"value")))
    data[-3] ^= 1
    for rules in (ValidationRules(codec=Codec.LZ4), ValidationRules(timestamp_after_max_ms=-1)):
        with pytest.raises(KafkaError) as refused:
            validate_batch(writable(bytes(data)), rules, NOW_MS)
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


def changed(position: int, format: str, value: int) -> bytes:
    data = bytearray(batch_of(*PLAIN))
    struct.pack_into(format, data, position, value)
    return reseal(data)


@pytest.mark.parametrize(
    "data",
    [
        changed(0, ">q", 1),
        changed(57, ">i", 0),
        changed(57, ">i", -1),
        changed(23, ">i", 5),
        changed(43, ">q", 9),
        changed(21, ">h", 5),
        bytes(build_txn_marker(True, 1, 0, 0, NOW_MS)),
    ],
    ids=["offset", "empty", "negative", "delta", "sequence", "codec", "control"],
)
def test_a_header_that_no_client_may_send_is_refused(data: bytes) -> None:
    with pytest.raises(KafkaError) as refused:
        validate_batch(writable(data), RULES, NOW_MS)
    assert refused.value.code is ErrorCode.INVALID_RECORD


def test_a_batch_above_the_limit_is_refused_before_its_records_are_looked_at() -> None:
    batch = writable(batch_of((NOW_MS, None, b"v" * 500)))
    with pytest.raises(KafkaError) as refused:
        validate_batch(batch, ValidationRules(compacted=True, max_message_bytes=500), NOW_MS)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    ("data", "limit", "code"),
    [
        (batch_of((NOW_MS, None, b"v" * 500)), 500, ErrorCode.MESSAGE_TOO_LARGE),
        (changed(0, ">q", 1), 500, ErrorCode.INVALID_RECORD),
        (changed(0, ">q", 1), 50, ErrorCode.INVALID_RECORD),
        (changed(57, ">i", 0), 500, ErrorCode.CORRUPT_MESSAGE),
        (batch_of(*PLAIN), 500, ErrorCode.CORRUPT_MESSAGE),
    ],
    ids=["too large", "offset", "offset of a too large one", "empty", "fine"],
)
def test_damage_is_told_before_all_but_a_wrong_offset_or_size(
    data: bytes, limit: int, code: ErrorCode
) -> None:
    damaged = bytearray(data)
    damaged[-3] ^= 1
    rules = ValidationRules(compacted=True, max_message_bytes=limit)
    with pytest.raises(KafkaError) as refused:
        validate_batch(writable(bytes(damaged)), rules, NOW_MS)
    assert refused.value.code is code


def test_a_producer_that_cannot_be_written_down_anew_is_refused() -> None:
    data = bytearray(batch_of(*PLAIN))
    struct.pack_into(">h", data, 21, 0x10)  # transactional, without a producer id
    with pytest.raises(KafkaError) as refused:
        validate_batch(writable(reseal(data)), ValidationRules(codec=Codec.LZ4), NOW_MS)
    assert refused.value.code is ErrorCode.INVALID_RECORD


# Requests


def test_a_request_holds_one_batch_and_a_cut_tail_is_left_out() -> None:
    data = batch_of(*PLAIN)
    assert produced_batch(data, 9).buffer == data
    assert produced_batch(memoryview(data + data[:40]), 9).buffer == data


@pytest.mark.parametrize(
    "records",
    [
        None,
        b"",
        batch_of(*PLAIN)[:-1],
        batch_of(*PLAIN) * 2,
        build_message_set(1, [Message(NOW_MS, b"k", b"v")]),
    ],
    ids=["null", "empty", "cut", "two", "old"],
)
def test_a_request_without_exactly_one_new_batch_is_refused(records: bytes | None) -> None:
    with pytest.raises(KafkaError) as refused:
        produced_batch(records, 9)
    assert refused.value.code is ErrorCode.INVALID_RECORD


def test_zstd_is_taken_from_version_7_on() -> None:
    data = batch_of(*PLAIN, codec=Codec.ZSTD)
    assert produced_batch(data, 7).compression is Codec.ZSTD
    with pytest.raises(KafkaError) as refused:
        produced_batch(data, 6)
    assert refused.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


# Against the plainest way of doing it


class Outcome(NamedTuple):
    code: ErrorCode
    indexes: tuple[int, ...] = ()
    records: tuple[Record, ...] = ()
    codec: Codec = Codec.NONE
    max_timestamp: int = -1


def slow_reference(batch: RecordBatch, rules: ValidationRules) -> Outcome:
    """Decode everything, then ask every rule of every record."""
    count = batch.record_count
    claims = batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    try:
        data, own = batch.decompressed(), batch.base_timestamp
        claimed = batch.max_timestamp if claims else None
        records = list(decode_records(data, count, 0, own, claimed))
        stored = list(decode_records(data, count, 0, own, None))
    except KafkaError:
        return Outcome(ErrorCode.INVALID_RECORD)
    keyless = [i for i in range(count) if rules.compacted and records[i].key is None]
    mistimed = [
        i
        for i in range(count)
        if i not in keyless
        and (
            claims
            if rules.log_append_time or (timestamp := records[i].timestamp) == -1
            else NOW_MS - timestamp > rules.timestamp_before_max_ms
            or timestamp - NOW_MS > rules.timestamp_after_max_ms
        )
    ]
    if keyless or mistimed:
        code = ErrorCode.INVALID_TIMESTAMP if mistimed else ErrorCode.INVALID_RECORD
        return Outcome(code, tuple(sorted(keyless + mistimed)))
    renumbered = tuple(record._replace(offset=i) for i, record in enumerate(records))
    largest = max([-1, *(record.timestamp for record in records)])
    codec = batch.compression if rules.codec is None else rules.codec
    is_rebuilt = codec is not batch.compression or list(renumbered) != records
    if is_rebuilt and any(record.timestamp < -1 for record in records):
        return Outcome(ErrorCode.INVALID_RECORD)
    return Outcome(ErrorCode.NONE, (), renumbered if is_rebuilt else tuple(stored), codec, largest)


def outcome(batch: RecordBatch, rules: ValidationRules) -> Outcome:
    try:
        valid = validate_batch(batch, rules, NOW_MS)
    except RecordErrors as refused:
        return Outcome(refused.code, tuple(index for index, _ in refused.record_errors))
    except KafkaError as refused:
        return Outcome(refused.code)
    valid.ensure_valid()
    assert valid.timestamp_type is TimestampType.CREATE_TIME
    largest = valid.max_timestamp
    if rules.log_append_time:  # then the log sets it
        largest = max([-1, *(record.timestamp for record in valid)])
    return Outcome(ErrorCode.NONE, (), tuple(valid), valid.compression, largest)


timestamps = st.sampled_from([-1, 0, NOW_MS, NOW_MS - 1001, NOW_MS + 5, NOW_MS + HOUR_MS + 1])
groups = st.lists(
    st.tuples(st.integers(1, 12), timestamps, st.none() | st.binary(max_size=3), st.booleans()),
    min_size=1,
    max_size=5,
)
rule_sets = st.builds(
    ValidationRules,
    compacted=st.booleans(),
    log_append_time=st.booleans(),
    timestamp_before_max_ms=st.sampled_from([2**63 - 1, 1000]),
    codec=st.sampled_from([None, Codec.NONE, Codec.GZIP]),
)


@given(
    groups=groups,
    rules=rule_sets,
    codec=st.sampled_from([Codec.NONE, Codec.LZ4]),
    damage=st.none() | st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)),
    header_max=st.none() | st.integers(-1, NOW_MS * 2) | timestamps,
    claims_append_time=st.booleans(),
    value_size=st.sampled_from([1, 700]),  # the larger ones are scanned where they are
)
def test_every_batch_fares_as_if_all_its_records_had_been_decoded(
    groups: list[tuple[int, int, bytes | None, bool]],
    rules: ValidationRules,
    codec: Codec,
    damage: tuple[int, int] | None,
    header_max: int | None,
    claims_append_time: bool,
    value_size: int,
) -> None:
    builder = BatchBuilder(codec=codec)
    for number, timestamp, key, has_headers in groups:
        for _ in range(number):
            builder.append(timestamp, key, b"v" * value_size, (("h", b"1"),) if has_headers else ())
    data = builder.build()
    if damage is not None:
        data[HEADER_SIZE + damage[0] % (len(data) - HEADER_SIZE)] = damage[1]
    if header_max is not None:
        struct.pack_into(">q", data, 35, header_max)
    if claims_append_time:
        data[22] |= LOG_APPEND_TIME_FLAG
    sealed = reseal(data)
    assert outcome(writable(sealed), rules) == slow_reference(writable(sealed), rules)


def test_a_negative_timestamp_passes_but_cannot_be_written_anew() -> None:
    data = bytearray(batch_of((-1, b"k", b"v")))
    struct.pack_into(">q", data, 27, -5)
    sealed = reseal(data)
    valid = validate_batch(writable(sealed), RULES, NOW_MS)
    assert (valid.base_timestamp, valid.max_timestamp) == (-5, -1)
    with pytest.raises(KafkaError) as refused:
        validate_batch(writable(sealed), ValidationRules(codec=Codec.LZ4), NOW_MS)
    assert refused.value.code is ErrorCode.INVALID_RECORD
