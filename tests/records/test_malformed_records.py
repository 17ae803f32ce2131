"""Damaged batches: whatever the bytes are, a KafkaError tells so, and nothing else happens."""

from __future__ import annotations

import contextlib
import operator
import random

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dohle.core.errors import ErrorCode, KafkaError
from dohle.records.batch import HEADER_SIZE, batches, read_batch
from dohle.records.builder import BatchBuilder
from dohle.records.compression.codecs import Codec
from dohle.records.errors import DecompressedTooLarge, InvalidRecord
from dohle.records.record import Record, decode_records
from dohle.records.varint import encode_varint
from tests.records.framing import batch_around, framed
from tests.records.message_sets import Message, build_message_set

NOW_MS = 1_700_000_000_000
GOOD = b"\x00\x00\x00\x02k\x02v\x02\x02h\x02x"


def sample(codec: Codec) -> bytearray:
    builder = BatchBuilder(codec=codec)
    builder.append(NOW_MS, b"key", b"value" * 20, (("header", b"x" * 70), ("ü", None)))
    builder.append(NOW_MS - 70_000, None, None)
    builder.append(NOW_MS + 5, b"", b"")
    return builder.build()


ensure_valid = operator.methodcaller("ensure_valid")
base_offset = operator.attrgetter("base_offset")


def survey(data: bytes | bytearray) -> None:
    """Read everything that can be read; any exception but a KafkaError goes through."""
    with contextlib.suppress(KafkaError):
        for batch in batches(data):
            for look in (repr, ensure_valid, list, base_offset):
                with contextlib.suppress(KafkaError):
                    look(batch)


SAMPLES = [
    *(bytes(sample(codec)) for codec in Codec),
    *(
        build_message_set(magic, [Message(NOW_MS, b"k", b"v" * 40)] * 3, codec=codec)
        for magic in (0, 1)
        for codec in (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
    ),
]


@given(
    data=st.sampled_from(SAMPLES),
    changes=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=5),
    cut=st.integers(0, 20),
)
def test_damaged_batches_give_only_kafka_errors(
    data: bytes, changes: list[tuple[int, int]], cut: int
) -> None:
    damaged = bytearray(data)
    for position, byte in changes:
        damaged[position % len(damaged)] = byte
    survey(damaged[: len(damaged) - cut])


@pytest.mark.parametrize("codec", Codec)
def test_every_single_byte_may_be_damaged_behind_a_good_checksum(codec: Codec) -> None:
    good = sample(codec)
    for position in range(21, len(good)):
        for change in (0x01, 0x80, 0xFF):
            damaged = bytearray(good)
            damaged[position] ^= change
            damaged[17:21] = crc32c.crc32c(memoryview(damaged)[21:]).to_bytes(4, "big")
            survey(damaged)


@given(data=st.binary(max_size=200))
def test_random_bytes_give_only_kafka_errors(data: bytes) -> None:
    survey(data)


@given(data=st.binary(max_size=100), count=st.integers(-5, 2**31 - 1), codec=st.sampled_from(Codec))
def test_random_records_give_only_kafka_errors(data: bytes, count: int, codec: Codec) -> None:
    survey(batch_around(data, count, codec))


@given(data=st.binary(max_size=60), count=st.integers(1, 20))
def test_decoding_ends_exactly_at_the_end_or_fails(data: bytes, count: int) -> None:
    try:
        records = list(decode_records(data, count, 0, 0, None))
    except InvalidRecord:
        return
    assert len(records) == count


@pytest.mark.parametrize("codec", Codec)
def test_records_cut_at_any_byte_are_refused(codec: Codec) -> None:
    records = framed(GOOD) * 2
    assert len(list(read_batch(batch_around(records, 2, codec)))) == 2
    for end in range(len(records)):
        with pytest.raises(InvalidRecord):
            list(read_batch(batch_around(records[:end], 2, codec)))


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("count", [-(2**31), -1, 0, 1, 3, 2**31 - 1])
def test_a_wrong_record_count_is_refused(count: int, codec: Codec) -> None:
    with pytest.raises(InvalidRecord):
        list(read_batch(batch_around(framed(GOOD) * 2, count, codec)))


