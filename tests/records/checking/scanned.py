"""What scanning sees in records beside what decoding sees."""

from __future__ import annotations

from collections.abc import Iterator

from dohle.core.steps import finish
from dohle.records.checking.compressed_scan import begin_compressed_scan
from dohle.records.checking.record_scan import Summary, begin_scan
from dohle.records.compression.codecs import Codec
from dohle.records.errors import InvalidRecord
from dohle.records.record import decode_records

NOW_MS = 1_700_000_000_000


def scan_records(records: bytes | memoryview, count: int, base_timestamp: int) -> Summary:
    """Scan in one go."""
    scan = begin_scan(records, count, base_timestamp)
    return scan if isinstance(scan, Summary) else finish(scan)


def scan_compressed(
    codec: Codec, data: memoryview, count: int, base_timestamp: int, max_bytes: int
) -> Summary:
    """Scan in one go."""
    scan = begin_compressed_scan(codec, data, count, base_timestamp, max_bytes)
    return scan if isinstance(scan, Summary) else finish(scan)


def decoded_summary(data: bytes, count: int, base_timestamp: int) -> Summary | None:
    try:
        records = list(decode_records(data, count, 0, base_timestamp, None))
    except InvalidRecord:
        return None
    timestamps = [record.timestamp for record in records]
    return Summary(
        min(timestamps),
        max(timestamps),
        [record.offset for record in records] == list(range(count)),
        any(record.key is None for record in records),
    )


def scanned_summary(data: bytes | memoryview, count: int, base_timestamp: int) -> Summary | None:
    try:
        return scan_records(data, count, base_timestamp)
    except InvalidRecord:
        return None


def views_of(data: bytes) -> Iterator[memoryview]:
    """Show the bytes as those of a receive buffer too, between others that would go on well."""
    yield memoryview(data)
    end = 5 + len(data)
    for behind in (b"", bytes(20), b"\2" * 20, b"\xff" * 20, data):
        yield memoryview(bytearray(b"\2" * 5 + data + behind))[5:end]
    yield memoryview(bytearray(data)).toreadonly()


def assert_is_scanned_as_decoded(data: bytes, count: int) -> None:
    expected = decoded_summary(data, count, NOW_MS)
    assert scanned_summary(data, count, NOW_MS) == expected
    for view in views_of(data):
        assert scanned_summary(view, count, NOW_MS) == expected
