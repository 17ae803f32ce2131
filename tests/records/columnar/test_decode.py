"""Arrow batches from what Fetch returns have what the reader of records reads, or its error."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from itertools import pairwise

import crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from dohle.core.errors import ErrorCode, KafkaError
from dohle.records.builder import BatchBuilder, build_empty_batch
from dohle.records.columnar.decode import GROUP_BYTES_MAX, ROWS_MAX, decode_records, schema
from dohle.records.compression.codecs import Codec
from dohle.records.control import ControlRecordType, build_control_batch, build_txn_marker
from dohle.records.errors import CorruptBatch, DecompressedTooLarge, InvalidRecord
from dohle.records.record import Header, Record
from dohle.records.varint import encode_varint
from tests.records.columnar.decoded import (
    OFFSET_MAX,
    OFFSET_MIN,
    PARTITION,
    TOPIC,
    assert_read_alike,
    decoded,
    read_singly,
    rows_of,
)
from tests.records.framing import batch_around, framed
from tests.records.message_sets import Message, build_message_set

NOW_MS = 1_700_000_000_000

thorough = settings(max_examples=100)

Layout = tuple[int, bytes | None, bytes | None, tuple[Header, ...]]

payloads = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=10), payloads), max_size=4).map(tuple)
#: Timestamp, key, value and headers of records that have nothing in common.
mixed_shapes = st.lists(
    st.tuples(st.integers(-1, 2**48), payloads, payloads, headers), min_size=1, max_size=12
)


def alike(count: int, key: int, value: int, step_ms: int, seed: int) -> list[Layout]:
    rng = random.Random(seed)
    return [
        (NOW_MS + index * step_ms, rng.randbytes(key) if key else None, rng.randbytes(value), ())
        for index in range(count)
    ]


#: Those of records of one size, but for what grows with their number.
like_shapes = st.builds(
    alike,
    count=st.integers(1, 200),
    key=st.integers(0, 9),
    value=st.sampled_from([0, 1, 40, 50, 60, 100, 130]),
    step_ms=st.integers(0, 3),
    seed=st.integers(0, 9),
)
shapes = mixed_shapes | like_shapes


def built(
    shapes: Sequence[Layout],
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    *,
    gap: int = 0,
    producer_id: int = -1,
    is_transactional: bool = False,
    log_append_time: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytearray:
    builder = BatchBuilder(
        base_offset=base_offset,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=-1 if producer_id < 0 else 0,
        base_sequence=-1 if producer_id < 0 else 0,
        is_transactional=is_transactional,
        log_append_time=log_append_time,
        delete_horizon_ms=delete_horizon_ms,
    )
    for number, shape in enumerate(shapes):
        builder.append(*shape, offset=base_offset + gap + number * (gap + 1))
    builder.override_last_offset(builder.last_offset + gap)
    return builder.build()


def with_checksum(batch: bytearray) -> bytearray:
    batch[17:21] = crc32c.crc32c(memoryview(batch)[21:]).to_bytes(4, "big")
    return batch


@given(shapes=shapes, codec=st.sampled_from(Codec), gap=st.integers(0, 100))
@thorough
def test_records_are_those_of_the_reader(shapes: list[Layout], codec: Codec, gap: int) -> None:
    data = bytes(built(shapes, 1000, codec, gap=gap))
    rows, next_offset = decoded(data)
    assert rows == read_singly(data)
    assert [row.record[1:] for row in rows] == shapes
    assert next_offset == rows[-1].record.offset + gap + 1


@st.composite
def logs(draw: st.DrawFn) -> tuple[bytes, list[Record], list[tuple[int, int]], int]:
    """A log with transactions, the records that are not aborted, who aborted, and the end."""
    data = bytearray()
    visible: list[Record] = []
    aborted: list[tuple[int, int]] = []
    opened: dict[int, int] = {}
    pending: dict[int, list[Record]] = {7: [], 8: []}
    offset = draw(st.integers(0, 1000))
    steps = st.lists(
        st.tuples(st.sampled_from(["plain", "transactional", "commit", "abort"]), st.booleans()),
        min_size=1,
        max_size=8,
    )
    for kind, first in draw(steps):
        producer = 7 if first else 8
        if kind in ("commit", "abort"):
            data += build_txn_marker(kind == "commit", producer, 0, 0, NOW_MS, offset)
            offset += 1
            if kind == "commit":
                visible += pending[producer]
            elif producer in opened:
                aborted.append((producer, opened[producer]))
            opened.pop(producer, None)
            pending[producer] = []
            continue
        is_transactional = kind == "transactional"
        log_append_time = draw(st.none() | st.just(NOW_MS + offset))
        batch = built(
            draw(shapes),
            offset,
            draw(st.sampled_from(Codec)),
            gap=draw(st.integers(0, 3)),
            producer_id=producer if is_transactional else -1,
            is_transactional=is_transactional,
            log_append_time=log_append_time,
            delete_horizon_ms=draw(st.none() | st.just(NOW_MS)),
        )
        data += batch
        rows = [row.record for row in read_singly(batch)]
        if is_transactional:
            opened.setdefault(producer, offset)
        (pending[producer] if is_transactional else visible).extend(rows)
        offset = offset + struct.unpack_from(">i", batch, 23)[0] + 1
    for rows in pending.values():  # an open transaction is not an aborted one
        visible += rows
    return bytes(data), sorted(visible), aborted, offset


@given(log=logs(), data=st.data(), include_headers=st.booleans())
@settings(thorough, max_examples=60)
def test_control_records_and_aborted_transactions_are_left_out(
    log: tuple[bytes, list[Record], list[tuple[int, int]], int],
    data: st.DataObject,
    include_headers: bool,
) -> None:
    log_bytes, visible, aborted, log_end = log
    start = data.draw(st.integers(0, log_end))
    end = data.draw(st.integers(start, log_end + 1))
    rows, next_offset = decoded(
        log_bytes, start, end, aborted=aborted, include_headers=include_headers
    )
    found = [row.record for row in rows]
    wanted = [record for record in visible if start <= record.offset < end]
    if not include_headers:
        wanted = [record._replace(headers=()) for record in wanted]
    assert found == wanted
    assert min(end, log_end) <= next_offset <= log_end
    # Who reads uncommitted gets all.
    assert decoded(log_bytes, start, end)[0] == read_singly(log_bytes, start, end)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("value", [1, 50, 100])
def test_a_large_batch_is_the_same_to_the_last_record(codec: Codec, value: int) -> None:
    rng = random.Random(value)
    records = alike(9000, 3, value, 1, 1)
    records += [(NOW_MS, None, rng.randbytes(rng.randrange(300)), ()) for _ in range(2000)]
    records += alike(500, 0, value, 0, 2)
    records.append((NOW_MS, b"", rng.randbytes(3 << 20), ()))
    data = bytes(built(records, 5, codec))
    assert decoded(data)[0] == read_singly(data)
    assert decoded(data, 8000, 10_000)[0] == read_singly(data, 8000, 10_000)


def test_arrow_batches_have_a_limited_size() -> None:
    data = bytes(built(alike(ROWS_MAX * 2 + 1, 0, 1, 0, 1)))
    batches, next_offset = decode_records(
        data, 0, OFFSET_MAX, topic=TOPIC, partition=PARTITION, aborted=None, include_headers=False
    )
    assert [batch.num_rows for batch in batches] == [ROWS_MAX, ROWS_MAX, 1]
    assert next_offset == ROWS_MAX * 2 + 1
    many = b"".join(built([(NOW_MS, None, bytes(1 << 20), ())], offset) for offset in range(10))
    batches, _ = decode_records(
        many, 0, 10, topic=TOPIC, partition=PARTITION, aborted=None, include_headers=False
    )
    assert all(batch.nbytes <= GROUP_BYTES_MAX for batch in batches)
    assert [row.record.offset for row in rows_of(batches, include_headers=False)] == [*range(10)]


def test_many_small_batches_become_one_arrow_batch() -> None:
    data = b"".join(built([(NOW_MS, b"k", b"v", ())], offset) for offset in range(1000))
    batches, _ = decode_records(
        data, 0, 1000, topic=TOPIC, partition=PARTITION, aborted=[], include_headers=False
    )
    assert [batch.num_rows for batch in batches] == [1000]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_old_message_formats_are_read(magic: int, codec: Codec) -> None:
    messages = [Message(NOW_MS + n, b"key" if n % 2 else None, b"value %d" % n) for n in range(50)]
    old = build_message_set(magic, messages, base_offset=10, codec=codec)
    data = old + built(alike(30, 2, 3, 1, 1), 60)
    rows, next_offset = decoded(data, 20, 80)
    assert rows == read_singly(data, 20, 80)
    assert [row.record.offset for row in rows] == [*range(20, 80)]
    assert {row.timestamp_type for row in rows} == {(-1, 0)[magic], 0}
    assert next_offset == 90


def test_the_last_batch_may_be_cut() -> None:
    parts = [built(alike(3, 1, 1, 1, n), n * 3) for n in range(3)]
    data = b"".join(parts)
    bounds = [0, *(sum(map(len, parts[:n])) for n in (1, 2, 3))]
    for whole, (low, high) in enumerate(pairwise(bounds)):
        for cut in range(low, high):
            if not whole and cut:
                with pytest.raises(KafkaError, match="orders-3") as refused:
                    decoded(data[:cut])
                assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
                continue
            rows, next_offset = decoded(data[:cut])
            assert (len(rows), next_offset) == (whole * 3, whole * 3)


def test_nothing_gives_nothing_and_the_same_offset() -> None:
    assert decoded(b"", 17) == ([], 17)


def test_the_next_offset_lies_behind_what_has_no_records_to_give() -> None:
    empty = build_empty_batch(
        base_offset=5, last_offset=9, max_timestamp=NOW_MS, partition_leader_epoch=0
    )
    control = build_control_batch([(ControlRecordType.LEADER_CHANGE, b"")], NOW_MS, 10)
    assert decoded(bytes(empty + control), 5) == ([], 11)
    assert decoded(build_txn_marker(True, 7, 0, 0, NOW_MS, 11), 11) == ([], 12)
    # Compaction has left nothing of what was asked for: there is no need to ask again.
    assert decoded(bytes(built(alike(3, 1, 1, 1, 1), 50)), 12, 20) == ([], 50)
    # Who is asked for an offset within a batch answers with the whole.
    assert decoded(bytes(built(alike(3, 1, 1, 1, 1), 50)), 60, 70) == ([], 60)


def test_a_view_of_a_larger_buffer_is_read() -> None:
    batch = built(alike(100, 1, 1, 1, 1))
    view = memoryview(bytearray(b"before" + batch + b"behind"))[6:-6]
    assert decoded(view)[0] == read_singly(batch)


def test_decoding_keeps_nothing_of_the_buffer() -> None:
    buffer = built(alike(100, 1, 1, 1, 1))
    expected = read_singly(buffer)
    with memoryview(buffer) as view:
        batches, _ = decode_records(
            view, 0, 99, topic=TOPIC, partition=PARTITION, aborted=None, include_headers=True
        )
    buffer[:] = bytes(len(buffer))
    buffer.clear()
    assert rows_of(batches) == expected[:99]


def test_a_wrong_checksum_is_refused() -> None:
    good, bad = built(alike(3, 1, 1, 1, 1)), built(alike(3, 1, 1, 1, 1), 3)
    bad[-1] ^= 1
    with pytest.raises(CorruptBatch, match="checksum"):
        decoded(bytes(good + bad))


def sample(codec: Codec) -> bytearray:
    builder = BatchBuilder(base_offset=100, codec=codec)
    builder.append(NOW_MS, b"key", b"value" * 20, (("header", b"x" * 70), ("ü", None)))
    builder.append(NOW_MS - 70_000, None, None)
    builder.append(NOW_MS + 5, b"", b"", (("", b""),))
    return builder.build()


@pytest.mark.parametrize("codec", Codec)
def test_every_single_byte_may_be_damaged_behind_a_good_checksum(codec: Codec) -> None:
    good = sample(codec)
    for position in range(len(good)):
        for change in (0x01, 0x02, 0x80):
            damaged = bytearray(good)
            damaged[position] ^= change
            if position >= 21:
                with_checksum(damaged)
            assert_read_alike(bytes(damaged + good), OFFSET_MIN)


@given(
    shapes=shapes,
    changes=st.lists(st.tuples(st.integers(21, 10_000), st.integers(0, 255)), max_size=4),
    fix=st.booleans(),
)
@thorough
def test_damaged_batches_give_the_readers_error_or_its_records(
    shapes: list[Layout], changes: list[tuple[int, int]], fix: bool
) -> None:
    damaged = built(shapes)
    for position, byte in changes:
        damaged[21 + position % (len(damaged) - 21)] = byte
    if fix:
        with_checksum(damaged)
    assert_read_alike(bytes(damaged), OFFSET_MIN)


@given(data=st.binary(max_size=100), count=st.integers(-5, 2**31 - 1), codec=st.sampled_from(Codec))
@thorough
def test_random_records_are_refused_or_read_alike(data: bytes, count: int, codec: Codec) -> None:
    assert_read_alike(bytes(batch_around(data, count, codec)), OFFSET_MIN)


@given(data=st.binary(max_size=200))
@thorough
def test_random_bytes_give_only_kafka_errors(data: bytes) -> None:
    assert_read_alike(data, OFFSET_MIN)


@pytest.mark.parametrize(
    "body",
    [
        b"\x00" + b"\x80\x80\x80\x80\x80\x80\x80\x80\x00" + b"\x00\x02k\x02v\x00",
        b"\x00\x80\x00\x80\x00\x82\x00k\x82\x00v\x80\x00",
        b"\x00\x00\x00\x05\x03\x00",
        b"\x00\x00\x00\x01\x01\x02\x04a\xff\x01",
        b"\x00\x00\x00\x01\x01" + encode_varint(500) + b"\x02h\x01" * 500,
        b"\xff\x00\x00\x02k\x02v\x00",
    ],
    ids=[
        "a varlong of nine bytes",
        "varints longer than they need be",
        "negative lengths other than -1",
        "a header key that is no UTF-8",
        "very many headers",
        "attributes",
    ],
)
def test_what_no_producer_writes_is_read_as_well(body: bytes) -> None:
    data = batch_around(framed(body) * 3, 3)
    rows, _ = decoded(data)
    assert len(rows) == 3
    assert rows == read_singly(data)


def test_headers_that_nobody_asked_for_are_not_looked_at() -> None:
    data = batch_around(framed(b"\x00\x00\x00\x02k\x02v\x02\x04a\xff\x01"), 1)
    rows, _ = decoded(data, include_headers=False)
    assert [row.record for row in rows] == [Record(0, 0, b"k", b"v")]


@pytest.mark.parametrize("timestamp", [2**63 // 1000 + 1, 2**62, 2**63 - 1])
def test_a_timestamp_beyond_what_spark_has_is_refused(timestamp: int) -> None:
    data = bytes(built([(timestamp, None, b"v", ()), (NOW_MS, None, b"v", ())]))
    with pytest.raises(InvalidRecord, match="timestamp"):
        decoded(data)
    assert len(decoded(data, 1)[0]) == 1
    largest = (2**63 - 1) // 1000
    rows, _ = decoded(bytes(built([(largest, None, b"v", ()), (-1, None, b"v", ())])))
    assert [row.record.timestamp for row in rows] == [largest, -1]


@pytest.mark.parametrize("base", [2**63 - 1, 2**63 - 2, -(2**63), -5])
def test_offsets_at_the_edge_of_64_bits_do_not_wrap(base: int) -> None:
    batch = built(alike(3, 1, 1, 1, 1))
    struct.pack_into(">q", batch, 0, base)
    assert_read_alike(bytes(batch), OFFSET_MIN)
    assert_read_alike(bytes(batch), base + 1)
    downwards = batch_around(framed(b"\x00\x00\x05\x01\x01\x00"), 1)
    struct.pack_into(">q", downwards, 0, base)
    assert_read_alike(bytes(downwards), OFFSET_MIN)


@pytest.mark.parametrize("count", [8, 1000, 2**31 - 1])
def test_records_announced_and_not_there_are_refused_without_taking_memory(count: int) -> None:
    for data in (batch_around(bytes(7), count), batch_around(bytes(1 << 20), count, Codec.ZSTD)):
        with pytest.raises(InvalidRecord):
            decoded(data)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_a_batch_that_grows_too_large_is_refused(codec: Codec) -> None:
    data = bytes(built([(NOW_MS, None, bytes(1 << 20), ())], codec=codec))
    with pytest.raises(DecompressedTooLarge):
        decoded(data, decompressed_bytes_max=1 << 20)
    assert len(decoded(data, decompressed_bytes_max=(1 << 20) + 100)[0]) == 1


@pytest.mark.parametrize("include_headers", [False, True])
def test_the_columns_are_those_of_sparks_kafka_source(include_headers: bool) -> None:
    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    columns = [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        *([StructField("headers", ArrayType(header))] if include_headers else []),
    ]
    expected = to_arrow_schema(StructType(columns), timezone="UTC")
    assert expected.equals(schema(include_headers=include_headers), check_metadata=True)