HUGE = encode_varint(2**31 - 1)
ENDLESS = b"\xff" * 11


@pytest.mark.parametrize(
    "record",
    [
        encode_varint(-1) + GOOD,
        HUGE + GOOD,
        ENDLESS + GOOD,
        b"\x00",
        framed(b"\x00"),
        framed(GOOD + b"!"),
        framed(GOOD[:-1]),
        framed(b"\x00\x00\x00" + HUGE + b"k\x02v\x00"),
        framed(b"\x00\x00\x00\x02k" + HUGE + b"v\x00"),
        framed(b"\x00\x00\x00\x02k\x02v" + HUGE),
        framed(b"\x00\x00\x00\x02k\x02v\x01"),
        framed(b"\x00\x00\x00\x02k\x02v\x02\x01"),
        framed(b"\x00\x00\x00\x02k\x02v\x02" + HUGE + b"h\x02x"),
        framed(b"\x00\x00\x00\x02k\x02v\x02\x02h" + HUGE + b"x"),
        framed(b"\x00\x00\x00\x02k\x02v\x04\x02h\x02x"),
        framed(b"\x00" + ENDLESS + b"\x00\x02k\x02v\x00"),
        framed(b"\x00\x00" + b"\xff\xff\xff\xff\x7f" + b"\x02k\x02v\x00"),
    ],
    ids=[
        "negative length",
        "huge length",
        "endless length",
        "length of nothing",
        "attributes only",
        "a byte too many",
        "a byte too few",
        "huge key",
        "huge value",
        "huge header count",
        "negative header count",
        "negative header name",
        "huge header name",
        "huge header value",
        "fewer headers than announced",
        "endless timestamp",
        "offset delta beyond 32 bits",
    ],
)
def test_a_record_that_breaks_the_format_is_refused(record: bytes) -> None:
    with pytest.raises(InvalidRecord) as refused:
        list(read_batch(batch_around(record, 1)))
    assert refused.value.code is ErrorCode.INVALID_RECORD
    with pytest.raises(InvalidRecord):
        list(read_batch(batch_around(record + framed(GOOD), 2)))


def test_a_timestamp_beyond_64_bits_is_refused() -> None:
    record = framed(b"\x00" + encode_varint(1) + b"\x00\x01\x01\x00")
    assert next(decode_records(record, 1, 0, 2**63 - 2, None)).timestamp == 2**63 - 1
    with pytest.raises(InvalidRecord, match="timestamp"):
        next(decode_records(record, 1, 0, 2**63 - 1, None))


def test_a_negative_length_other_than_minus_one_is_null_as_in_kafka() -> None:
    record = framed(b"\x00\x00\x00\x05\x03\x00")
    assert list(decode_records(record, 1, 7, 0, None)) == [Record(7, 0, None, None)]


def test_a_header_name_that_is_no_utf_8_is_replaced() -> None:
    record = framed(b"\x00\x00\x00\x01\x01\x02\x04a\xff\x01")
    assert next(decode_records(record, 1, 0, 0, None)).headers == (("a\ufffd", None),)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_a_batch_that_grows_too_large_is_refused(codec: Codec) -> None:
    builder = BatchBuilder(codec=codec)
    builder.append(NOW_MS, None, bytes(1 << 20))
    batch = read_batch(builder.build())
    assert batch.size < 100_000
    with pytest.raises(DecompressedTooLarge):
        list(batch.records(max_bytes=1 << 20))
    assert len(list(batch.records(max_bytes=(1 << 20) + 100))) == 1


def test_a_record_announced_as_huge_allocates_nothing() -> None:
    data = batch_around(HUGE + random.Random(1).randbytes(100), 1)
    assert len(data) < HEADER_SIZE + 200
    with pytest.raises(InvalidRecord):
        list(read_batch(data))
