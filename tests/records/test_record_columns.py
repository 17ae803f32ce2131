"""The columns of records are those of the records that ``decode_records`` makes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dohle.records.batch import RecordBatch
from dohle.records.builder import BatchBuilder
from dohle.records.errors import InvalidRecord
from dohle.records.record import decode_records
from dohle.records.record_columns import (
    record_columns,
    timestamp_deltas,
    with_timestamp_delta,
    with_timestamp_deltas,
)

FIELDS = st.one_of(st.none(), st.binary(max_size=70), st.just(b"fixed-size"))
RECORDS = st.lists(
    st.tuples(
        FIELDS,
        FIELDS,
        st.one_of(st.just(0), st.integers(-100, 20_000)),
        st.integers(1, 100),
        st.sampled_from([(), (), (("h", b"1"), ("", None))]),
        st.sampled_from([1, 1, 1, 30, 200]),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(RECORDS, st.booleans())
def test_columns_are_those_of_the_records(
    drawn: list[tuple[bytes | None, bytes | None, int, int, tuple[tuple[str, bytes | None]], int]],
    consecutive: bool,
) -> None:
    """In runs of one size and one by one, with gaps between the offsets and without."""
    builder, offset = BatchBuilder(), -1
    for key, value, time, gap, headers, times in drawn:
        for _ in range(times):
            offset += 1 if consecutive else gap
            builder.append(1_000 + time, key, value, headers, offset)
    batch = RecordBatch(memoryview(builder.build()))
    data, count = batch.decompressed(), batch.record_count
    records = list(decode_records(data, count, 0, 0, None))
    found = record_columns(data, count)
    assert found.keys == [record.key for record in records]
    assert list(found.offset_deltas) == [record.offset for record in records]
    assert found.null_values == [n for n, record in enumerate(records) if record.value is None]
    assert found.has_null_key == any(record.key is None for record in records)
    assert found.has_base_timestamp == all(record.timestamp == 0 for record in records)
    starts = found.positions[:-1]
    assert timestamp_deltas(data, starts) == [record.timestamp for record in records]
    for delta in (-987_654, 0, 7, 5_000):
        changed = b"".join(
            with_timestamp_deltas(data, found.positions, range(count), [delta] * count)
        )
        assert list(decode_records(changed, count, 0, 0, None)) == [
            record._replace(timestamp=delta) for record in records
        ]
    for start, end, record in zip(starts, found.positions[1:], records, strict=True):
        changed = with_timestamp_delta(data[start:end], -987_654)
        [only] = decode_records(changed, 1, 0, 0, None)
        assert only == record._replace(timestamp=-987_654)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=60), st.integers(1, 4))
def test_any_bytes_are_records_or_refused(data: bytes, count: int) -> None:
    try:
        expected = [record.key for record in decode_records(data, count, 0, 0, None)]
    except InvalidRecord:
        return
    assert record_columns(data, count).keys == expected


def test_what_is_cut_off_or_too_much_is_refused() -> None:
    builder = BatchBuilder()
    for number in range(100):
        builder.append(number, b"k%02d" % number, b"value")
    data = RecordBatch(memoryview(builder.build())).decompressed()
    for wrong in (data[:-1], data + b"\x00", data[:700], b""):
        with pytest.raises(InvalidRecord):
            record_columns(wrong, 100)
    with pytest.raises(InvalidRecord):
        record_columns(data, 99)
