"""Scanning compressed records sees what decompressing them and scanning sees."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dohle.core.errors import ErrorCode, KafkaError
from dohle.records.batch import HEADER_SIZE
from dohle.records.builder import BatchBuilder
from dohle.records.checking.record_scan import Summary
from dohle.records.compression.codecs import Codec, compress, decompress
from tests.records.checking.scanned import scan_compressed, scan_records

NOW_MS = 1_700_000_000_000
COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
LIMIT = 1 << 27


def records(count: int, size: int) -> bytes:
    builder = BatchBuilder()
    for number in range(count):
        builder.append(NOW_MS, b"%d" % number, (b"%d" % (number * 7919) * size)[:size])
    return bytes(builder.build()[HEADER_SIZE:])


def outcome(scan: Callable[[], Summary]) -> Summary | int:
    try:
        return scan()
    except KafkaError as error:
        return int(error.code)


def assert_same(codec: Codec, data: bytes, count: int, max_bytes: int = LIMIT) -> None:
    view = memoryview(data)
    expected = outcome(
        lambda: scan_records(decompress(codec, view, max_bytes), count, NOW_MS),
    )
    found = outcome(lambda: scan_compressed(codec, view, count, NOW_MS, max_bytes))
    if expected == ErrorCode.CORRUPT_MESSAGE and found == ErrorCode.INVALID_RECORD:
        return  # The records before the damage are looked at first; a producer is told the same.
    assert found == expected


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize(("count", "size"), [(1, 0), (40, 100), (700, 1000), (30, 200_000)])
def test_good_records_of_any_size_are_scanned(codec: Codec, count: int, size: int) -> None:
    data = compress(codec, records(count, size))
    expected = Summary(NOW_MS, NOW_MS, True, False)
    assert scan_compressed(codec, memoryview(data), count, NOW_MS, LIMIT) == expected
    # What the one before has left in memory does not matter.
    assert_same(codec, compress(codec, records(2, 3)), 2)
    assert_same(codec, compress(codec, records(2, 3)), 3)


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("less", [0, 1])
def test_the_limit_is_kept_to_the_byte(codec: Codec, less: int) -> None:
    plain = records(50, 1000)
    assert_same(codec, compress(codec, plain), 50, len(plain) - less)


@settings(max_examples=400, deadline=None)
@given(
    codec=st.sampled_from(COMPRESSED),
    count=st.integers(1, 40),
    cut=st.integers(0, 12),
    behind=st.binary(max_size=12),
    changes=st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=3),
)
def test_damaged_data_has_the_same_outcome(
    codec: Codec, count: int, cut: int, behind: bytes, changes: list[tuple[int, int]]
) -> None:
    data = bytearray(compress(codec, records(count, 30)))
    for place, byte in changes:
        data[place % len(data)] = byte
    assert_same(codec, bytes(data[: len(data) - cut]) + behind, count)


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_several_frames_are_one_batch(codec: Codec) -> None:
    plain = records(20, 50)
    frames = compress(codec, plain[:300]) + compress(codec, plain[300:])
    assert_same(codec, frames, 20)
    expected = Summary(NOW_MS, NOW_MS, True, False)
    assert scan_compressed(codec, memoryview(frames), 20, NOW_MS, LIMIT) == expected
