"""Reading decoded Arrow batches back as records, and reading the same by the reader of records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import pyarrow as pa

from dohle.core.errors import ErrorCode, KafkaError
from dohle.records.batch import batches
from dohle.records.columnar.decode import Decoding, schema
from dohle.records.errors import InvalidRecord
from dohle.records.record import Header, Record

TOPIC, PARTITION = "orders", 3
OFFSET_MIN, OFFSET_MAX = -(2**63), 2**63 - 1


class Row(NamedTuple):
    """A row of the columns, with its headers."""

    record: Record
    timestamp_type: int


def decoded(
    data: bytes | bytearray | memoryview,
    start: int = 0,
    end: int = OFFSET_MAX,
    *,
    aborted: list[tuple[int, int]] | None = None,
    include_headers: bool = True,
    **limits: int,
) -> tuple[list[Row], int]:
    """Decode, check the columns, and give rows and the next offset."""
    decoding = Decoding(
        data if isinstance(data, memoryview) else bytes(data),
        start,
        end,
        topic=TOPIC,
        partition=PARTITION,
        aborted=aborted,
        include_headers=include_headers,
        **limits,
    )
    return rows_of(decoding, include_headers=include_headers), decoding.next_offset


def rows_of(arrow_batches: Iterable[Any], *, include_headers: bool = True) -> list[Row]:
    rows: list[Row] = []
    for batch in arrow_batches:
        batch.validate(full=True)
        assert batch.schema.equals(schema(include_headers=include_headers), check_metadata=True)
        assert batch.num_rows
        assert set(batch["topic"].to_pylist()) == {TOPIC}
        assert set(batch["partition"].to_pylist()) == {PARTITION}
        microseconds = batch["timestamp"].cast(pa.int64()).to_pylist()
        assert all(timestamp % 1000 == 0 for timestamp in microseconds)
        headers: list[Any] = [None] * batch.num_rows
        if include_headers:
            headers = batch["headers"].to_pylist()
            assert [] not in headers
        rows += [
            Row(Record(offset, microsecond // 1000, key, value, header_tuples(found)), type)
            for offset, microsecond, key, value, found, type in zip(
                batch["offset"].to_pylist(),
                microseconds,
                batch["key"].to_pylist(),
                batch["value"].to_pylist(),
                headers,
                batch["timestampType"].to_pylist(),
                strict=True,
            )
        ]
    return rows


def header_tuples(found: list[dict[str, Any]] | None) -> tuple[Header, ...]:
    return tuple((header["key"], header["value"]) for header in found or ())


def read_singly(
    data: bytes | bytearray | memoryview, start: int = 0, end: int = OFFSET_MAX
) -> list[Row]:
    """Read the same by the reader of records: its rows, or its error."""
    rows = []
    is_any_whole = False
    for batch in batches(data):
        is_any_whole = True
        batch.ensure_valid()
        if batch.magic == 2 and batch.base_offset >= end:
            break
        if batch.is_control or batch.last_offset < start:
            continue
        for record in batch:
            if start <= record.offset < end:
                if not -(2**63) <= record.timestamp * 1000 < 2**63:
                    raise InvalidRecord("Spark has no such timestamp")
                rows.append(Row(record, batch.timestamp_type))
    if data and not is_any_whole:
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "not even one batch")
    return rows


def assert_read_alike(data: bytes, start: int = 0, end: int = OFFSET_MAX) -> None:
    """Expect the same rows or the same error from both."""
    expected: list[Row] | ErrorCode
    found: list[Row] | ErrorCode
    try:
        expected = read_singly(data, start, end)
    except KafkaError as error:
        expected = error.code
    try:
        found = decoded(data, start, end)[0]
    except KafkaError as error:
        found = error.code
    assert found == expected
