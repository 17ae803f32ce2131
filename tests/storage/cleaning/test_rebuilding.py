"""Batches that are written anew (compaction 7a, 7c)."""

from __future__ import annotations

import pytest

from dohle.records.batch import Codec, LegacyBatch, Record, RecordBatch, TimestampType
from dohle.records.builder import BatchBuilder
from dohle.records.legacy import encode_message
from dohle.records.record_columns import record_columns
from dohle.storage.cleaning.rebuilding import convert, empty_batch, rebuild
from tests.storage.logs import NOW_MS

HORIZON_MS = NOW_MS + 86_400_000


def source(
    codec: Codec = Codec.NONE, append_time: int | None = None, count: int = 70
) -> RecordBatch:
    """Records of one size, and some that are not."""
    builder = BatchBuilder(
        base_offset=1_000,
        codec=codec,
        log_append_time=append_time,
        producer_id=9,
        producer_epoch=3,
        base_sequence=2**31 - 10,
        is_transactional=True,
        partition_leader_epoch=5,
    )
    for number in range(count):
        headers = [("h", b"x")] if number % 10 == 9 else []
        value = None if number % 7 == 3 else b"v" * (number % 3)
        builder.append(NOW_MS + 300 - number, b"key%03d" % number, value, headers)
    return RecordBatch(memoryview(builder.build()))


def rebuilt(batch: RecordBatch, kept: list[int], horizon_ms: int | None = None) -> RecordBatch:
    data = batch.decompressed()
    records = record_columns(data, batch.record_count)
    found = RecordBatch(memoryview(rebuild(batch, data, records, kept, horizon_ms)))
    found.ensure_valid()
    return found


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("kept", [[0], [1, 2, 69], list(range(3, 60))])
@pytest.mark.parametrize("horizon_ms", [None, HORIZON_MS])
@pytest.mark.parametrize("append_time", [None, NOW_MS + 5_000])
def test_records_and_what_is_counted_by_stay(
    codec: Codec, kept: list[int], horizon_ms: int | None, append_time: int | None
) -> None:
    batch = source(codec, append_time)
    found = rebuilt(batch, kept, horizon_ms)
    expected = list(batch)
    assert list(found) == [expected[number] for number in kept]
    assert found.record_count == len(kept)
    for name in (
        "base_offset",
        "last_offset_delta",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "last_sequence",
        "partition_leader_epoch",
        "compression",
        "timestamp_type",
        "is_transactional",
        "is_control",
    ):
        assert getattr(found, name) == getattr(batch, name)
    assert found.delete_horizon_ms == horizon_ms
    first = expected[kept[0]].timestamp
    assert found.base_timestamp == (first if horizon_ms is None else horizon_ms)
    assert found.max_timestamp == max(record.timestamp for record in found)


def test_a_horizon_once_set_is_carried_on() -> None:
    once = rebuilt(source(), list(range(40)), HORIZON_MS)
    again = rebuilt(once, [5, 6], once.delete_horizon_ms)
    assert list(again) == list(source())[5:7]
    assert again.delete_horizon_ms == again.base_timestamp == HORIZON_MS


def test_an_empty_batch_has_nothing_but_the_header() -> None:
    batch = rebuilt(source(Codec.ZSTD, NOW_MS), [1], HORIZON_MS)
    found = RecordBatch(memoryview(empty_batch(batch)))
    found.ensure_valid()
    assert (found.size, found.record_count, list(found)) == (61, 0, [])
    assert (found.base_timestamp, found.delete_horizon_ms) == (-1, None)
    assert found.compression is Codec.NONE
    for name in ("base_offset", "last_offset", "last_sequence", "max_timestamp", "timestamp_type"):
        assert getattr(found, name) == getattr(batch, name)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_become_a_batch_of_format_2(magic: int) -> None:
    message = LegacyBatch(memoryview(encode_message(42, magic, 0, NOW_MS, b"k", b"v")))
    found = RecordBatch(memoryview(convert(message, list(message))))
    found.ensure_valid()
    timestamp = NOW_MS if magic else -1
    assert list(found) == [Record(42, timestamp, b"k", b"v")]
    assert (found.base_offset, found.last_offset, found.producer_id) == (42, 42, -1)
    assert found.timestamp_type is TimestampType.CREATE_TIME
