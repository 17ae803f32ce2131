"""Checking and rebuilding in steps, from pieces: the same as in one go, however the data is cut."""

from __future__ import annotations

import random
import struct
from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeVar

import crc32c
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dohle.core.errors import KafkaError
from dohle.core.steps import Room, Steps, finish
from dohle.records.batch import HEADER_SIZE, RecordBatch
from dohle.records.builder import BatchBuilder
from dohle.records.checking.fast_check import begin_fast_check
from dohle.records.checking.rebuild import rebuilding
from dohle.records.checking.record_reader import RecordReader
from dohle.records.checking.record_scan import scanning
from dohle.records.checking.validation import ValidationRules
from dohle.records.compression.codecs import Codec
from dohle.records.compression.whole import WHOLE_BYTES_MAX, Pieces, whole_bytes_max
from dohle.records.record import Header, decode_records
from tests.records.checking.in_one_go import fast_check, validate_batch
from tests.records.checking.scanned import scan_records
from tests.records.framing import batch_around

NOW_MS = 1_700_000_000_000

T = TypeVar("T")

records = st.lists(
    st.tuples(
        st.integers(-3, 70_000),
        st.none() | st.binary(max_size=70),
        st.none() | st.binary(max_size=90),
        st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=5)), max_size=3),
    ),
    min_size=1,
    max_size=30,
)
Records = list[tuple[int, bytes | None, bytes | None, list[Header]]]
damages = st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=2)


def encoded(rows: Records) -> bytes:
    builder = BatchBuilder()
    for delta, key, value, headers in rows:
        builder.append(NOW_MS + delta, key, value, headers)
    return bytes(builder.build()[HEADER_SIZE:])


def damaged(data: bytes, damage: list[tuple[int, int]]) -> bytes:
    changed = bytearray(data)
    for place, byte in damage:
        changed[place % len(changed)] = byte
    return bytes(changed)


def cut(data: bytes, sizes: list[int]) -> Pieces:
    """Cut data into pieces of these sizes, over and over, some of which may be empty."""
    position = turn = 0
    while position < len(data):
        size = sizes[turn % len(sizes)]
        yield data[position : position + size]
        position, turn = position + size, turn + 1


def outcome(work: Callable[[], T]) -> T | tuple[int, str]:
    try:
        return work()
    except KafkaError as error:
        return int(error.code), str(error.args[0])


piece_sizes = st.lists(st.integers(0, 40), min_size=1, max_size=4).filter(any)


@settings(max_examples=300)
@given(rows=records, damage=damages, sizes=piece_sizes, more=st.integers(-1, 1))
def test_records_in_pieces_are_scanned_like_records_in_one(
    rows: Records, damage: list[tuple[int, int]], sizes: list[int], more: int
) -> None:
    data, count = damaged(encoded(rows), damage), max(1, len(rows) + more)
    in_one = outcome(lambda: scan_records(data, count, NOW_MS))
    reader = RecordReader(b"", 0, 0, cut(data, sizes))
    assert outcome(lambda: finish(scanning(reader, count, NOW_MS))) == in_one


@settings(max_examples=200)
@given(
    rows=records,
    sizes=piece_sizes,
    codec=st.sampled_from(Codec),
    shift=st.integers(-2, 2),
    append_time=st.none() | st.just(NOW_MS + 7),
)
@example([(0, b"k", bytes(90), [])], [1], Codec.NONE, 0, None)
def test_records_in_pieces_are_rebuilt_as_a_builder_builds_them(
    rows: Records, sizes: list[int], codec: Codec, shift: int, append_time: int | None
) -> None:
    data = encoded(rows)
    batch = RecordBatch(memoryview(batch_around(data, len(rows))))
    batch.base_timestamp = NOW_MS + rows[0][0] + shift
    steps = rebuilding(
        batch,
        RecordReader(b"", 0, 0, cut(data, sizes)),
        codec,
        None,
        append_time=append_time,
        max_bytes=1 << 20,
    )
    expected = BatchBuilder(codec=codec, partition_leader_epoch=batch.partition_leader_epoch)
    for record in decode_records(data, len(rows), 0, batch.base_timestamp, append_time):
        expected.append(record.timestamp, record.key, record.value, record.headers)
    assert finish(steps).buffer == expected.build()


@pytest.mark.parametrize("codec", Codec)
def test_a_rebuilt_batch_of_many_blocks_holds_the_same_records_however_it_was_cut(
    codec: Codec,
) -> None:
    rows: Records = [(n, None, b"%d" % n * 40, []) for n in range(6_000)]
    data = encoded(rows)
    batch = RecordBatch(memoryview(batch_around(data, len(rows))))

    def rebuilt(sizes: list[int]) -> RecordBatch:
        reader = RecordReader(b"", 0, 0, cut(data, sizes))
        return finish(rebuilding(batch, reader, codec, None, append_time=None, max_bytes=1 << 24))

    first, second = rebuilt([1000]), rebuilt([70_001])
    assert first.buffer == second.buffer
    assert first.decompressed() == data


def with_zero_offsets(count: int, codec: Codec) -> bytearray:
    """Many small records, all with offset delta 0."""
    data = batch_around(b"\x0e\x00\x00\x00\x01\x02v\x00" * count, count, codec)
    struct.pack_into(">i", data, 23, count - 1)
    struct.pack_into(">qq", data, 27, NOW_MS, NOW_MS)
    return sealed(data)


def sealed(data: bytearray) -> bytearray:
    struct.pack_into(">I", data, 17, crc32c.crc32c(memoryview(data)[21:]))
    return data


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY])
def test_a_million_records_with_wrong_offsets_are_rebuilt(codec: Codec) -> None:
    count = 1_000_000 if codec is Codec.ZSTD else 200_000
    rules = ValidationRules(max_message_bytes=1 << 24)
    built = validate_batch(RecordBatch(memoryview(with_zero_offsets(count, codec))), rules, NOW_MS)
    assert built.record_count == count
    (last,) = deque(built, maxlen=1)
    assert (last.offset, last.value) == (count - 1, b"v")


def step_kinds(steps: Steps[object]) -> Iterator[str]:
    """Take all steps, and tell what each was."""
    result: object = None
    while True:
        try:
            step = steps.send(result)
        except StopIteration:
            return
        result = step() if callable(step) else None
        yield "work" if callable(step) else "room" if isinstance(step, Room) else "pause"


def test_a_large_zstd_batch_asks_for_room_and_is_decompressed_elsewhere() -> None:
    view = memoryview(with_zero_offsets(1_000_000, Codec.ZSTD))
    check = begin_fast_check(view, ValidationRules(), NOW_MS)
    assert isinstance(check, Iterator)
    kinds = list(step_kinds(check))
    assert kinds[:3] == ["pause", "room", "work"]
    assert set(kinds[3:]) == {"pause"}


def test_what_can_only_be_decompressed_whole_is_limited_by_its_size() -> None:
    batch = RecordBatch(memoryview(batch_around(bytes(WHOLE_BYTES_MAX + 1), 1, Codec.ZSTD)))
    refused = outcome(lambda: validate_batch(batch, ValidationRules(), NOW_MS))
    assert isinstance(refused, tuple)
    assert refused[0] == 10
    assert whole_bytes_max(10_000_000, 1 << 40) == 320_000_000
    assert whole_bytes_max(10_000_000, 1_000) == 1_000


@pytest.mark.parametrize("codec", [Codec.ZSTD, Codec.LZ4, Codec.SNAPPY])
def test_a_large_batch_may_hold_more_where_large_batches_are_allowed(codec: Codec) -> None:
    builder = BatchBuilder(codec=codec)
    part = random.Random(1).randbytes(1 << 20)
    builder.append(NOW_MS, b"k", part + bytes(33 << 20))
    builder.append(NOW_MS, b"k", part)
    view = memoryview(builder.build())
    rules = ValidationRules(max_message_bytes=1 << 26)
    assert fast_check(view, rules, NOW_MS) is not None
    batch = RecordBatch(view)
    assert validate_batch(batch, rules, NOW_MS) is batch


@pytest.mark.parametrize("codec", Codec)
def test_many_headers_and_large_records_are_checked_in_steps(codec: Codec) -> None:
    builder = BatchBuilder(codec=codec)
    builder.append(NOW_MS, b"k", b"v", [("h", b"x")] * 20_000)
    builder.append(NOW_MS, None, bytes(3_000_000))
    view = memoryview(builder.build())
    rules = ValidationRules(max_message_bytes=1 << 24)
    check = begin_fast_check(view, rules, NOW_MS)
    assert isinstance(check, Iterator)
    assert len(list(step_kinds(check))) > 20_000 // 600
    assert fast_check(view, rules, NOW_MS) is not None
